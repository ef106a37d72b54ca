"""How a call of a formula operator is lowered: to our custom call, or to the formula where no kernel serves a platform.

For the CPU there is always a kernel, and for CUDA where its library is at hand or can be built. Elsewhere the formula
itself becomes the program, in XLA's own operations: computed on the same device, without opforge. Which it is, is found
out when a function is lowered for the platform, so that a process without a GPU never builds for one unless it exports
for it. Kernel operators have no formula; their custom call says, when it runs, what is missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from opforge.build.device import declaring
from opforge.build.plan import plan_library
from opforge.codegen.jax_decomposition import decomposition
from opforge.errors import BuildError, ToolchainError
from opforge.frameworks.jax._entries import ENTRIES, Entry
from opforge.schema import Operator
from opforge.schema.attributes import AttributeValue

__all__ = ["formula_call"]

_CALL: Final = Primitive("opforge_formula")
_CALL.multiple_results = True


def formula_call(
    entry: Entry,
    values: tuple[AttributeValue, ...],
    results: Sequence[jax.ShapeDtypeStruct],
    custom: Callable[..., Sequence[Any]],
    tensors: Sequence[Any],
) -> list[Any]:
    """Call a formula operator.

    Args:
        entry: the operator.
        values: of its attributes, in declared order.
        results: shapes and dtypes of its outputs.
        custom: the custom call as a function of the tensors; what eager calls outside of ``jax.jit`` run.
        tensors: its inputs.
    """
    rows = tuple((tuple(r.shape), r.dtype) for r in results)
    return cast("list[Any]", _CALL.bind(*tensors, entry=entry, values=values, results=rows, custom=custom))


def _compute(*tensors: Any, custom: Callable[..., Sequence[Any]], **_parameters: Any) -> Sequence[Any]:  # noqa: ANN401
    return custom(*tensors)


def _infer(*_tensors: Any, results: Sequence[tuple[Any, Any]], **_parameters: Any) -> list[Any]:  # noqa: ANN401
    return [jax.core.ShapedArray(shape, dtype) for shape, dtype in results]


def _as_custom_call(context: Any, *operands: Any, custom: Callable[..., Any], **_parameters: Any) -> Any:  # noqa: ANN401
    return mlir.lower_fun(custom, multiple_results=True)(context, *operands)


def _as_formula(
    context: Any,  # noqa: ANN401 - what JAX's rules of lowering get has no public type
    *operands: Any,  # noqa: ANN401
    entry: Entry,
    values: tuple[AttributeValue, ...],
    **parameters: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    operator = _declared(entry)
    if operator is None:  # nothing but the kernel library is known of it; the call names what is missing
        return _as_custom_call(context, *operands, **parameters)
    given = dict(zip((a.name for a in entry.signature.attributes), values, strict=True))
    formula: Any = operator.formula

    def body(*tensors: Any) -> tuple[Any, ...]:  # noqa: ANN401
        made = decomposition(formula)(*tensors, **given)
        return made if isinstance(made, tuple) else (made,)

    return mlir.lower_fun(body, multiple_results=True)(context, *operands)


def _for_cuda(context: Any, *operands: Any, entry: Entry, **parameters: Any) -> Any:  # noqa: ANN401
    if _has_kernels(entry):
        return _as_custom_call(context, *operands, **parameters)
    return _as_formula(context, *operands, entry=entry, **parameters)


def _has_kernels(entry: Entry) -> bool:
    try:
        ENTRIES.load_device(entry.key, "cuda")
    except ToolchainError:
        return False
    except BuildError as error:
        text = f"{entry.key} runs as a formula on the GPU, its CUDA kernel does not compile: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return False
    return True


def _declared(entry: Entry) -> Operator | None:
    """Return the declaration of an entry, of a generated gradient operator too."""
    home = declaring(entry.key, entry.library.schema_hash)
    members = () if home is None else plan_library([home]).operators
    return next((member for member in members if member.key == entry.key), None)


_CALL.def_impl(_compute)
_CALL.def_abstract_eval(_infer)
mlir.register_lowering(_CALL, _as_custom_call)
mlir.register_lowering(_CALL, _for_cuda, platform="cuda")
for _platform in ("rocm", "tpu"):
    mlir.register_lowering(_CALL, _as_formula, platform=_platform)
