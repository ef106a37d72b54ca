"""Speed and memory against named peers: `make bench`, or `python -m benchmarks [CASE ...]`."""
