"""Random configurations of recurrent nodes, and their models; as a program it prints the digest of each result."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import opforge as of
from tests.unit.recurrent import reference

NAMES = {
    "LSTM": ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"],
    "GRU": ["X", "W", "R", "B", "sequence_lens", "initial_h"],
    "RNN": ["X", "W", "R", "B", "sequence_lens", "initial_h"],
}
ELEMENTS = {np.dtype(np.float32): 1, np.dtype(np.float64): 11, np.dtype(np.float16): 10}


@dataclass
class Case:
    """One node: its inputs by name (None = absent), which of them are constants, which outputs it has."""

    kind: str
    inputs: dict[str, np.ndarray | None]
    attributes: dict[str, Any]
    constant: bool = True
    outputs: list[int] = field(default_factory=lambda: [0, 1, 2])

    def __str__(self) -> str:
        shapes = {k: v.shape for k, v in self.inputs.items() if v is not None}
        return f"{self.kind} {shapes} {self.attributes} constant={self.constant} outputs={self.outputs}"

    def model(self) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """The model, and what to feed it."""
        weights = ("W", "R", "B", "P") if self.constant else ()
        names = [n if self.inputs.get(n) is not None else "" for n in NAMES[self.kind]]
        given = {n: a for n in names if n and (a := self.inputs[n]) is not None}
        count = 3 if self.kind == "LSTM" else 2
        outputs = [f"Y{k}" if k in self.outputs else "" for k in range(count)]
        element = ELEMENTS[given["X"].dtype]
        node = helper.make_node(self.kind, names, outputs, hidden_size=given["R"].shape[-1], **self.attributes)
        graph = helper.make_graph(
            [node],
            "g",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a in given.items()
                if n not in weights
            ],
            [helper.make_tensor_value_info(o, element, None) for o in outputs if o],
            [onnx.numpy_helper.from_array(a, n) for n, a in given.items() if n in weights],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
        return model, {n: a for n, a in given.items() if n not in weights}

    def run(self, threads: tuple[int, ...] = (1,)) -> list[list[np.ndarray]]:
        """The results with each number of threads."""
        model, feeds = self.model()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.bin"
            of.compile(model, path)
            return [list(of.Session(path, threads=n).run(feeds).values()) for n in threads]

    def expected(self) -> list[np.ndarray]:
        """What float64 gives."""
        results = reference.run(self.kind, self.inputs, self.attributes)
        return [r for k, r in enumerate(results) if k in self.outputs]


def make(
    rng: np.random.Generator,
    kind: str,
    steps: int,
    batch: int,
    size: int,
    hidden: int,
    *,
    present: str = "BLHCP",
    dtype: type = np.float32,
    constant: bool = True,
    outputs: tuple[int, ...] = (0, 1, 2),
    **attributes: Any,
) -> Case:
    """A case; ``present`` names the optional inputs: B, L (lengths), H, C (states), P (peepholes)."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = reference.GATES[kind]
    swap = attributes.get("layout", 0)

    def normal(*shape: int) -> np.ndarray:
        scale = min(0.5, 2 / np.sqrt(max(shape[-1], 1)))  # wide products stay where errors do not grow by themselves
        return (rng.standard_normal(shape) * scale).astype(dtype)

    state = (batch, directions, hidden) if swap else (directions, batch, hidden)
    inputs: dict[str, np.ndarray | None] = {
        "X": normal(batch, steps, size) if swap else normal(steps, batch, size),
        "W": normal(directions, gates * hidden, size),
        "R": normal(directions, gates * hidden, hidden),
        "B": normal(directions, 2 * gates * hidden) if "B" in present else None,
        "sequence_lens": rng.integers(0, steps + 1, batch).astype(np.int32) if "L" in present else None,
        "initial_h": normal(*state) if "H" in present else None,
        "initial_c": normal(*state) if "C" in present else None,
        "P": normal(directions, 3 * hidden) if "P" in present else None,
    }
    return Case(kind, inputs, attributes, constant, [k for k in outputs if k < (3 if kind == "LSTM" else 2)])


def cases() -> Iterator[Case]:
    """Directions, layouts, optional inputs and outputs, widths around whole blocks, every function of the list."""
    rng = np.random.default_rng(11)
    functions = list(reference.FUNCTIONS)
    sizes = [(4, 3, 5, 7), (5, 1, 8, 16), (3, 2, 16, 33), (1, 1, 3, 48), (6, 9, 4, 20)]
    k = 0
    for kind in ("LSTM", "GRU", "RNN"):
        for direction in ("forward", "reverse", "bidirectional"):
            for layout in (0, 1):
                steps, batch, size, hidden = sizes[k % len(sizes)]
                special: dict[str, Any] = {"direction": direction, "layout": layout}
                if kind == "GRU":
                    special["linear_before_reset"] = k % 2
                if kind == "LSTM" and k % 3 == 1:
                    special["input_forget"] = 1
                if k % 4 == 3:
                    special["clip"] = 0.3
                present = ("BLHCP", "B", "", "BLH", "HCP")[k % 5]
                constant = k % 3 != 2
                outputs = ((0, 1, 2), (0,), (1,), (2, 1), (0, 2))[k % 5] if kind == "LSTM" else ((0, 1), (1,))[k % 2]
                yield make(
                    rng,
                    kind,
                    steps,
                    batch,
                    size,
                    hidden,
                    present=present,
                    constant=constant,
                    outputs=outputs,
                    **special,
                )
                k += 1
    for k, name in enumerate(functions):
        kind = ("LSTM", "GRU", "RNN")[k % 3]
        names = [name] * len(reference.USUAL[kind])
        yield make(rng, kind, 3, 2, 4, 17, activations=names, activation_alpha=[0.3, 0.7], activation_beta=[0.2])
    yield make(rng, "GRU", 3, 2, 4, 18, linear_before_reset=1, activations=["HardSigmoid", "Softsign"], clip=1.0)
    for kind in ("LSTM", "GRU", "RNN"):  # several units of columns, and nothing at all
        yield make(rng, kind, 4, 2, 32, 272, direction="bidirectional")
        yield make(rng, kind, 0, 2, 3, 5, present="BHC")
        yield make(rng, kind, 3, 0, 3, 5, present="B")
        yield make(rng, kind, 3, 3, 5, 6, dtype=np.float64, direction="bidirectional", layout=1)
        yield (
            make(rng, kind, 3, 3, 5, 6, dtype=np.float64, present="B", linear_before_reset=1)
            if kind == "GRU"
            else (make(rng, kind, 3, 3, 5, 6, dtype=np.float64, present="", clip=0.4))
        )


def digests(threads: tuple[int, ...] = (1,)) -> dict[str, str]:
    """Run every case, compare it with float64 and across threads; the digest of its bytes."""
    found = {}
    for k, case in enumerate(cases()):
        results, expected = case.run(threads), case.expected()
        tolerance = 1e-12 if case.inputs["X"].dtype == np.float64 else 4e-6  # type: ignore[union-attr]
        for got, reference_result in zip(results[0], expected, strict=True):
            assert got.shape == reference_result.shape, f"{case}: {got.shape}, expected {reference_result.shape}"
            error = np.abs(got - reference_result).max(initial=0) / max(1, np.abs(reference_result).max(initial=0))
            assert error <= tolerance, f"{case}: error {error:.3g}"
        data = b"".join(r.tobytes() for r in results[0])
        for count, other in zip(threads, results, strict=True):
            assert b"".join(r.tobytes() for r in other) == data, f"{case}: {count} threads change bits"
        found[f"{k} {case}"] = hashlib.sha256(data).hexdigest()[:16]
    return found


if __name__ == "__main__":
    print(json.dumps(digests()))
