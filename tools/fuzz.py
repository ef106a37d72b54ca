"""Build the libFuzzer targets with clang and sanitizers, then run all at once for some seconds.

Seeds are files of our own making (tests/fuzz/seeds.py) and the small models of the corpus (tools/corpus.py).
"""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corpus import ROOT, listed
from sanitized import build

BUILD = ROOT / "build" / "fuzz"
LARGEST = 1 << 16
"""Bytes of an input."""
LONGEST = 120
"""Seconds of an input: a model may be slow on purpose, and machines of CI are shared; longer than this is a hang."""
FRAMES = 60
"""Lines of a finding that are printed."""
PRINTED = 8000
"""Characters of an input that are printed."""


def main() -> int:
    """Run; 0 when no input made a target crash, hang or err."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="run time of each target")
    parser.add_argument("--seed", type=int, default=0, help="of libFuzzer; 0: another one each time")
    options = parser.parse_args()
    names = sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("*_fuzz.cpp"))
    build(BUILD, "fuzzer-no-link,address,undefined", names)
    seeds = BUILD / "seeds"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    subprocess.run([sys.executable, "-m", "tests.fuzz.seeds", seeds], check=True, env=environment, cwd=ROOT)
    gather_models(seeds)
    targets = sorted(path for name in names for path in BUILD.rglob(name) if path.is_file())
    with ThreadPoolExecutor(len(targets)) as pool:
        return (
            1 if any(list(pool.map(lambda target: fuzz(target, seeds, options.seconds, options.seed), targets))) else 0
        )


def gather_models(seeds: Path) -> None:
    """Copy the small models of the corpus, so that every kind of node that the compiler makes is among the seeds."""
    for number, line in enumerate(listed(full=False).read_text().splitlines()):
        model = Path(line.split("\t")[1])
        if model.stat().st_size <= LARGEST:
            shutil.copyfile(model, seeds / f"corpus-{number:04d}.bin")


def fuzz(target: Path, seeds: Path, seconds: int, seed: int) -> int:
    """Run one target; 1 when an input made it crash, hang or err."""
    corpus, artifacts = BUILD / "corpus" / target.name, BUILD / "artifacts" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    artifacts.mkdir(parents=True, exist_ok=True)
    options = [
        f"-seed={seed}",
        *(f"-max_total_time={seconds}", f"-timeout={LONGEST}", "-rss_limit_mb=4096", f"-max_len={LARGEST}"),
        *(f"-artifact_prefix={artifacts}/", "-print_final_stats=1", "-verbosity=1"),
    ]
    done = subprocess.run(
        [target, corpus, seeds, *options], capture_output=True, text=True, errors="replace", check=False
    )
    lines = [row for row in done.stderr.splitlines() if "stat::number_of_executed_units" in row or "cov:" in row]
    print(f"{target.name}: {'ok' if done.returncode == 0 else 'FAILED'}; " + "; ".join(f.strip() for f in lines[-2:]))
    if done.returncode:
        tell(done.stderr, artifacts)
    return 1 if done.returncode else 0


def tell(errors: str, artifacts: Path) -> None:
    """Print what a person far from this machine needs: the finding, its stack, and the input itself."""
    wanted = ("ERROR:", "runtime error:", "SUMMARY:", "READ of", "WRITE of", "located", "allocated by", "freed by")
    rows = [row for row in errors.splitlines() if row.lstrip().startswith("#") or any(w in row for w in wanted)]
    print("\n".join([row for row in rows if "cov:" not in row][:FRAMES]) or errors[-3000:])
    for artifact in sorted(artifacts.iterdir(), key=lambda path: path.stat().st_mtime)[-1:]:
        packed = base64.b64encode(zlib.compress(artifact.read_bytes(), 9)).decode()
        print(f"{artifact.name} (base64 of zlib): {packed if len(packed) < PRINTED else f'{artifact} is too long'}")


if __name__ == "__main__":
    sys.exit(main())
