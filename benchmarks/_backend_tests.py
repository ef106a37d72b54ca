"""onnx's own backend tests: how one of them is loaded, run by an engine and compared."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.encode import SUB_BYTE, pack_bits

__all__ = ["ENGINES", "GROUPS", "Outcome", "cases", "run_case"]

GROUPS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")
"""The groups of onnx's backend tests; "light" are whole networks whose weights are made by the graph itself."""


@dataclass(frozen=True)
class Outcome:
    """What became of one test: the operator that it is about, and "" or why it did not pass."""

    group: str
    name: str
    operator: str
    failure: str

    @property
    def passed(self) -> bool:
        """Whether every output agreed."""
        return not self.failure


@cache
def cases(group: str) -> dict[str, TestCase]:
    """Return the tests of a group by name, in order.

    Args:
        group: one of `GROUPS`.
    """
    kind = "real" if group == "light" else group
    found = load_model_tests(kind=kind)
    if group == "light":
        found = [c for c in found if c.url and "/light/" in c.url]
    return {c.name: c for c in sorted(found, key=lambda c: c.name)}


def _model(case: TestCase) -> onnx.ModelProto:
    if case.model is not None:
        return case.model
    return onnx.load(_folder(case) / "model.onnx" if case.model_dir else _light(case))


def _folder(case: TestCase) -> Path:
    assert case.model_dir is not None
    return Path(case.model_dir)


def _light(case: TestCase) -> Path:
    """Return the file inside the installed package that a light model's address names."""
    assert case.url is not None
    return Path(onnx.__file__).parent / Path(case.url).relative_to("onnx")


Data = NDArray[Any] | list[Any] | None
"""A tensor, a sequence, or an optional that may be empty."""


def _value(data: bytes, declared: onnx.TypeProto) -> Data:
    """Read one stored input or output as the type that the model declares."""
    kind = declared.WhichOneof("value")
    if kind == "sequence_type":
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(data)
        return numpy_helper.to_list(sequence)
    if kind == "optional_type":
        optional = onnx.OptionalProto()
        optional.ParseFromString(data)
        return numpy_helper.to_optional(optional)
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _data_sets(case: TestCase, model: onnx.ModelProto) -> Iterator[tuple[list[Any], list[Any]]]:
    if case.data_sets is not None:
        yield from (([_array(v) for v in i], [_array(v) for v in o]) for i, o in case.data_sets)
        return
    if case.model_dir is None:
        inputs = []
        given = {i.name for i in model.graph.initializer}
        for value in (v for v in model.graph.input if v.name not in given):
            dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
            count = int(np.prod(dims))
            inputs.append((np.arange(count).reshape(dims) / count).astype(np.float32))
        expected = onnx.TensorProto.FromString(Path(str(_light(case)).replace(".onnx", "_output_0.pb")).read_bytes())
        yield inputs, [numpy_helper.to_array(expected)]
        return
    for folder in sorted(_folder(case).glob("test_data_set_*")):

        def read(what: str, declared: Sequence[onnx.ValueInfoProto], folder: Path = folder) -> list[Any]:
            count = len(list(folder.glob(f"{what}_*.pb")))
            return [_value((folder / f"{what}_{k}.pb").read_bytes(), declared[k].type) for k in range(count)]

        yield read("input", model.graph.input), read("output", model.graph.output)


def _operator(case: TestCase, model: onnx.ModelProto) -> str:
    """Return the operator that a node test is about: the rarest of its graph, or the model's name."""
    nodes = [n for n in model.graph.node if n.op_type not in ("Constant", "Identity")] or list(model.graph.node)
    if case.kind == "real" or not nodes:
        return case.name.removeprefix("test_")
    if case.kind == "node" and len({n.op_type for n in nodes}) > 1:
        squeezed = case.name.replace("_", "")
        named = [n.op_type for n in nodes if n.op_type.lower() in squeezed]
        return max(named, key=len) if named else nodes[0].op_type
    return nodes[0].op_type


def _array(value: Any) -> Any:  # noqa: ANN401 - an array, a list, or what the package wraps for dtypes NumPy lacks
    """Unwrap the tensors by which test cases give what NumPy has no dtype for."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


Run = Callable[[onnx.ModelProto, dict[str, Any]], list[Any]]


def _opforge(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    import opforge as of

    with tempfile.TemporaryDirectory(prefix="opforge-conformance-") as folder:
        path = Path(folder) / "model.bin"
        of.compile(model, path)
        session = of.Session(path)
        results = session.run(feeds)
        return [results[o.name] for o in model.graph.output]


_STRANGE = {number: dtype for number, dtype in NUMPY_DTYPES.items() if number >= 16}
"""Types that ONNX Runtime takes as raw bytes only, by ONNX number."""


def _raw(array: NDArray[Any], number: int) -> NDArray[Any]:
    """Give the bytes that ONNX Runtime's tensor holds, in an array of the tensor's shape."""
    whole: NDArray[Any] = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    if number not in SUB_BYTE:
        return whole
    held = np.zeros(array.size, np.uint8)
    packed = pack_bits(whole, SUB_BYTE[number])
    held[: packed.size] = packed
    return held.reshape(array.shape)


def _from_raw(value: Any) -> NDArray[Any]:  # noqa: ANN401 - an OrtValue
    number, shape = value.element_type(), value.shape()
    dtype = _STRANGE[number]
    count = int(np.prod(shape, dtype=np.int64))
    if number not in SUB_BYTE:
        data = ctypes.string_at(value.data_ptr(), count * dtype.itemsize)
        return np.frombuffer(data, dtype).reshape(shape)
    bits = SUB_BYTE[number]
    packed = np.frombuffer(ctypes.string_at(value.data_ptr(), -(-count * bits // 8)), np.uint8)
    codes = (packed[:, None] >> (np.arange(8 // bits, dtype=np.uint8) * bits)) & ((1 << bits) - 1)
    return codes.reshape(-1)[:count].astype(np.uint8).view(dtype).reshape(shape)


def _onnxruntime(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in model.graph.output]
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}
    strange = {n for n, number in kinds.items() if number in _STRANGE}
    if not strange:
        results: list[Any] = session.run(names, feeds)
        return results
    values = {
        n: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(_raw(a, kinds[n]), kinds[n])
        if n in strange
        else ort.OrtValue.ortvalue_from_numpy(np.asarray(a))
        for n, a in feeds.items()
    }
    found = session.run_with_ort_values(names, values)
    return [_from_raw(v) if n in strange else v.numpy() for n, v in zip(names, found, strict=True)]


ENGINES: dict[str, Run] = {"opforge": _opforge, "onnxruntime": _onnxruntime}


def _compare(got: Data, expected: Data, rtol: float, atol: float, where: str) -> None:
    if expected is None or got is None:
        if not (expected is None and got is None):
            raise AssertionError(f"{where}: expected {_kind(expected)}, got {_kind(got)}")
        return
    if isinstance(expected, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(expected):
            raise AssertionError(f"{where}: expected a sequence of {len(expected)}, got {_kind(got)}")
        for index, (one, other) in enumerate(zip(got, expected, strict=True)):
            _compare(one, other, rtol, atol, f"{where}[{index}]")
        return
    one, other = np.asarray(got), np.asarray(expected)
    if one.shape != other.shape:
        raise AssertionError(f"{where}: expected shape {other.shape}, got {one.shape}")
    if other.dtype.kind in "OUS":
        if one.astype(str).tolist() != other.astype(str).tolist():
            raise AssertionError(f"{where}: strings differ")
        return
    if one.dtype != other.dtype:
        raise AssertionError(f"{where}: expected dtype {other.dtype}, got {one.dtype}")
    if other.dtype.kind in "fcV":
        wide = np.complex128 if other.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(one.astype(wide), other.astype(wide), rtol=rtol, atol=atol, err_msg=where)
    else:
        np.testing.assert_array_equal(one, other, err_msg=where)


def _kind(value: Data) -> str:
    return "nothing" if value is None else f"{type(value).__name__}"


def run_case(group: str, name: str, engine: str) -> Outcome:
    """Run one test.

    Args:
        group: one of `GROUPS`.
        name: name of the test in its group.
        engine: one of `ENGINES`.
    """
    case = cases(group)[name]
    operator = ""
    try:
        model = _model(case)
        operator = _operator(case, model)
        with np.errstate(all="ignore"):
            for inputs, outputs in _data_sets(case, model):
                given = {i.name for i in model.graph.initializer}
                names = [v.name for v in model.graph.input]
                if len(inputs) < len(names):
                    names = [n for n in names if n not in given]
                results = ENGINES[engine](model, dict(zip(names, inputs, strict=True)))
                for value, got, expected in zip(model.graph.output, results, outputs, strict=True):
                    _compare(got, expected, case.rtol, case.atol, value.name)
    except Exception as error:  # every failure is a row of the table
        text = " ".join(str(error).split())
        return Outcome(group, name, operator, f"{type(error).__name__}: {text[:400]}")
    return Outcome(group, name, operator, "")
