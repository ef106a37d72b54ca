"""Runs all cases on one instruction set and prints a JSON object: case -> digest of the output's bytes.

Started in a process of its own, because OPFORGE_ISA is read once. Fails when a case is wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tests.unit.kernels import cases_halves, cases_images, cases_plain, cases_products, cases_standard
from tests.unit.kernels.cases_products import Case
from tests.unit.kernels.graphs import close

Family = Callable[[np.random.Generator], Iterator[Case]]
FAMILIES: tuple[Family, ...] = (
    *cases_products.FAMILIES,
    *cases_images.FAMILIES,
    *cases_standard.FAMILIES,
    *cases_halves.FAMILIES,
    *cases_plain.FAMILIES,
)


def run_family(family: Family, threads: Sequence[int] = (1,)) -> dict[str, str]:
    """Digests of a family's outputs; AssertionError names the case that is wrong or depends on threads."""
    digests = {}
    for name, net, out, reference, tolerance in family(np.random.default_rng(7)):
        results = net.run(out, threads)
        try:
            close(results[0], reference, tolerance)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
        for count, result in zip(threads, results, strict=True):
            assert result.tobytes() == results[0].tobytes(), f"{name}: {count} threads change bits"
        digests[name] = hashlib.sha256(results[0].tobytes()).hexdigest()[:16]
    return digests


if __name__ == "__main__":
    found: dict[str, str] = {}
    for each in FAMILIES:
        found |= run_family(each)
    print(json.dumps(found))
