"""The device check: everything that only a GPU can show, in one run of a few minutes (docs/device_check.md)."""
