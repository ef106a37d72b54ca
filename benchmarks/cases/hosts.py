"""Operators in TensorFlow and JAX against the framework's own and against a classic C++ operation."""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._case import KEEP_MEMORY, OURS, Case, Prepared
from benchmarks.cases import _classic_op

N = 1 << 20
CHAIN = 200
Function = Callable[..., Any]


def _values() -> np.ndarray[Any, Any]:
    return (np.random.default_rng(0).standard_normal(N) * 3).astype(np.float32)


def _same(results: Mapping[str, Any], tolerance: float = 1e-5) -> None:
    first, *others = [np.asarray(value) for value in results.values()]
    for other in others:
        np.testing.assert_allclose(other, first, rtol=tolerance, atol=tolerance)


# TensorFlow


def _tensorflow(threads: int) -> Any:  # noqa: ANN401 - a module
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    return tf


def _taped(tf: Any, function: Function, x: Any) -> Function:  # noqa: ANN401
    def both() -> Any:  # noqa: ANN401
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    return both


def _tensorflow_calls(threads: int) -> dict[str, Prepared]:
    tf = _tensorflow(threads)
    from opforge.ops import custom_gelu

    classic = _classic_op.load()
    x = tf.constant([0.5])
    peers = {OURS: custom_gelu, "classic op": classic}
    _same({name: function(x) for name, function in peers.items()})
    every = {**peers, "tf.sigmoid": tf.sigmoid}
    backward = {name: _taped(tf, function, x) for name, function in every.items()}
    _same({name: backward[name]() for name in peers})
    return {
        "forward": Prepared(runs={name: partial(function, x) for name, function in every.items()}),
        "forward+backward": Prepared(runs=backward),
        "an operation in tf.function": Prepared(values={**_slopes(tf, x, peers), "0.8 us": 0.8e-6}),
    }


def _slopes(tf: Any, x: Any, functions: Mapping[str, Function]) -> dict[str, float]:  # noqa: ANN401
    """Time per operation: a chain of many of them less a chain of one."""

    def chain(function: Function, count: int) -> Function:
        @tf.function(autograph=False)
        def run(value: Any) -> Any:  # noqa: ANN401
            for _ in range(count):
                value = function(value)
            return value

        run(x)
        return partial(run, x)

    graphs = {(name, n): chain(function, n) for name, function in functions.items() for n in (1, CHAIN + 1)}
    _same({name: graphs[name, CHAIN + 1]() for name in functions})
    times: dict[tuple[str, int], list[float]] = {key: [] for key in graphs}
    order = list(graphs)
    for _ in range(60):
        random.shuffle(order)
        for key in order:
            started = time.perf_counter()
            for _ in range(10):
                graphs[key]()
            times[key].append((time.perf_counter() - started) / 10)
    quiet = {key: statistics.quantiles(values, n=5)[0] for key, values in times.items()}  # a difference of two
    return {name: (quiet[name, CHAIN + 1] - quiet[name, 1]) / CHAIN for name in functions}


def _tensorflow_gelu(threads: int) -> dict[str, Prepared]:
    tf = _tensorflow(threads)
    from opforge.ops import custom_gelu

    x = tf.constant(_values())
    own = partial(tf.nn.gelu, approximate=True)
    modes = {"eager": lambda f: f, "tf.function": tf.function, "XLA": partial(tf.function, jit_compile=True)}
    forward: dict[str, Function] = {OURS: partial(custom_gelu, x)}
    backward: dict[str, Function] = {OURS: _taped(tf, custom_gelu, x)}
    for name, mode in modes.items():
        forward[f"tf.nn.gelu, {name}"] = partial(mode(own), x)
        backward[f"tf.nn.gelu, {name}"] = mode(_taped(tf, own, x))
    for runs in (forward, backward):
        _same({name: run() for name, run in runs.items()})
    return {"gelu": Prepared(runs=forward), "gelu, forward+backward": Prepared(runs=backward)}


# JAX


def _jax(threads: int) -> Any:  # noqa: ANN401 - a module
    os.environ["NPROC"] = str(threads)  # XLA's threads
    import jax

    return jax


def _jax_calls(threads: int) -> dict[str, Prepared]:
    jax = _jax(threads)
    from opforge.ops import custom_gelu

    x = jax.numpy.array([0.5], jax.numpy.float32)
    functions = {OURS: custom_gelu, "jax.nn.sigmoid": jax.nn.sigmoid, "jax.nn.gelu": jax.nn.gelu}
    jitted = {name: jax.jit(lambda v, f=f: f(v)) for name, f in functions.items()}
    both = {name: jax.jit(jax.value_and_grad(lambda v, f=f: f(v).sum())) for name, f in functions.items()}
    for results in ({n: f(x) for n, f in jitted.items()}, {n: f(x)[1] for n, f in both.items()}):
        _same({name: results[name] for name in (OURS, "jax.nn.gelu")})
    return {
        "forward, jitted": Prepared(runs={name: partial(f, x) for name, f in jitted.items()}),
        "value_and_grad, jitted": Prepared(runs={name: partial(f, x) for name, f in both.items()}),
        "forward, eager": Prepared(runs={name: partial(f, x) for name, f in functions.items()}),
    }


def _jax_gelu(threads: int) -> dict[str, Prepared]:
    jax = _jax(threads)
    from opforge.ops import custom_gelu

    x = jax.numpy.asarray(_values())

    def waiting(function: Function) -> Function:
        return lambda: jax.block_until_ready(function(x))

    functions = {OURS: custom_gelu, "jax.nn.gelu": jax.nn.gelu}
    forward = {name: waiting(jax.jit(lambda v, f=f: f(v))) for name, f in functions.items()}
    backward = {name: waiting(jax.jit(lambda v, f=f: jax.vjp(f, v)[1](v)[0])) for name, f in functions.items()}
    _same({name: run() for name, run in forward.items()})
    _same({name: run() for name, run in backward.items()}, 1e-4)  # JAX's own gradient loses digits at large x
    return {"gelu": Prepared(runs=forward), "gelu, forward+backward": Prepared(runs=backward)}


# Processor time of callers at one time, and first calls


def _caller(host: str, threads: int) -> Function:
    """Return a call of the operator on a million elements, which waits for its result."""
    from opforge.ops import custom_gelu

    if host == "torch":
        import torch

        torch.set_num_threads(threads)
        tensor = torch.from_numpy(_values())
        return lambda: custom_gelu(tensor)
    if host == "tensorflow":
        return partial(custom_gelu, _tensorflow(threads).constant(_values()))
    array = _jax(threads).numpy.asarray(_values())
    return lambda: custom_gelu(array).block_until_ready()


def _callers(host: str, threads: int) -> Prepared:
    """Processor time of two callers at one time beside the same calls one after another."""
    call = _caller(host, threads)

    def calls() -> None:
        for _ in range(60):
            call()

    pool = ThreadPoolExecutor(2)  # threads that last: the first calls of a new one take memory from the system

    def together() -> None:
        for caller in [pool.submit(calls) for _ in range(2)]:
            caller.result()

    def processor(run: Callable[[], None]) -> float:
        started = time.process_time()
        run()
        return time.process_time() - started

    together()
    pairs = [(processor(together), processor(lambda: (calls(), calls())[0])) for _ in range(9)]
    _, ours, serial = sorted((both / serial, both, serial) for both, serial in pairs)[len(pairs) // 2]
    return Prepared(values={OURS: ours, "one after another": serial})


def _first_call(host: str, threads: int) -> Prepared:
    """First call of a new operator in a host, when its kernel library is there; nothing is compiled then."""
    import opforge as of

    with tempfile.TemporaryDirectory() as folder:
        os.environ["OPFORGE_CACHE"] = str(Path(folder) / "cache")
        call = _caller(host, threads)
        call()  # the host itself is ready
        fresh = of.formula("bench.hosts::Fresh")(lambda x: x * of.sigmoid(1.702 * x))
        started = time.perf_counter()
        fresh(np.ones(1, np.float32))
        values = {"kernel library": time.perf_counter() - started}
        x = _one(host)
        programs: list[object] = []
        sys.addaudithook(lambda event, given: programs.append(given) if event == "subprocess.Popen" else None)
        started = time.perf_counter()
        fresh(x)
        values[OURS] = time.perf_counter() - started
        assert not programs, f"the call started {programs}"
        if host == "tensorflow":
            values["classic op, compiled"] = _classic_op.compile_library(Path(folder) / "classic.so")
        return Prepared(values=values)


def _one(host: str) -> Any:  # noqa: ANN401 - a tensor
    if host == "tensorflow":
        return _tensorflow(1).constant([0.5])
    return _jax(1).numpy.array([0.5])


_OVERHEAD = {
    "forward/classic op": 1 / 1.2,
    "forward/tf.sigmoid": 1 / 1.2,
    "an operation in tf.function/0.8 us": 1.0,
}
_JITTED = {"forward, jitted/jax.nn.sigmoid": 1 / 1.1, "value_and_grad, jitted/jax.nn.sigmoid": 1 / 1.25}
_TENSORFLOW_GELU = {f"gelu/tf.nn.gelu, {mode}": 2.0 for mode in ("eager", "tf.function")}
CASES = [
    Case("tensorflow call", _tensorflow_calls, _OVERHEAD, needs=("tensorflow",)),
    Case("jax call", _jax_calls, _JITTED, needs=("jax",)),
    *(
        case
        for threads, ending in ((1, ""), (2, ", 2 threads"))
        for case in (
            Case(
                f"tensorflow 1M{ending}",
                _tensorflow_gelu,
                _TENSORFLOW_GELU,
                threads=threads,
                needs=("tensorflow",),
                environment=KEEP_MEMORY,
            ),
            Case(
                f"jax 1M{ending}",
                _jax_gelu,
                {"gelu/jax.nn.gelu": 2.0},
                threads=threads,
                needs=("jax",),
                environment=KEEP_MEMORY,
            ),
        )
    ),
    *(
        Case(
            f"{host}, processor time of 2 callers",
            partial(_callers, host),
            {"one after another": 1 / 1.2},
            threads=2,
            needs=(host,),
        )
        for host in ("torch", "tensorflow", "jax")
    ),
    *(
        Case(f"{host}, first call", partial(_first_call, host), {"kernel library": 10.0}, rounds=3, needs=(host,))
        for host in ("tensorflow", "jax")
    ),
]
