"""Operators of formulas: signature, gradient program and the chain of gradient operators."""

from __future__ import annotations

from collections.abc import Sequence

from opforge.expr.blob import MAX_INPUTS, MAX_OUTPUTS
from opforge.expr.formulas import Formula, FormulaAttribute
from opforge.expr.nodes import ValueType
from opforge.schema import DType, ForwardAttribute, GradientProgram, Operand, Operator, Step
from opforge.schema.lexer import format_literal

__all__ = ["gradient_program", "has_room_for_gradient", "make_operator", "signature_text"]


def signature_text(formula: Formula) -> str:
    """The signature of docs/design/schema.md: each input of any shape, outputs broadcast or summed to an input's."""
    dims = ["S"] if len(formula.inputs) == 1 else _letters(len(formula.inputs))
    inputs = ", ".join(f"{name}: T[*{d}]" for name, d in zip(formula.inputs, dims, strict=True))
    attributes = ", ".join(map(_attribute_text, formula.attributes))
    whole = f"*{dims[0]}" if len(dims) == 1 else f"bcast({', '.join(dims)})"
    outputs = ", ".join(
        f"{o.name}: {o.type.text}[{whole if o.sum_to is None else '*' + dims[o.sum_to]}]" for o in formula.outputs
    )
    return f"({inputs}{'; ' + attributes if attributes else ''}) -> ({outputs})"


def _letters(count: int) -> list[str]:
    # T is the type, so no dimension is called T.
    alphabet = "ABCDEFGHIJKLMNOPQRSUVWXYZ"
    return [alphabet[k % 25] + (str(k // 25) if k >= 25 else "") for k in range(count)]


def _attribute_text(a: FormulaAttribute) -> str:
    if a.default is None:
        return f"{a.name}: {a.kind}"
    value = {"float": float, "int": int, "bool": bool}[a.kind](a.default)
    return f"{a.name}: {a.kind} = {format_literal(value)}"


def gradient_program(formula: Formula, since: int) -> str:
    """One step: the gradient operator of the gradients of the floating outputs and of all inputs."""
    domain, _, name = formula.name.partition("::")
    gradients = [Operand("g", k) for k, o in enumerate(formula.outputs) if o.type is ValueType.T]
    inputs = [Operand("i", k) for k in range(len(formula.inputs))]
    attributes = tuple((a.name, ForwardAttribute(a.name)) for a in formula.attributes)
    results = tuple(range(len(inputs)))
    step = Step(domain, f"{name}Grad", since, (*gradients, *inputs), attributes, results)
    return str(GradientProgram((step,), tuple(Operand("v", k) for k in results)))


def has_room_for_gradient(formula: Formula) -> bool:
    """Whether the gradient operator stays within the limits of a program."""
    return len(formula.inputs) <= MAX_OUTPUTS and len(formula.inputs) + len(formula.outputs) <= MAX_INPUTS


def make_operator(
    formula: Formula,
    *,
    since: int,
    dtypes: Sequence[DType | str],
    autocast: str,
    nan: str,
    derivatives: int,
    host_name: str | None = None,
    doc: str = "",
    module: str = "",
    is_gradient: bool = False,
) -> Operator:
    """The operator of a formula; its gradient operators are made when they are first asked for."""
    has_gradient = (
        derivatives > 0 and has_room_for_gradient(formula) and any(o.type is ValueType.T for o in formula.outputs)
    )

    def derived() -> Sequence[Operator]:
        if not has_gradient:
            return ()
        return (
            make_operator(
                formula.gradient(),
                since=since,
                dtypes=dtypes,
                autocast=autocast,
                nan=nan,
                derivatives=derivatives - 1,
                host_name=f"{host_name}_grad" if host_name else None,
                doc=f"Gradient of {formula.name}.",
                module=module,
                is_gradient=True,
            ),
        )

    domain, _, name = formula.name.partition("::")
    return Operator(
        domain,
        name,
        signature_text(formula),
        types={"T": [d if isinstance(d, DType) else DType.parse(d) for d in dtypes]},
        since_version=since,
        differentiable=has_gradient,
        is_gradient=is_gradient,
        autocast=autocast,
        nan_policy=nan,
        gradient=gradient_program(formula, since) if has_gradient else None,
        host_name=host_name,
        doc=doc,
        formula=formula,
        reference_function=formula.reference,
        derived=derived,
        module=module,
        declared_at=str(formula.source) if formula.source else "",
    )
