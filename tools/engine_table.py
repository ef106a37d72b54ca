"""Write the table of engines and operators into docs/engines.md: every pair is tried, in every dtype.

It says what holds on the machine that runs it, with the engines that are installed there; run it where all are.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "engines.md"
TABLE = re.compile(r"(<!-- engines and operators -->\n).*?(<!-- end of it -->)", re.DOTALL)


def table() -> str:
    """Try everything and write one row per operator and engine."""
    import opforge
    from opforge.verify import engines
    from opforge.verify.support import Support, engine_support

    operators = [o for o in opforge.load("opforge.ops") if "Grad" not in o.name]
    groups: dict[tuple[str, str], list[Support]] = {}
    for row in engine_support(operators, [name for name in engines() if name != "reference"]):
        groups.setdefault((row.operator, row.engine), []).append(row)
    lines = ["| operator | engine | runs in | not in |", "|---|---|---|---|"]
    for (operator, engine), rows in sorted(groups.items()):
        good = ", ".join(row.dtypes for row in rows if row.passed)
        reasons: dict[str, list[str]] = {}
        for row in rows:
            if not row.passed:
                reasons.setdefault(_short(row.reason), []).append(row.dtypes)
        bad = "; ".join(f"{', '.join(filter(None, dtypes))}: {why}".lstrip(": ") for why, dtypes in reasons.items())
        lines.append(f"| {operator} | {engine} | {good} | {bad} |")
    return "\n".join(lines) + "\n"


def _short(reason: str) -> str:
    """The engine's own words where there are some, on one line; of a difference how large it is."""
    error = re.search(r"max \|error\| (\S+) at .*?allowed (.*?) \(", reason, re.DOTALL)
    if error:
        return f"less exact than asked: error {error[1]}, allowed {error[2]}".replace("|expected|", "value")
    got = [line.strip().removeprefix("got: ") for line in reason.splitlines() if line.strip().startswith("got: ")]
    text = re.sub(r"\s+", " ", (got or reason.splitlines())[0])
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from \S+ failed:| with name ''", "", text)
    return text.replace("|", "/")[:120].strip()


def main() -> int:
    """Rewrite the page's table."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(TABLE.sub(lambda m: m[1] + table() + m[2], text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
