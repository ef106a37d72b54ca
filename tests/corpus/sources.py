"""Where the cases of the corpus come from: kernels, onnx's backend tests, operators, real models, stored bins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import opforge as of
from benchmarks import _backend_tests as backend
from opforge.bin import format as bin_format
from opforge.schema import Operator, bf16, f16, f32
from opforge.verify.cases import arrays, cases_of
from tests.corpus.case import Array, Case
from tests.unit.compiler import models
from tests.unit.kernels.report import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 1 << 16
"""Elements of an input or output of a case that is taken into the small corpus: emulators are slow."""


def compiler(model: onnx.ModelProto | Path, **options: Any) -> Callable[[Path], object]:
    """Return what compiles a model to a path."""
    return partial(of.compile, model, **options)


def kernels() -> Iterator[Case]:
    """Yield the cases of the kernel tests: blocked layouts, products, images, attention, reductions."""
    for family in FAMILIES:
        for name, net, output, _, _ in family(np.random.default_rng(7)):
            net.program.graphs[0].outputs = [output]
            yield Case(f"kernel {name}", partial(bin_format.write, net.program), net.feeds)


def backend_tests(every: bool) -> Iterator[Case]:
    """Yield onnx's node tests; the small corpus takes up to three small ones of each operator.

    Args:
        every: take all groups and all data sets.
    """
    taken: dict[str, int] = {}
    for group in backend.GROUPS if every else ("node",):
        for name, test in backend.cases(group).items():
            model = backend._model(test)
            operator = backend._operator(test, model)
            if not every and taken.get(operator, 0) >= 3:
                continue
            given = {i.name for i in model.graph.initializer}
            for k, (inputs, outputs) in enumerate(backend._data_sets(test, model)):
                arrays_alone = [a for a in (*inputs, *outputs) if isinstance(a, np.ndarray)]
                if not every and any(a.size > LARGEST for a in arrays_alone):
                    continue
                names = [v.name for v in model.graph.input]
                names = names if len(inputs) == len(names) else [n for n in names if n not in given]
                feeds = dict(zip(names, inputs, strict=True))
                taken[operator] = taken.get(operator, 0) + 1
                yield Case(f"{group} {name} {k}", compiler(model), feeds)
                if not every:
                    break


def operators() -> Iterator[Case]:
    """Yield each formula operator of the library with its cases, in f32 and the half types."""
    for operator in of.load("opforge.ops"):
        if operator.formula is None:
            continue
        for case in cases_of(operator):
            for dtype in (f32, f16, bf16):
                names = [p.name for p in operator.signature.inputs]
                feeds = dict(zip(names, map(np.asarray, arrays(operator, case, {"T": dtype})), strict=True))
                model = _one_node(operator, feeds, case.attributes)
                yield Case(f"operator {operator.name} {case.name} {dtype}", compiler(model), feeds)


def _one_node(operator: Operator, feeds: dict[str, Array], attributes: dict[str, Any]) -> onnx.ModelProto:
    node = helper.make_node(operator.name, list(feeds), ["y"], domain=operator.domain, **attributes)
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in feeds.items()}
    values = [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in feeds.items()]
    output = helper.make_tensor_value_info("y", next(iter(kinds.values())), None)
    graph = helper.make_graph([node], operator.name, values, [output])
    imports = [helper.make_opsetid("", 23), helper.make_opsetid(operator.domain, operator.since_version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=11)


def real_models() -> Iterator[Case]:
    """Yield MiniLM and the PP-OCR models on small inputs."""
    rng = np.random.default_rng(3)
    ids = rng.integers(1000, 30000, (2, 5))
    feeds = {"input_ids": ids, "attention_mask": np.array([[1] * 5, [1, 1, 1, 0, 0]]), "token_type_ids": ids * 0}
    yield Case("model minilm", compiler(models.minilm_custom()), feeds)
    for name, shape in (("det", (1, 3, 32, 64)), ("rec", (1, 3, 48, 64)), ("cls", (1, 3, 48, 192))):
        image = rng.uniform(-1, 1, shape).astype(np.float32)
        yield Case(f"model {name}", compiler(models.ocr(name)), {"x": image})
