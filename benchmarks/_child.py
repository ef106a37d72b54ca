"""One round of one case in a process of its own: `python -m benchmarks._child NAME SEED`; prints JSON."""

from __future__ import annotations

import json
import sys

from benchmarks._case import all_cases, measure


def main() -> None:
    """Measure and print."""
    name, seed = sys.argv[1], int(sys.argv[2])
    (case,) = [c for c in all_cases() if c.name == name]
    values = measure(case, seed)
    print("\n" + json.dumps(values))


if __name__ == "__main__":
    main()
