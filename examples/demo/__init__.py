"""The whole path on real models: `make demo`, or `python -m examples.demo`."""
