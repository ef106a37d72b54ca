"""Build the libFuzzer targets with clang and sanitizers, then run all at once for some seconds.

Seeds are files of our own making (tests/fuzz/seeds.py) and the small models of the corpus (tools/corpus.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corpus import ROOT, listed
from sanitized import build

BUILD = ROOT / "build" / "fuzz"
LARGEST = 1 << 16
"""Bytes of an input."""


def main() -> int:
    """Run; 0 when no input made a target crash, hang or err."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="run time of each target")
    options = parser.parse_args()
    names = sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("*_fuzz.cpp"))
    build(BUILD, "fuzzer-no-link,address,undefined", names)
    seeds = BUILD / "seeds"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    subprocess.run([sys.executable, "-m", "tests.fuzz.seeds", seeds], check=True, env=environment, cwd=ROOT)
    gather_models(seeds)
    targets = sorted(path for name in names for path in BUILD.rglob(name) if path.is_file())
    with ThreadPoolExecutor(len(targets)) as pool:
        return 1 if any(list(pool.map(lambda target: fuzz(target, seeds, options.seconds), targets))) else 0


def gather_models(seeds: Path) -> None:
    """Copy the small models of the corpus, so that every kind of node that the compiler makes is among the seeds."""
    for number, line in enumerate(listed(full=False).read_text().splitlines()):
        model = Path(line.split("\t")[1])
        if model.stat().st_size <= LARGEST:
            shutil.copyfile(model, seeds / f"corpus-{number:04d}.bin")


def fuzz(target: Path, seeds: Path, seconds: int) -> int:
    """Run one target; 1 when an input made it crash, hang or err."""
    corpus, artifacts = BUILD / "corpus" / target.name, BUILD / "artifacts" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    artifacts.mkdir(parents=True, exist_ok=True)
    options = [
        *(f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=4096", f"-max_len={LARGEST}"),
        *(f"-artifact_prefix={artifacts}/", "-print_final_stats=1", "-verbosity=1"),
    ]
    done = subprocess.run(
        [target, corpus, seeds, *options], capture_output=True, text=True, errors="replace", check=False
    )
    lines = [row for row in done.stderr.splitlines() if "stat::number_of_executed_units" in row or "cov:" in row]
    print(f"{target.name}: {'ok' if done.returncode == 0 else 'FAILED'}; " + "; ".join(f.strip() for f in lines[-2:]))
    if done.returncode:
        print(done.stderr[-6000:])
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
