"""A model of one operator: what ``opforge export PACKAGE:Operator`` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opforge.errors import ArgumentError, DtypeError
from opforge.onnx._walk import check_opset
from opforge.onnx.functions import complete_model
from opforge.schema import DType, Operator, Required

if TYPE_CHECKING:
    import onnx

__all__ = ["node_attribute", "one_node_model"]

_ANY_RANK = 2


def one_node_model(
    operator: Operator,
    *,
    dtypes: Mapping[str, str] | None = None,
    attributes: Mapping[str, object] | None = None,
    opset: int = 20,
) -> onnx.ModelProto:
    """Return a model whose only node is ``operator``.

    Named dimensions of the signature become the model's symbolic dimensions; an any-rank ``*S`` becomes two
    dimensions ``S0, S1``. Optional inputs are left out, a variadic input has two tensors.

    Args:
        operator: which one.
        dtypes: type variable -> dtype name; otherwise f32 (or i64, or the first declared dtype).
        attributes: values; the rest are the defaults.
        opset: version of the default domain.

    Raises:
        DtypeError: a dtype that the operator does not declare.
        ArgumentError: an attribute without a default is missing, or there is no such opset.
    """
    from onnx import helper

    check_opset(opset)

    chosen = {
        variable: _choose(operator, variable, allowed, dtypes or {}) for variable, allowed in operator.types.items()
    }
    inputs, names = [], []
    for parameter in operator.signature.inputs:
        if parameter.optional:
            names.append("")
            continue
        for index in range(2 if parameter.variadic else 1):
            name = f"{parameter.name}_{index}" if parameter.variadic else parameter.name
            names.append(name)
            inputs.append(helper.make_tensor_value_info(name, _code(parameter.type, chosen), _dims(parameter)))
    while names and not names[-1]:
        names.pop()
    given = dict(attributes or {})
    for attribute in operator.signature.attributes:
        if isinstance(attribute.default, Required) and attribute.name not in given:
            raise ArgumentError(
                "an attribute without a default is missing", where=operator.qualified_name, expected=attribute.name
            )
    values = operator.coerce(given)
    results = [p.name for p in operator.signature.outputs]
    node = helper.make_node(operator.name, names, results, name=operator.host_name, domain=operator.domain)
    node.attribute.extend(node_attribute(a.name, a.kind, values[a.name]) for a in operator.signature.attributes)
    outputs = [helper.make_tensor_value_info(p.name, _code(p.type, chosen), None) for p in operator.signature.outputs]
    graph = helper.make_graph([node], operator.host_name, inputs, outputs)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(operator.domain, operator.since_version)]
    model = helper.make_model(graph, opset_imports=imports, producer_name="opforge", ir_version=10)

    from opforge.onnx.shapes import infer_shapes

    return infer_shapes(complete_model(model))


def node_attribute(name: str, kind: str, value: object) -> onnx.AttributeProto:
    """Write an attribute with its declared type, which an empty list alone does not tell."""
    from onnx import AttributeProto, helper

    codes = {"float": AttributeProto.FLOAT, "string": AttributeProto.STRING, "floats": AttributeProto.FLOATS}
    codes |= {"strings": AttributeProto.STRINGS, "ints": AttributeProto.INTS, "bools": AttributeProto.INTS}
    plain = [int(v) if isinstance(v, bool) else v for v in value] if isinstance(value, tuple) else value
    plain = int(plain) if isinstance(plain, bool) else plain
    return helper.make_attribute(name, plain, attr_type=codes.get(kind, AttributeProto.INT))


def _choose(operator: Operator, variable: str, allowed: tuple[DType, ...], wanted: Mapping[str, str]) -> DType:
    if variable in wanted:
        dtype = DType.parse(wanted[variable])
        if dtype not in allowed:
            raise DtypeError(
                f"the type variable {variable} cannot be {dtype.name}",
                where=operator.qualified_name,
                expected=", ".join(d.name for d in allowed),
                got=dtype.name,
            )
        return dtype
    names = {d.name: d for d in allowed}
    return names.get("f32") or names.get("i64") or allowed[0]


def _code(type_name: str, chosen: Mapping[str, DType]) -> int:
    dtype = chosen[type_name] if type_name in chosen else DType.parse(type_name)
    return int(dtype.onnx)


def _dims(parameter: object) -> list[int | str]:
    dims: list[int | str] = []
    for dim in parameter.dims:  # type: ignore[attr-defined]
        text = str(dim)
        if text.startswith("*"):
            dims += [f"{text[1:]}{axis}" for axis in range(_ANY_RANK)]
        elif text == "_":
            dims.append("")
        else:
            dims.append(int(text) if text.isdigit() else text)
    return dims
