"""Install ExecuTorch into a folder of its own and run its tests, and the examples of its page.

The folder, build/executorch, stands before the environment's own packages on the path; nothing else is changed.
"""

from __future__ import annotations

import os
import sys

import steady
from apart import install, path

_MODELS = ("MiniLM with CustomGELU", "case study", "sparse", "versions")
TESTS = (
    "tests/unit/executorch",
    "tests/unit/test_docs.py::test_examples_run[docs/executorch.md]",
    "tests/conformance/test_models.py::test_operators_run_where_the_page_says[executorch]",
    *(f"tests/conformance/test_models.py::test_models[executorch-{name}]" for name in _MODELS),
)


def main(arguments: list[str]) -> int:
    """Run the tests; ``--path`` only prints the PYTHONPATH to use."""
    if arguments == ["--path"]:
        print(path(install("executorch")))
        return 0
    environment = {**os.environ, "PYTHONPATH": path(install("executorch"))}
    return steady.run(["-q", "-n", "2", *(arguments or TESTS)], environment=environment).code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
