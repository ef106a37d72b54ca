"""A traced formula: what the author wrote, and everything that is derived from it, made on first use."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from opforge.errors import ArgumentError
from opforge.expr import derivatives, reference, simplify
from opforge.expr.lower import lower
from opforge.expr.nodes import Node, ValueType
from opforge.expr.program import Program

__all__ = ["Formula", "FormulaAttribute", "FormulaOutput", "SourceLocation"]


@dataclass(frozen=True)
class SourceLocation:
    """Where the author wrote it."""

    file: str
    line: int

    def __str__(self) -> str:
        """``file:line``, as editors read it."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class FormulaAttribute:
    """A scalar attribute.

    Attributes:
        name: its name.
        kind: "float", "int" or "bool"; in the program all of them are numbers of type T.
        default: value when the caller gives none, or None.
    """

    name: str
    kind: str
    default: float | None = None


@dataclass(frozen=True)
class FormulaOutput:
    """A result.

    Attributes:
        name: its name.
        node: the expression.
        sum_to: index of the input whose shape it is summed to, or None for the broadcast shape.
    """

    name: str
    node: Node
    sum_to: int | None = None

    @property
    def type(self) -> ValueType:
        """Type of its elements."""
        return self.node.type


class Formula:
    """An elementwise function of tensors that are broadcast together, and of scalar attributes."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[str],
        attributes: Sequence[FormulaAttribute],
        outputs: Sequence[FormulaOutput],
        source: SourceLocation | None = None,
    ) -> None:
        """Keep the parts; the outputs hold the expressions as written."""
        self.name = name
        self.inputs = tuple(inputs)
        self.attributes = tuple(attributes)
        self.outputs = tuple(outputs)
        self.source = source
        self._programs: dict[tuple[int, ...], Program] = {}
        self._blobs: dict[tuple[int, ...], bytes] = {}

    def __repr__(self) -> str:
        """Name and parts."""
        attributes = "; " + ", ".join(a.name for a in self.attributes) if self.attributes else ""
        results = ", ".join(f"{o.name} = {o.node!r}" for o in self.outputs)
        return f"<Formula {self.name}({', '.join(self.inputs)}{attributes}): {results}>"

    @cached_property
    def canonical(self) -> str:
        """A text that is equal exactly when the meaning is: names of the interface and the expression as written."""
        attributes = ", ".join(f"{a.name}: {a.kind}" for a in self.attributes)
        results = [(o.node, o.sum_to) for o in self.outputs]
        program = lower(results, self.input_types, self.attribute_types)
        names = f"({', '.join(self.inputs)}; {attributes}) -> ({', '.join(o.name for o in self.outputs)})"
        return f"{names}\n{program.text()}"

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical text."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    @property
    def input_types(self) -> tuple[ValueType, ...]:
        """All inputs of a formula share the type T."""
        return (ValueType.T,) * len(self.inputs)

    @property
    def attribute_types(self) -> tuple[ValueType, ...]:
        """Attributes are weak numbers."""
        return (ValueType.T,) * len(self.attributes)

    @cached_property
    def simplified(self) -> tuple[Node, ...]:
        """The outputs' expressions in their stable form, from which derivatives are taken."""
        return tuple(simplify.simplify([o.node for o in self.outputs]))

    def program(self, outputs: Sequence[int] | None = None) -> Program:
        """The program of the wanted outputs (all when None): simplified, products fused into the sums they feed."""
        wanted = self._wanted(outputs)
        if wanted not in self._programs:
            nodes = simplify.finish([self.simplified[k] for k in wanted])
            results = [(node, self.outputs[k].sum_to) for node, k in zip(nodes, wanted, strict=True)]
            self._programs[wanted] = lower(results, self.input_types, self.attribute_types)
        return self._programs[wanted]

    def blob(self, outputs: Sequence[int] | None = None) -> bytes:
        """The bytes of `program`."""
        wanted = self._wanted(outputs)
        if wanted not in self._blobs:
            self._blobs[wanted] = self.program(wanted).encode()
        return self._blobs[wanted]

    def _wanted(self, outputs: Sequence[int] | None) -> tuple[int, ...]:
        wanted = tuple(range(len(self.outputs))) if outputs is None else tuple(outputs)
        if not wanted or any(not 0 <= k < len(self.outputs) for k in wanted):
            raise ArgumentError(
                "no such outputs", where=self.name, expected=f"indices below {len(self.outputs)}", got=list(wanted)
            )
        return wanted

    def gradient(self) -> Formula:
        """The formula of ``<Name>Grad``: gradients of the outputs and the inputs give the inputs' gradients."""
        if self._gradient is None:
            self._gradient = self._derive()
        return self._gradient

    _gradient: Formula | None = None

    def _derive(self) -> Formula:
        floats = [k for k, o in enumerate(self.outputs) if o.type is ValueType.T]
        n = len(self.outputs)
        taken = {*self.inputs, *(a.name for a in self.attributes)}
        gradients = [_fresh(f"grad_{o.name}", taken) for o in self.outputs]
        results = derivatives.differentiate(
            [(k, self.simplified[k]) for k in floats], n_inputs=len(self.inputs), shift=n
        )
        names = [_fresh(f"grad_{name}", taken) for name in self.inputs]
        return Formula(
            f"{self.name}Grad",
            (*gradients, *self.inputs),
            self.attributes,
            [FormulaOutput(name, node, n + k) for k, (name, node) in enumerate(zip(names, results, strict=True))],
        )

    def reference(self, *arrays: Any, **attributes: float) -> Any:  # noqa: ANN401 - an array or a tuple of them
        """The outputs in float64 with NumPy, of the expressions as the author wrote them.

        Where those overflow on the way (log(1 + exp(1000)) gives infinity), the stable form's value stands.
        """
        values = [attributes.get(a.name, a.default) for a in self.attributes]
        # A float attribute is a float32 value on every host.
        given = [
            float(np.float32(v)) if a.kind == "float" else float(v)
            for a, v in zip(self.attributes, values, strict=True)
            if v is not None
        ]
        if len(given) != len(values) or len(arrays) != len(self.inputs) or len(attributes) > len(values):
            raise ArgumentError(
                "a reference takes every input and attribute",
                where=self.name,
                expected=f"{', '.join(self.inputs)}; {', '.join(a.name for a in self.attributes) or 'no attributes'}",
                got=f"{len(arrays)} inputs; {', '.join(attributes) or 'no attributes'}",
            )
        written = reference.evaluate([(o.node, o.sum_to) for o in self.outputs], arrays, given)
        stable = reference.evaluate(
            [(n, o.sum_to) for n, o in zip(self.simplified, self.outputs, strict=True)], arrays, given
        )
        results = [reference.finite_of(w, s) for w, s in zip(written, stable, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)


def _fresh(name: str, taken: set[str]) -> str:
    """The name, or one with a number where it is taken; takes it."""
    unique, k = name, 2
    while unique in taken:
        unique, k = f"{name}_{k}", k + 1
    taken.add(unique)
    return unique
