"""Write a corpus: `python -m tests.corpus FOLDER [PART ...] [--every] [--stride N]`; prints the path of its list."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from tests.corpus import sources
from tests.corpus.case import Case, write_corpus


def main() -> None:
    """Compile the cases and write the list; expected outputs are written by `run_list --write`."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", help="kernels backend operators models; all when none is given")
    parser.add_argument("--every", action="store_true", help="all of onnx's backend tests, not three of an operator")
    parser.add_argument("--stride", type=int, default=1, help="take every N-th case of the kernels")
    options = parser.parse_args()
    parts: dict[str, Callable[[], Iterator[Case]]] = {
        "kernels": lambda: islice(sources.kernels(), 0, None, options.stride),
        "backend": partial(sources.backend_tests, options.every),
        "operators": sources.operators,
        "models": sources.real_models,
    }
    for part in options.parts or parts:
        path, left_out = write_corpus(parts[part](), (options.folder / part).resolve())
        count = len(path.read_text().splitlines())
        print(f"{part}: {count} models in {path}; {len(left_out)} that are not supported are left out")


os.environ.setdefault("OPFORGE_JIT", "off")
if __name__ == "__main__":
    main()
