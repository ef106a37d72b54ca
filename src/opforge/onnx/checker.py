"""Hold a model against the registry: every problem at once, each with the nearest match."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opforge.onnx._walk import Place, nodes, opset_versions, standard
from opforge.onnx._write import fits_one_message
from opforge.schema import DType, Operator, Required, Signature, registry

if TYPE_CHECKING:
    import onnx

__all__ = ["Problem", "check_model", "custom_problems", "standard_problems"]


@dataclass(frozen=True)
class Problem:
    """One fault of a model: where it stands, what is wrong, and what to do."""

    where: str
    what: str
    expected: str = ""
    got: str = ""
    hint: str = ""

    def __str__(self) -> str:
        parts = [f"{self.where}: {self.what}"]
        parts += [f"{key} {value}" for key, value in (("expected", self.expected), ("got", self.got)) if value]
        return "; ".join(parts) + (f" ({self.hint})" if self.hint else "")


def check_model(model: onnx.ModelProto) -> list[Problem]:
    """Return the problems of ``model``; an empty list means that it is sound.

    Checked: opset imports of every domain used (in the model and in each function), custom nodes against the
    registry (domain, name, version, number of inputs and outputs, attribute names and types, dtypes where they
    are known), and ONNX's own checker for the rest. A node of a domain that nobody registered is a problem
    unless the model brings a function body for it.
    """
    return custom_problems(model) or standard_problems(model)


def custom_problems(model: onnx.ModelProto, foreign: Collection[str] = ()) -> list[Problem]:
    """Return the problems of opset imports and custom nodes alone, without ONNX's own checker.

    Args:
        model: the model.
        foreign: domains of an engine's own, whose nodes only a registered operator says anything about.
    """
    problems = list(_imports(model))
    bodies = {(f.domain, f.name) for f in model.functions}
    types = _known_types(model)
    for place in nodes(model):
        if not standard(place.node.domain):
            known = registry.find(place.node.domain, place.node.op_type, place.opsets.get(place.node.domain))
            if known is not None or place.node.domain not in foreign:
                problems += _custom_node(place, bodies, types)
    return problems


def _label(place: Place) -> str:
    node = place.node
    kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return f"{place.path}, node {node.name!r} ({kind})" if node.name else f"{place.path}, node {kind}"


def _imports(model: onnx.ModelProto) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    holders = {"graph": opset_versions(model)}
    for place in nodes(model):
        domain = "" if place.node.domain == "ai.onnx" else place.node.domain
        holder = place.path.split("/", 1)[0]
        if domain not in place.opsets and (holder, domain) not in seen:
            seen.add((holder, domain))
            known = sorted(d or "ai.onnx" for d in holders.get(holder, place.opsets))
            owner = "the model" if holder == "graph" else holder
            yield Problem(
                _label(place),
                f"{owner} does not import the domain {domain or 'ai.onnx'!r}",
                expected=f"an opset_import of {domain or 'ai.onnx'!r}",
                got=f"imports of {known}",
                hint="opforge.onnx.complete_model adds imports of registered operators",
            )


def _custom_node(place: Place, bodies: set[tuple[str, str]], types: dict[str, int]) -> list[Problem]:
    node = place.node
    version = place.opsets.get(node.domain)
    operator = registry.find(node.domain, node.op_type, version)
    if operator is None:
        if (node.domain, node.op_type) in bodies:
            return []
        return [_unknown(place, version)]
    found = list(_arity(place, operator.signature)) + list(_attributes(place, operator.signature))
    return found or list(_dtypes(place, operator, types))


def _unknown(place: Place, version: int | None) -> Problem:
    node = place.node
    key = f"{node.domain}::{node.op_type}"
    versions = registry.versions(node.domain, node.op_type)
    if versions:
        return Problem(
            _label(place),
            "the imported version of the domain is older than the operator",
            expected=f"{node.domain} version {versions[0]} or newer",
            got=f"version {version}",
        )
    near = registry.nearest(key, registry.operators())
    hint = f"did you mean {near}?" if near else "register it: of.load(package), or --package on the command line"
    return Problem(
        _label(place), "nobody registered this operator and the model has no body for it", got=key, hint=hint
    )


def _arity(place: Place, signature: Signature) -> Iterator[Problem]:
    node = place.node
    inputs = signature.inputs
    names = ", ".join(("*" if p.variadic else "") + p.name + ("?" if p.optional else "") for p in inputs)
    variadic = bool(inputs) and inputs[-1].variadic
    if len(node.input) > len(inputs) and not variadic:
        yield Problem(_label(place), "too many inputs", expected=f"({names})", got=str(list(node.input)))
    for index, parameter in enumerate(inputs):
        absent = index >= len(node.input) or not node.input[index]
        if absent and not parameter.optional:
            yield Problem(
                _label(place),
                f"the input {parameter.name!r} is missing",
                expected=f"({names})",
                got=str(list(node.input)),
            )
    if len(node.output) > len(signature.outputs):
        yield Problem(
            _label(place), "too many outputs", expected=str(len(signature.outputs)), got=str(len(node.output))
        )


_KINDS = {1: "float", 2: "int", 3: "string", 6: "floats", 7: "ints", 8: "strings"}
_STORED = {"bool": "int", "bools": "ints"}


def _attributes(place: Place, signature: Signature) -> Iterator[Problem]:
    declared = {a.name: a for a in signature.attributes}
    given = {a.name: a for a in place.node.attribute}
    for name, attribute in given.items():
        if name not in declared:
            yield Problem(
                _label(place),
                f"there is no attribute {name!r}",
                expected=f"one of {sorted(declared)}" if declared else "no attributes",
            )
            continue
        kind = declared[name].kind
        stored = _KINDS.get(attribute.type, "another type")
        if stored != _STORED.get(kind, kind):
            yield Problem(
                _label(place),
                f"the attribute {name!r} has the wrong type",
                expected=_STORED.get(kind, kind),
                got=stored,
            )
    for name, wanted in declared.items():
        if name not in given and isinstance(wanted.default, Required):
            yield Problem(_label(place), f"the attribute {name!r} is missing", expected=wanted.kind)


def _dtypes(place: Place, operator: Operator, types: dict[str, int]) -> Iterator[Problem]:
    bound: dict[str, tuple[int, str]] = {}
    parameters = list(operator.signature.inputs)
    for index, name in enumerate(place.node.input):
        if name not in types:
            continue
        parameter = parameters[min(index, len(parameters) - 1)]
        got = types[name]
        if parameter.type not in operator.types:
            allowed = [DType.parse(parameter.type)]
        else:
            allowed = list(operator.types[parameter.type])
            other = bound.setdefault(parameter.type, (got, parameter.name))
            if other[0] != got:
                yield Problem(
                    _label(place),
                    f"the inputs {other[1]!r} and {parameter.name!r} must have one dtype",
                    expected=_onnx_name(other[0]),
                    got=_onnx_name(got),
                )
        if got not in {d.onnx for d in allowed}:
            listed = ", ".join(d.name for d in allowed)
            yield Problem(
                _label(place),
                f"the input {parameter.name!r} has an undeclared dtype",
                expected=listed,
                got=_onnx_name(got),
            )


def _onnx_name(code: int) -> str:
    import onnx

    return str(onnx.TensorProto.DataType.Name(code)).lower()


def _known_types(model: onnx.ModelProto) -> dict[str, int]:
    """Element types of the main graph's values, as far as the model states them."""
    graph = model.graph
    infos = [*graph.input, *graph.output, *graph.value_info]
    types = {
        i.name: i.type.tensor_type.elem_type
        for i in infos
        if i.type.HasField("tensor_type") and i.type.tensor_type.elem_type
    }
    return types | {t.name: t.data_type for t in graph.initializer}


def standard_problems(model: onnx.ModelProto) -> list[Problem]:
    """Return what ONNX's own checker says of a model, whatever operators are registered."""
    import onnx

    if not fits_one_message(model):
        return []  # onnx.checker takes a path for such models; their parts were checked above
    try:
        onnx.checker.check_model(model, full_check=False)
    except Exception as problem:
        return [Problem("model", "ONNX's checker refuses it", got=str(problem).strip().replace("\n", " "))]
    return []
