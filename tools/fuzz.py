"""Build the libFuzzer targets with clang and sanitizers, then run each for some seconds on seeds of our own making."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"


def main() -> int:
    """Run; 0 when no input made a target crash, hang or err."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="run time of each target")
    options = parser.parse_args()
    clang = next((c for c in (shutil.which("clang++"), shutil.which("clang++-14")) if c), None)
    if clang is None:
        print("make fuzz needs clang with libFuzzer (Debian: clang-14 libclang-rt-14-dev libfuzzer-14-dev)")
        return 2
    scripts = Path(sys.executable).parent
    configure = [
        scripts / "cmake",
        "-S",
        ROOT,
        "-B",
        BUILD,
        "-G",
        "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={scripts / 'ninja'}",
        f"-DCMAKE_CXX_COMPILER={clang}",
        f"-DCMAKE_C_COMPILER={clang.replace('clang++', 'clang')}",
        "-DOPFORGE_FUZZ=ON",
        "-DOPFORGE_PYTHON=OFF",
        "-DOPFORGE_ADAPTERS=OFF",
        "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        "-DOPFORGE_ISAS=baseline",
        "-DOPFORGE_SANITIZE=fuzzer-no-link,address,undefined",
    ]
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "configure.log").open("w") as log:
        if subprocess.run(configure, stdout=log, stderr=log, check=False).returncode:
            print((BUILD / "configure.log").read_text())
            return 2
    names = sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("*_fuzz.cpp"))
    subprocess.run([scripts / "cmake", "--build", BUILD, "-j", "2", "--target", *names], check=True)
    seeds = BUILD / "seeds"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    subprocess.run([sys.executable, "-m", "tests.fuzz.seeds", seeds], check=True, env=environment, cwd=ROOT)
    failed = 0
    for target in sorted(path for name in names for path in BUILD.rglob(name) if path.is_file()):
        corpus, artifacts = BUILD / "corpus" / target.name, BUILD / "artifacts" / target.name
        corpus.mkdir(parents=True, exist_ok=True)
        artifacts.mkdir(parents=True, exist_ok=True)
        command = [
            target,
            corpus,
            seeds,
            f"-max_total_time={options.seconds}",
            "-timeout=10",
            "-rss_limit_mb=4096",
            "-max_len=65536",
            f"-artifact_prefix={artifacts}/",
            "-print_final_stats=1",
            "-verbosity=1",
        ]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        figures = [
            line for line in done.stderr.splitlines() if "stat::number_of_executed_units" in line or "cov:" in line
        ][-2:]
        print(f"{target.name}: {'ok' if done.returncode == 0 else 'FAILED'}; " + "; ".join(f.strip() for f in figures))
        if done.returncode:
            print(done.stderr[-6000:])
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
