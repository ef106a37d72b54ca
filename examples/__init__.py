"""Examples that run: each file says what it shows. `python -m examples.demo` is the whole path on real models."""
