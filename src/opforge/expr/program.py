"""The linear form of an elementwise program: what the code generator, the interpreter and the bin execute.

Every rounding is fixed here: an instruction is one operation with one result (see docs/design/bytecode.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from opforge.expr.nodes import ValueType

__all__ = ["Constant", "Instruction", "Output", "Program"]


@dataclass(frozen=True)
class Constant:
    """A float64 value that is rounded once to its type when the program is linked."""

    value: float
    type: ValueType


@dataclass(frozen=True)
class Instruction:
    """One operation; ``args`` are value numbers, ``type`` is the type of the result."""

    op: str
    args: tuple[int, ...]
    type: ValueType


@dataclass(frozen=True)
class Output:
    """A result: the value's number, and the input whose shape it is summed to (None = broadcast shape)."""

    value: int
    sum_to: int | None
    type: ValueType


@dataclass(frozen=True)
class Program:
    """Typed SSA. Values are numbered: inputs, attributes, constants, then one per instruction.

    Attributes:
        inputs: types of the tensor inputs, which are broadcast together.
        attributes: types of the scalar attributes.
        constants: constants.
        instructions: operations; operands have smaller numbers than the result.
        outputs: results.
    """

    inputs: tuple[ValueType, ...]
    attributes: tuple[ValueType, ...]
    constants: tuple[Constant, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[Output, ...]

    @property
    def first_attribute(self) -> int:
        """Number of the first attribute's value."""
        return len(self.inputs)

    @property
    def first_constant(self) -> int:
        """Number of the first constant's value."""
        return len(self.inputs) + len(self.attributes)

    @property
    def first_instruction(self) -> int:
        """Number of the first instruction's value."""
        return self.first_constant + len(self.constants)

    @property
    def n_values(self) -> int:
        """Count of all values."""
        return self.first_instruction + len(self.instructions)

    def value_types(self) -> list[ValueType]:
        """Type of every value, by number."""
        constants = [c.type for c in self.constants]
        return [*self.inputs, *self.attributes, *constants, *(i.type for i in self.instructions)]

    def encode(self) -> bytes:
        """The blob of docs/design/bytecode.md."""
        from opforge.expr import blob

        return blob.encode(self)

    @staticmethod
    def decode(data: bytes | bytearray | memoryview) -> Program:
        """The program of a blob; raises CorruptFileError on any damage."""
        from opforge.expr import blob

        return blob.decode(data)

    def text(self) -> str:
        """A listing for people."""
        from opforge.expr import blob

        return blob.disassemble(self)
