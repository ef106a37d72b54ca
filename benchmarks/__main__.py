"""Run the cases in fresh processes, print a table, write build/bench/results.json.

The file is written after every case, so that a run that is stopped keeps what it measured. Where only some cases
are named, the rows of the others stay, if they were measured on the same machine with the same packages.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path
from typing import Any

from benchmarks._case import OURS, Case, Measured, all_cases
from benchmarks._summary import geometric_means, second_thread
from opforge.cli._output import table

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "bench"


def main() -> int:
    """Measure all or the named cases; 0 when every gate passed or could not be judged."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of cases or groups; all when none is given")
    parser.add_argument("--rounds", type=int, help="fresh processes per case (default: the case's own, 7 for most)")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    options = parser.parse_args()
    cases = [
        c for c in all_cases() if not options.names or any(part in f"{c.group}: {c.name}" for part in options.names)
    ]
    if options.list:
        print("\n".join(c.name for c in cases))
        return 0
    rows: list[dict[str, Any]] = []
    kept = _kept(cases) if options.names else []
    left_out = []
    for case in cases:
        lacking = [name for name in case.needs if util.find_spec(name) is None]
        if lacking:
            left_out.append(f"{case.name}: {', '.join(lacking)} not installed")
            continue
        print(f"{case.name} ...", end=" ", flush=True)
        rounds = _rounds(case, options.rounds or case.rounds)
        found = _rows(case, rounds)
        rows += found
        print(", ".join(f"{r['peer']} {r['ratio']:.2f}x" for r in found), flush=True)
        _write(rows + kept)
    if rows:
        print(f"\nwrote {OUT / 'results.json'}")
    _print(rows)
    for line in left_out:
        print("left out:", line)
    return 0 if all(r["verdict"] != "below" for r in rows) else 1


def _rounds(case: Case, count: int) -> list[Measured]:
    results = []
    for seed in range(count):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks._child", case.name, str(seed)],
            cwd=ROOT,
            env={**os.environ, **case.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"\n{case.name} failed:\n{done.stderr[-4000:]}")
        results.append(json.loads(done.stdout.strip().splitlines()[-1]))
    return results


def _rows(case: Case, rounds: list[Measured]) -> list[dict[str, Any]]:
    rows = []
    for part, peer in [(part, peer) for part, values in rounds[0].items() for peer in values if peer != OURS]:
        ours, theirs = [r[part][OURS] for r in rounds], [r[part][peer] for r in rounds]
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        low, high = _interval(ratios)
        limit = case.limits.get(f"{part}/{peer}" if part else peer)
        verdict = "" if limit is None else "ok" if high >= limit else "below"
        rows.append(
            {
                "case": f"{case.name}: {part}" if part else case.name,
                "group": case.group,
                "metric": case.metric,
                "threads": case.threads,
                "ours": statistics.median(ours),
                "peer": peer,
                "peer_value": statistics.median(theirs),
                "ratio": statistics.median(ratios),
                "interval": [low, high],
                "limit": limit,
                "verdict": verdict,
                "rounds": len(rounds),
            }
        )
    return rows


def _interval(values: list[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[1949]


def _kept(cases: list[Case]) -> list[dict[str, Any]]:
    """Return the rows of an earlier run on this machine that these cases do not measure anew."""
    try:
        if json.loads((OUT / "machine.json").read_text()) != machine():
            return []
        rows: list[dict[str, Any]] = json.loads((OUT / "results.json").read_text())
    except (OSError, ValueError):
        return []
    return [r for r in rows if not any(_is_of(r, c) for c in cases)]


def _is_of(row: dict[str, Any], case: Case) -> bool:
    return bool(row["case"] == case.name or row["case"].startswith(f"{case.name}: "))


def _write(rows: list[dict[str, Any]]) -> None:
    """Write the rows in the order of the cases; those of cases that are no more fall out."""
    cases = all_cases()
    ordered = [r for c in cases for r in rows if _is_of(r, c)]
    OUT.mkdir(parents=True, exist_ok=True)
    for name, data in (("results.json", ordered), ("machine.json", machine())):
        partial = OUT / f"{name}.partial"
        partial.write_text(json.dumps(data, indent=1) + "\n")
        partial.replace(OUT / name)


def machine() -> dict[str, Any]:
    """Describe where the figures were measured."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    packages = ("numpy", "torch", "tensorflow", "jax", "onnxruntime", "openvino", "scipy")
    owners = metadata.packages_distributions()  # TensorFlow's for CPUs has a name of its own
    versions = {name: metadata.version(owners[name][0]) for name in packages if name in owners}
    flags = Path("/proc/cpuinfo").read_text()
    isa = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else platform.machine()
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "isa": isa,
        "python": platform.python_version(),
        "packages": versions,
    }


def _print(rows: list[dict[str, Any]]) -> None:
    def figure(row: dict[str, Any], key: str) -> str:
        value = row[key]
        if row["metric"] == "time":
            return (
                f"{value * 1e6:.2f} us" if value < 1e-3 else f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.2f} s"
            )
        return f"{value:.4g}"

    head = ("case", "metric", "threads", "opforge", "peer", "peer's", "ratio", "95 % interval", "asked", "verdict")
    body = [
        (
            r["case"],
            r["metric"],
            r["threads"],
            figure(r, "ours"),
            r["peer"],
            figure(r, "peer_value"),
            f"{r['ratio']:.2f}",
            f"{r['interval'][0]:.2f}-{r['interval'][1]:.2f}",
            "" if r["limit"] is None else f"{r['limit']:.2f}",
            r["verdict"],
        )
        for r in rows
    ]
    table("ratio above 1: opforge is better", head, body)
    if means := geometric_means(rows):
        table("geometric means over whole models", ("threads", "peer", "cases", "ratio", "asked"), means)
    if scales := second_thread(rows):
        table("one thread's time by two threads'", ("case", "opforge", "onnxruntime", "asked"), scales)


if __name__ == "__main__":
    sys.exit(main())
