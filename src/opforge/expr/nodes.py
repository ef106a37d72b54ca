"""Expression nodes: immutable, hash-consed, typed.

Equal expressions are one object, so sharing of common subexpressions costs nothing and ``is`` compares.
Row reductions later become ops whose ``params`` hold their axes; nothing else here changes for them.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from weakref import WeakValueDictionary

from opforge.expr._generated.opcodes import OPCODES

__all__ = [
    "LEAVES",
    "Node",
    "ValueType",
    "attribute",
    "constant",
    "input_",
    "op",
    "postorder",
    "rebuild",
    "result_type",
    "substitute",
]

LEAVES = frozenset({"input", "attribute", "constant"})
"""Ops without operands; params hold the index of an input or attribute, or the value of a constant."""


_SHOWN_DEPTH = 12


class ValueType(enum.IntEnum):
    """Type of a value; the numbers are those of the bytecode."""

    T = 0
    """the call's compute type: f32 for f16, bf16 and f32; f64 for f64"""
    BOOL = 1
    I32 = 2
    I64 = 3
    F32 = 4
    F64 = 5
    U8 = 6
    I8 = 7

    @property
    def is_float(self) -> bool:
        """Whether arithmetic is defined on the type."""
        return self in (ValueType.T, ValueType.F32, ValueType.F64)

    @property
    def text(self) -> str:
        """``T`` or the dtype's name."""
        return "T" if self is ValueType.T else self.name.lower()

    @classmethod
    def parse(cls, name: str) -> ValueType:
        """Type of a name (``T``, ``f32``, ``i64``, ``bool`` ...)."""
        return cls[name.upper()]


class Node:
    """One expression. Made by `op`, `constant`, `input_`, `attribute`, never by the class itself.

    Attributes:
        op: name of the instruction (see opcodes.def) or of a leaf.
        args: operands.
        params: what is not an expression: index of a leaf, value of a constant, later the axes of a reduction.
        type: type of the value.
    """

    __slots__ = ("__weakref__", "args", "op", "params", "type")

    op: str
    args: tuple[Node, ...]
    params: tuple[float, ...]
    type: ValueType

    @property
    def value(self) -> float:
        """Value of a constant (float64; 0.0 and 1.0 for booleans)."""
        return self.params[0]

    @property
    def index(self) -> int:
        """Index of an input or attribute."""
        return int(self.params[0])

    @property
    def is_constant(self) -> bool:
        """Whether the node is a constant."""
        return self.op == "constant"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles and copies by parts, so that a copy is the same object."""
        return (_make, (self.op, self.args, self.params, self.type))

    def __repr__(self) -> str:
        """A readable formula, for errors and debugging."""
        return self._text(_SHOWN_DEPTH)

    def _text(self, depth: int) -> str:
        if self.op == "constant":
            return f"{self.value!r}"
        if self.op in LEAVES:
            return f"{self.op}{self.index}"
        suffix = f":{self.type.text}" if self.op == "cast" else ""
        # Shared subexpressions would make the whole text exponentially long.
        return f"{self.op}{suffix}({', '.join(a._text(depth - 1) for a in self.args) if depth else '...'})"


_nodes: WeakValueDictionary[tuple[object, ...], Node] = WeakValueDictionary()


def _make(name: str, args: tuple[Node, ...], params: tuple[float, ...], type_: ValueType) -> Node:
    # Numbers are keyed by their bits: 0.0 and -0.0 differ, a NaN equals itself.
    bits = tuple(struct.pack("<d", p) for p in params)
    key = (name, tuple(id(a) for a in args), bits, type_)
    node = _nodes.get(key)
    if node is None:
        node = Node()
        node.op, node.args, node.params, node.type = name, args, params, type_
        # Another thread may have made the same node meanwhile; its node wins, so that `is` keeps comparing.
        node = _nodes.setdefault(key, node)
    return node


def constant(value: float, type: ValueType = ValueType.T) -> Node:
    """A constant; kept in float64 and rounded once to its type when the program is linked."""
    return _make("constant", (), (float(value),), type)


def input_(index: int, type: ValueType = ValueType.T) -> Node:
    """The index-th tensor input."""
    return _make("input", (), (float(index),), type)


def attribute(index: int, type: ValueType = ValueType.T) -> Node:
    """The index-th scalar attribute."""
    return _make("attribute", (), (float(index),), type)


def op(name: str, *args: Node, type: ValueType | None = None) -> Node:
    """An instruction applied to operands; the result's type follows from the op, except for casts."""
    return _make(name, args, (), result_type(name, args) if type is None else type)


def result_type(name: str, args: tuple[Node, ...]) -> ValueType:
    """Type of an instruction's result; raises ValueError where the operands do not fit."""
    opcode = OPCODES[name]
    if len(args) != opcode.arity:
        raise ValueError(f"{name} takes {opcode.arity} operands, got {len(args)}")
    types = tuple(a.type for a in args)
    if opcode.kind == "SELECT":
        if types[0] is not ValueType.BOOL or types[1] is not types[2]:
            raise ValueError(f"{name} needs (bool, t, t), got ({', '.join(t.text for t in types)})")
        return types[1]
    if opcode.kind == "LOGIC":
        if any(t is not ValueType.BOOL for t in types):
            raise ValueError(f"{name} needs booleans, got ({', '.join(t.text for t in types)})")
        return ValueType.BOOL
    if opcode.kind == "CAST":
        if name == "cast":
            raise ValueError("cast needs its result type")
        return types[0]
    if len(set(types)) > 1 or (opcode.kind != "COMPARE" and not types[0].is_float):
        raise ValueError(f"{name} needs operands of one floating type, got ({', '.join(t.text for t in types)})")
    return ValueType.BOOL if opcode.kind == "COMPARE" else types[0]


def postorder(roots: Iterable[Node]) -> Iterator[Node]:
    """Every node below the roots once, operands before their users, in a fixed order."""
    seen: set[int] = set()
    for root in roots:
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                yield node
            elif id(node) not in seen:
                seen.add(id(node))
                stack.append((node, True))
                stack.extend((a, False) for a in reversed(node.args) if id(a) not in seen)


def rebuild(roots: Iterable[Node], visit: Callable[[Node, Node], Node]) -> list[Node]:
    """Rebuilds expressions bottom-up: visit gets each node as it was and with its operands rebuilt."""
    roots = list(roots)
    done: dict[int, Node] = {}
    for node in postorder(roots):
        args = tuple(done[id(a)] for a in node.args)
        same = all(a is b for a, b in zip(args, node.args, strict=True))
        done[id(node)] = visit(node, node if same else _make(node.op, args, node.params, node.type))
    return [done[id(root)] for root in roots]


def substitute(roots: Iterable[Node], replaced: Mapping[Node, Node]) -> list[Node]:
    """Replaces nodes by others; the outermost that is named wins, and replacements stay as they are."""
    return rebuild(roots, lambda old, new: replaced.get(old, new))
