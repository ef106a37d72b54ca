"""The hand-written kernel library in OpenVINO, and functions that compile one-line models."""

from importlib import metadata
from importlib.util import find_spec

import numpy as np
import pytest

from tests.unit.onnxruntime.conftest import hand_library

__all__ = ["branches", "hand_library"]

branches = pytest.mark.skipif(
    find_spec("openvino") is not None and metadata.version("openvino") < "2026",
    reason="OpenVINO 2025 computes the branch of an earlier run, of standard nodes too",
)


@pytest.fixture(scope="session")
def extension():
    """The adapter's file and the adapter, built for this OpenVINO where the cache has it not."""
    from opforge.engines.openvino._adapter import adapter

    return adapter()


@pytest.fixture(scope="session")
def hand(hand_library, extension):
    """A function that compiles a model on operators of that library: hand(model, threads) -> run(feeds) -> outputs."""
    import openvino

    from opforge.build import load_library

    path, table = extension
    library = load_library(hand_library)
    for operator in library.operators.values():
        table.define(operator.address)

    def compile_model(model, threads=1, **options):
        core = openvino.Core()
        table.select(list(library.operators))
        core.add_extension(str(path))
        read = core.read_model(model if isinstance(model, str) else model.SerializeToString())
        config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads} | options
        return Compiled(core.compile_model(read, "CPU", config), read, core)

    return compile_model


class Compiled:
    """A compiled model with the model that was read."""

    def __init__(self, compiled, model, core):
        self.compiled, self.model, self.core = compiled, model, core
        self.request = compiled.create_infer_request()

    def run(self, feeds):
        """Give the outputs in order."""
        # Not infer(): with one thread OpenVINO loses the error of a run that fails in it.
        self.request.start_async({k: np.asarray(v, order="C") for k, v in feeds.items()})
        self.request.wait()
        return [self.request.get_output_tensor(k).data.copy() for k in range(len(self.compiled.outputs))]

    def shapes(self):
        """The shapes of the outputs as text."""
        return [str(output.get_partial_shape()) for output in self.model.outputs]
