"""Generated tables; see tools/generate.py."""
