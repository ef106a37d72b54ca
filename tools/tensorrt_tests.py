"""Install the parts of TensorRT that work without a GPU into a folder of their own, and run the tests that need them.

The folder, build/tensorrt, stands before the environment's own packages on the path; nothing else is changed.
"""

from __future__ import annotations

import os
import sys

import steady
from apart import install, path

TESTS = ("tests/unit/tensorrt_rtx",)


def main(arguments: list[str]) -> int:
    """Run the tests."""
    environment = {**os.environ, "PYTHONPATH": path(install("tensorrt"))}
    return steady.run(["-q", *(arguments or TESTS)], environment=environment).code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
