"""Run random programs on random tensors and print a digest of each result: python run_programs.py SEEDS STORAGES.

The instruction set is chosen once per process (OPFORGE_ISA), so the tests start this file for each.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator

import numpy as np

from opforge.build import interpreter
from tests.unit.bytecode.programs import Kernels, T, interpreted, random_array, random_program

SHAPES = [(), (1,), (7,), (64,), (65,), (1000,), (3, 5), (40, 33), (3, 4, 70), (2, 3, 4, 5), (0,), (3, 0), (5000,)]


def cases(kernels: Kernels, seed: int, storage: str) -> Iterator[list[np.ndarray]]:
    """Inputs of every shape, some broadcast, transposed, sliced or reversed."""
    rng = np.random.default_rng(seed)
    for base in SHAPES:
        inputs = []
        for k, type_ in enumerate(kernels.program.inputs):
            shape = base
            if k:
                shape = base[rng.integers(0, len(base) + 1) :] if rng.random() < 0.4 else base
                shape = tuple(1 if rng.random() < 0.25 else d for d in shape)
            if shape and rng.random() < 0.25:
                x = random_array(rng, type_, storage, (*shape[:-1], 2 * shape[-1]))[..., ::2]
            else:
                x = random_array(rng, type_, storage, shape)
            inputs.append(np.asfortranarray(x) if x.ndim > 1 and rng.random() < 0.3 else x)
        yield inputs


def digest(arrays: list[np.ndarray]) -> str:
    total = hashlib.sha256()
    for a in arrays:
        if a.dtype.kind not in "biu":
            a = np.where(np.isnan(a), np.array(np.nan, a.dtype), a)
        total.update(np.ascontiguousarray(a).tobytes())
    return total.hexdigest()[:16]


def digests(kernels: Kernels, seed: int, storage: str) -> list[str]:
    attributes = [0.75 if t is T else 3 for t in kernels.program.attributes]
    return [digest(kernels(storage, inputs, attributes)) for inputs in cases(kernels, seed, storage)]


if __name__ == "__main__":
    interpreter.runtime()
    first, last = map(int, sys.argv[1].split(":"))
    for program_seed in range(first, last):
        program = interpreted(random_program(program_seed))
        for name in sys.argv[2].split(","):
            print(program_seed, name, *digests(program, program_seed, name))
