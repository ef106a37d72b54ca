"""Print build/bench/results.json (made by `make bench`) as Markdown, or write it into pages.

python tools/bench_table.py                            print every row, in groups
python tools/bench_table.py --write PAGE ...           replace what stands between the bench markers of pages

A page has `<!-- bench begin -->` for every row, or `<!-- bench begin: models images -->` for a short table of these
groups: one line per case with the ratio to each peer, and the geometric means.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARKERS = re.compile(r"(<!-- bench begin(?:: (?P<groups>[\w ]+))? -->\n).*?(<!-- bench end -->)", re.DOTALL)
NOTE = "A ratio above 1 means that opforge is better."
Row = dict[str, Any]


def figure(value: float, metric: str) -> str:
    """Write a measured value: seconds in a fitting unit, anything else with the name of its unit."""
    if metric == "time":
        for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
            if value < limit:
                return f"{value * factor:.2f} {unit}"
        return f"{value:.2f} s"
    return f"{value:.4g} {metric}"


def place(machine: dict[str, Any]) -> list[str]:
    """Return where the figures were measured, as lines."""
    if not machine:
        return []
    packages = ", ".join(f"{name} {version}" for name, version in machine.get("packages", {}).items())
    where = f"{machine['cpu'] or 'an unnamed CPU'} ({machine['cores']} cores, {machine['isa']})"
    return [f"Measured on {where} with Python {machine['python']}, {packages}.", ""]


_TITLES = {"executorch": "ExecuTorch"}


def whole(rows: list[Row]) -> str:
    """Return every row, one table per group."""
    lines = []
    for group in dict.fromkeys(row.get("group", "") for row in rows):
        lines += [f"### {_TITLES.get(group, group.replace('_', ' ').capitalize())}", ""] if group else []
        lines += ["| case | threads | opforge | peer | peer's | ratio | 95 % interval | asked |", "|" + "---|" * 8]
        for row in (r for r in rows if r.get("group", "") == group):
            ours, theirs = figure(row["ours"], row["metric"]), figure(row["peer_value"], row["metric"])
            low, high = row["interval"]
            asked = (
                "" if row["limit"] is None else f"{row['limit']:.2f}" + ("" if row["verdict"] == "ok" else ", short")
            )
            lines.append(
                f"| {row['case']} | {row['threads']} | {ours} | {row['peer']} | {theirs} | {row['ratio']:.2f} "
                f"| {low:.2f} to {high:.2f} | {asked} |"
            )
        lines.append("")
    return "\n".join([*lines, *together(rows), NOTE])


def together(rows: list[Row]) -> list[str]:
    """Return what follows from many rows, as tables."""
    sys.path.insert(0, str(ROOT))
    from benchmarks._summary import geometric_means, second_thread

    lines = []
    for title, head, body in (
        ("Geometric means over whole models", "threads | peer | cases | ratio | asked", geometric_means(rows)),
        ("What a second thread brings", "case | opforge | onnxruntime | asked", second_thread(rows)),
    ):
        if body:
            lines += [f"### {title}", "", f"| {head} |", "|" + "---|" * len(body[0])]
            lines += [*("| " + " | ".join(row) + " |" for row in body), ""]
    return lines


def short(rows: list[Row], groups: list[str]) -> str:
    """Return one line per case of some groups with the ratio to each peer, and geometric means."""
    chosen = [row for row in rows if row.get("group") in groups]
    cases = {row["case"] for row in chosen}
    counts = {p: sum(r["peer"] == p for r in chosen) for p in dict.fromkeys(row["peer"] for row in chosen)}
    peers = [p for p, count in counts.items() if 2 * count >= len(cases)]  # a column for those of some cases is empty
    chosen = [row for row in chosen if row["peer"] in peers]
    lines = ["| case | threads | opforge | " + " | ".join(f"ratio to {p}" for p in peers) + " |"]
    lines.append("|" + "---|" * (3 + len(peers)))
    for case in dict.fromkeys(row["case"] for row in chosen):
        of_case = {row["peer"]: row for row in chosen if row["case"] == case}
        first = next(iter(of_case.values()))
        ratios = [f"{of_case[p]['ratio']:.2f}" if p in of_case else "" for p in peers]
        ours = figure(first["ours"], first["metric"])
        lines.append(f"| {case} | {first['threads']} | {ours} | " + " | ".join(ratios) + " |")
    means: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in chosen:
        means[row["threads"]][row["peer"]].append(math.log(row["ratio"]))
    for threads, by_peer in sorted(means.items()):
        cells = [f"{math.exp(sum(by_peer[p]) / len(by_peer[p])):.2f}" if by_peer[p] else "" for p in peers]
        lines.append(f"| geometric mean | {threads} | | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", NOTE])


def write(page: Path, rows: list[Row], machine: dict[str, Any]) -> None:
    """Replace what stands between the markers of a page."""
    text = page.read_text(encoding="utf-8")
    if not MARKERS.search(text):
        raise SystemExit(f"{page} has no <!-- bench begin --> ... <!-- bench end -->")

    def fill(match: re.Match[str]) -> str:
        groups = (match["groups"] or "").split()
        body = short(rows, groups) if groups else whole(rows)
        return match[1] + "\n".join([*place(machine), body]) + "\n" + match[3]

    page.write_text(MARKERS.sub(fill, text), encoding="utf-8")


def main() -> int:
    """Print the tables or write them into pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=ROOT / "build/bench/results.json")
    parser.add_argument("--write", nargs="+", type=Path, default=[], metavar="PAGE")
    options = parser.parse_args()
    if not options.results.is_file():
        raise SystemExit(f"{options.results} is not there: run make bench")
    file = options.results.with_name("machine.json")
    machine = json.loads(file.read_text()) if file.is_file() else {}
    rows = json.loads(options.results.read_text())
    for page in options.write:
        write(page, rows, machine)
    print("\n".join([*place(machine), whole(rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
