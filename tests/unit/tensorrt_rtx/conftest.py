"""TensorRT is in no environment of `make test`: `make tensorrt` installs what needs no GPU, and runs this folder."""

from importlib import util

collect_ignore_glob = [] if util.find_spec("tensorrt_rtx_bindings") else ["test_*.py"]
