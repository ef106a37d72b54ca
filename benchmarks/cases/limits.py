"""Against the machine: a product and the peak of multiply-adds, a pass and a copy, the smallest run."""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from pathlib import Path

from benchmarks._case import OURS, Case, Prepared
from benchmarks.cases import _models

_ROOT = Path(__file__).resolve().parents[2]
_SOURCE = Path(__file__).with_name("_measure.cpp")


def _program() -> Path:
    """Compile the measuring program against the runtime, once per change of either."""
    from opforge import _paths
    from opforge.build.toolchain import find_compiler

    library = _paths.runtime_library()
    path = _models.OUT / "measure"
    if not path.exists() or path.stat().st_mtime < max(_SOURCE.stat().st_mtime, library.stat().st_mtime):
        _models.OUT.mkdir(parents=True, exist_ok=True)
        compiler = find_compiler()
        subprocess.run(
            [
                *compiler.command,
                *("-O3", "-std=c++17", "-ffp-contract=fast", *(("-march=native",) if compiler.native else ())),
                f"-I{_paths.include_dir()}",
                str(_SOURCE),
                *("-o", str(path), str(library), f"-Wl,-rpath,{library.parent}"),
            ],
            check=True,
        )
    return path


def _measure(name: str, shape: tuple[int, ...], threads: int, yardstick: str = "none", amount: int = 0) -> list[float]:
    arguments = [str(_models.bin_path(name)), str(threads), yardstick, str(amount), *map(str, shape)]
    environment = {**os.environ, "OPFORGE_NUM_THREADS": str(threads)}
    done = subprocess.run([str(_program()), *arguments], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return [float(word) for word in done.stdout.split()]


def _against(name: str, shape: tuple[int, ...], yardstick: str, amount: int, peer: str, threads: int) -> Prepared:
    ours, theirs, _ = _measure(name, shape, threads, yardstick, amount)
    return Prepared(values={OURS: ours, peer: theirs})


def _smallest(threads: int) -> Prepared:
    """A model of one addition of one number, from C++ and from Python, against what the time may be."""
    import numpy as np

    import opforge as of

    session = of.Session(_models.bin_path("smallest"), threads=threads)
    inputs = {"x": np.array([2.0], np.float32)}
    assert session.run(inputs)["y"][0] == 3.0
    times = []
    for _ in range(51):
        started = time.perf_counter()
        for _ in range(1000):
            session.run(inputs)
        times.append((time.perf_counter() - started) / 1000)
    return Prepared(values={OURS: sorted(times)[25], "3.5 us": 3.5e-6})


def _smallest_native(threads: int) -> Prepared:
    return Prepared(values={OURS: _measure("smallest", (1,), threads)[0], "1.5 us": 1.5e-6})


def _emulated(threads: int) -> Prepared:
    """CUDA's CustomGELU on a million threads of the emulator, against what a test may take."""
    import numpy as np

    from opforge.build import abi, load_library
    from opforge.cuda import emulate_operators
    from opforge.frameworks import numpy_host
    from opforge.ops import custom_gelu

    library = load_library(emulate_operators([custom_gelu]).path)
    x = np.linspace(-4, 4, (1 << 20) + 1, dtype=np.float32)[1:]  # not aligned to 16 bytes: one element a thread
    times = []
    for _ in range(5):
        started = time.perf_counter()
        numpy_host.call(custom_gelu, [x], {}, library=library, device=abi.DEVICE_CUDA)
        times.append(time.perf_counter() - started)
    return Prepared(values={OURS: sorted(times)[2], "0.5 s": 0.5})


M, K, N = 512, 768, 768
PASS = 1 << 25  # floats, 128 MB: several times the last cache
CASES = [
    Case(
        f"matmul {M}x{K}x{N}",
        partial(_against, "matmul", (M, K), "flops", 2 * M * K * N, "peak of multiply-adds"),
        {"peak of multiply-adds": 0.85},
    ),
    Case("elementwise pass, 128 MB", partial(_against, "pass", (PASS,), "copy", 4 * PASS, "memcpy"), {"memcpy": 0.8}),
    Case("smallest run, C++", _smallest_native, {"1.5 us": 1.0}),
    Case("smallest run, Python", _smallest, {"3.5 us": 1.0}),
    Case("a million emulated CUDA threads", _emulated, {"0.5 s": 1.0}),
]
