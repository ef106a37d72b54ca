"""Print build/bench/results.json (made by `make bench`) as a Markdown table, or write it into pages.

python tools/bench_table.py                            print the table
python tools/bench_table.py --write README.md ...      replace what stands between the bench markers
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- bench begin -->", "<!-- bench end -->"


def figure(value: float, metric: str) -> str:
    """Write a measured value: seconds in a fitting unit, anything else with the name of its unit."""
    if metric == "time":
        for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
            if value < limit:
                return f"{value * factor:.2f} {unit}"
        return f"{value:.2f} s"
    return f"{value:.4g} {metric}"


def table(rows: list[dict[str, Any]], machine: dict[str, Any]) -> str:
    """Return the rows as Markdown, with the machine above them where it is known."""
    lines = []
    if machine:
        packages = ", ".join(f"{name} {version}" for name, version in machine.get("packages", {}).items())
        where = f"{machine['cpu'] or 'an unnamed CPU'} ({machine['cores']} cores, {machine['isa']})"
        lines += [f"Measured on {where} with Python {machine['python']}, {packages}.", ""]
    lines += ["| case | threads | opforge | peer | peer's | ratio |", "|---|---|---|---|---|---|"]
    for row in rows:
        ours, theirs = figure(row["ours"], row["metric"]), figure(row["peer_value"], row["metric"])
        lines.append(f"| {row['case']} | {row['threads']} | {ours} | {row['peer']} | {theirs} | {row['ratio']:.2f} |")
    return "\n".join([*lines, "", "A ratio above 1 means that opforge is better."])


def write(page: Path, text: str) -> None:
    """Replace what stands between the markers of a page."""
    head, begin, rest = page.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no {BEGIN} ... {END}")
    page.write_text(f"{head}{begin}{text}\n{end}{tail}", encoding="utf-8")


def main() -> int:
    """Print the table or write it into pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=ROOT / "build/bench/results.json")
    parser.add_argument("--write", nargs="+", type=Path, default=[], metavar="PAGE")
    options = parser.parse_args()
    if not options.results.is_file():
        raise SystemExit(f"{options.results} is not there: run make bench")
    machine = options.results.with_name("machine.json")
    text = table(json.loads(options.results.read_text()), json.loads(machine.read_text()) if machine.is_file() else {})
    for page in options.write:
        write(page, text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
