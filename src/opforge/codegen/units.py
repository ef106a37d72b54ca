"""What emitters produce: translation units, and the names that they agree on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opforge.errors import SchemaError
from opforge.schema.dtypes import DType
from opforge.schema.operator import Operator

__all__ = [
    "SIGNATURE",
    "Unit",
    "cpp_include",
    "cpp_name",
    "cpp_string",
    "cpp_type",
    "dtype_choices",
    "kernel_namespace",
    "kernel_symbol",
]

SIGNATURE = (
    "opforge_context* context, const opforge_arguments* in, const opforge_arguments* out,\n"
    "    const opforge_attribute* attributes"
)
"""Parameters of opforge_kernel_fn."""

# Names that C++ has a meaning for, as have generated units for the last ones.
_TAKEN = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const "
    "const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern "
    "false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or "
    "or_eq private protected public register reinterpret_cast return short signed sizeof static static_assert "
    "static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using "
    "virtual void volatile wchar_t while xor xor_eq linux unix opforge std vm".split()
)

_CPP_TYPES = {
    "cpu": {"f16": "opforge::f16", "bf16": "opforge::bf16"},
    "cuda": {"f16": "__half", "bf16": "__nv_bfloat16"},
}


@dataclass(frozen=True)
class Unit:
    """One translation unit.

    Attributes:
        name: file name.
        text: C++ source.
        flags: flags besides those of the library.
        hint: what the author should do where the compiler refuses a generated line.
        places: ``file:line`` that generated lines are attributed to.
    """

    name: str
    text: str
    flags: tuple[str, ...] = ()
    hint: str | None = None
    places: tuple[str, ...] = ()


def cpp_type(dtype: DType, device: str = "cpu") -> str:
    """Return the C++ type of an element in the kernels of a device."""
    return _CPP_TYPES[device].get(dtype.name, dtype.cpp)


def cpp_name(name: str) -> str:
    """Return a name that C++ takes: with an underscore where it is taken, or may be a macro (NULL, EOF)."""
    return f"{name}_" if name in _TAKEN or name.isupper() else name


def cpp_string(text: str) -> str:
    """Return a C++ string literal."""
    octal = "".join(
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode("utf-8")
    )  # octal escapes end after three digits, hexadecimal ones do not
    return f'"{octal}"'


def cpp_include(path: Path) -> str:
    """Return the directive that includes a file. A header's name has no escapes, so its bytes stand there as they are.

    Raises:
        SchemaError: the path has a character that no such directive can hold.
    """
    text = str(path)
    if '"' in text or "\n" in text:
        raise SchemaError(
            "a kernel's source lies at a path that C++ cannot include",
            where=text,
            expected="a path without quotation marks and line breaks",
            hint="rename the folder",
        )
    return f'#include "{text}"'


def dtype_choices(operator: Operator) -> Iterator[tuple[DType, ...]]:
    """Give every choice of dtypes, one per type variable in the order of first appearance."""
    yield from itertools.product(*operator.types.values())


def kernel_namespace(operator: Operator) -> str:
    """Return the C++ namespace of the operator's kernels."""
    return f"opforge_kernels::{cpp_name(operator.host_namespace)}"


def kernel_symbol(operator: Operator, dtypes: tuple[DType, ...], device: str = "cpu") -> str:
    """Return the name of one kernel within its namespace, e.g. ``custom_gelu_v1_f32``, and with ``_cuda`` there."""
    ending = () if device == "cpu" else (device,)
    return "_".join([f"{operator.host_name}_v{operator.since_version}", *(d.name for d in dtypes), *ending])
