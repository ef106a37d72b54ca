"""One small network with a custom operator, static and dynamic: a forward pass and a step of training in every mode.

The network is the same everywhere: 64 inputs, two hidden layers of 128 with CustomGELU, 10 outputs, 32 rows. The peer
is the same network with the framework's own GELU in the operator's place, in the same mode.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._case import OURS, Case, Prepared

Function = Callable[..., Any]
SIZES = (64, 128, 128, 10)
ROWS = 32
RATE = 0.01
OWN = "its own GELU"


def _numbers() -> tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Weights and biases in turn, inputs, wanted outputs."""
    draw = np.random.default_rng(0)
    values = []
    for rows, columns in itertools.pairwise(SIZES):
        values += [draw.standard_normal((rows, columns)) / np.sqrt(rows), draw.standard_normal(columns) * 0.1]
    x, y = draw.standard_normal((ROWS, SIZES[0])), draw.standard_normal((ROWS, SIZES[-1]))
    return [v.astype(np.float32) for v in values], x.astype(np.float32), y.astype(np.float32)


def _network(activation: Function, parameters: Any, x: Any) -> Any:  # noqa: ANN401
    w1, b1, w2, b2, w3, b3 = parameters
    return activation(activation(x @ w1 + b1) @ w2 + b2) @ w3 + b3


def _parts(
    modes: Mapping[str, Function],
    activations: Mapping[str, Function],
    forward: Function,
    step: Function,
    x: Any,  # noqa: ANN401
) -> dict[str, Prepared]:
    """Make the rows of every mode; the first call, which traces and compiles, is one of them.

    Args:
        modes: what makes a compiled function of one.
        activations: ours and the framework's own.
        forward: gives a function that computes the network for an activation and a mode.
        step: the same of a step of training; the function returns the loss.
        x: a tensor; what a mode needs to get ready for its very first function is not measured.
    """
    parts: dict[str, Prepared] = {}
    for mode, compiled in modes.items():
        compiled(lambda v: v * 2.0)(x)
        for kind, make in (("forward", forward), ("step of training", step)):
            runs: dict[str, Function] = {}
            first: dict[str, float] = {}
            results = []
            for name, activation in activations.items():
                run = make(activation, compiled)
                started = time.perf_counter()
                results.append(np.asarray(run()))
                first[name] = time.perf_counter() - started
                runs[name] = run
            np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)
            parts[f"{mode}, {kind}"] = Prepared(runs=runs)
            parts[f"{mode}, first {kind}"] = Prepared(values=first)
    return parts


def _plain(function: Function) -> Function:
    return function


def _tensorflow(threads: int) -> dict[str, Prepared]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    from opforge.ops import custom_gelu

    values, inputs, wanted = _numbers()
    x, y = tf.constant(inputs), tf.constant(wanted)
    custom_gelu(x)  # its kernel library is there

    def forward(activation: Function, compiled: Function) -> Function:
        parameters = [tf.Variable(v) for v in values]
        return compiled(lambda: _network(activation, parameters, x))

    def step(activation: Function, compiled: Function) -> Function:
        parameters = [tf.Variable(v) for v in values]

        def train() -> Any:  # noqa: ANN401
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((_network(activation, parameters, x) - y) ** 2)
            for parameter, gradient in zip(parameters, tape.gradient(loss, parameters), strict=True):
                parameter.assign_sub(RATE * gradient)
            return loss

        return compiled(train)

    own = {OURS: custom_gelu, OWN: lambda v: tf.nn.gelu(v, approximate=True)}
    return _parts({"eager": _plain, "tf.function": tf.function}, own, forward, step, x)


def _jax(threads: int) -> dict[str, Prepared]:
    os.environ["NPROC"] = str(threads)
    import jax

    from opforge.ops import custom_gelu

    values, inputs, wanted = _numbers()
    parameters = [jax.numpy.asarray(v) for v in values]
    x, y = jax.numpy.asarray(inputs), jax.numpy.asarray(wanted)
    custom_gelu(x)

    def forward(activation: Function, compiled: Function) -> Function:
        run = compiled(lambda p, v: _network(activation, p, v))
        return lambda: run(parameters, x).block_until_ready()

    def step(activation: Function, compiled: Function) -> Function:
        def train(p: Any, v: Any, w: Any) -> Any:  # noqa: ANN401
            loss, gradients = jax.value_and_grad(lambda q: ((_network(activation, q, v) - w) ** 2).mean())(p)
            return loss, [a - RATE * g for a, g in zip(p, gradients, strict=True)]

        run = compiled(train)
        return lambda: jax.block_until_ready(run(parameters, x, y))[0]

    own = {OURS: custom_gelu, OWN: jax.nn.gelu}
    return _parts({"eager": _plain, "jax.jit": jax.jit}, own, forward, step, x)


def _torch(threads: int) -> dict[str, Prepared]:
    import torch

    torch.set_num_threads(threads)
    import opforge as of
    from opforge.ops import custom_gelu

    values, inputs, wanted = _numbers()
    x, y = torch.from_numpy(inputs), torch.from_numpy(wanted)
    custom_gelu(x)

    def forward(activation: Function, compiled: Function) -> Function:
        parameters = [torch.from_numpy(v) for v in values]
        run = compiled(lambda v: _network(activation, parameters, v))

        def infer() -> Any:  # noqa: ANN401
            with torch.no_grad():
                return run(x)

        return infer

    def step(activation: Function, compiled: Function) -> Function:
        parameters = [torch.from_numpy(v.copy()).requires_grad_() for v in values]
        loss_of = compiled(lambda v, w: ((_network(activation, parameters, v) - w) ** 2).mean())

        def train() -> Any:  # noqa: ANN401
            loss = loss_of(x, y)
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.data.sub_(gradient, alpha=RATE)
            return loss.detach()

        return train

    own = {OURS: custom_gelu, OWN: lambda v: torch.nn.functional.gelu(v, approximate="tanh")}
    parts = _parts({"eager": _plain, "torch.compile": torch.compile}, own, forward, step, x)
    with tempfile.TemporaryDirectory() as folder:
        session, first = _compiled_model(Path(folder), of)
        rows = parts["eager, forward"].runs
        np.testing.assert_allclose(session({"x": inputs}), rows[OURS](), rtol=1e-4, atol=1e-5)
    parts[".bin, forward"] = Prepared(runs={OURS: lambda: session({"x": inputs}), "eager": rows[OURS]})
    parts[".bin, first forward"] = Prepared(
        values={OURS: first, "torch.compile": parts["torch.compile, first forward"].values[OURS]}
    )
    return parts


def _compiled_model(folder: Path, of: Any) -> tuple[Function, float]:  # noqa: ANN401
    """Export and compile the network; return its session as a function, and the time to load and run it once."""
    import torch

    from opforge.ops import custom_gelu

    values, inputs, _ = _numbers()

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.values = torch.nn.ParameterList([torch.nn.Parameter(torch.from_numpy(v)) for v in values])

        def forward(self, x: Any) -> Any:  # noqa: ANN401
            return _network(custom_gelu, list(self.values), x)

    of.torch.export(Network(), (torch.from_numpy(inputs),), folder / "net.onnx", input_names=["x"])
    of.compile(folder / "net.onnx", folder / "net.bin")
    started = time.perf_counter()
    session = of.Session(folder / "net.bin", threads=1)
    session.run({"x": inputs})
    return lambda feed: next(iter(session.run(feed).values())), time.perf_counter() - started


CASES = [
    Case(f"graphs, {name}", prepare, {}, rounds=3, needs=(name.lower(),))
    for name, prepare in (("TensorFlow", _tensorflow), ("JAX", _jax), ("torch", _torch))
]
