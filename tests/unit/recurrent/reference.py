"""LSTM, GRU and RNN in float64, written from ONNX's text: one sample, one step, one equation after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

FUNCTIONS: dict[str, tuple[int, tuple[float, ...], Callable[..., Any]]] = {
    "Sigmoid": (0, (), lambda x: 1 / (1 + np.exp(-x))),
    "Tanh": (0, (), np.tanh),
    "Relu": (0, (), lambda x: np.maximum(x, 0)),
    "Affine": (2, (1.0, 0.0), lambda x, a, b: a * x + b),
    "LeakyRelu": (1, (0.01,), lambda x, a: np.where(x >= 0, x, a * x)),
    "ThresholdedRelu": (1, (1.0,), lambda x, a: np.where(x >= a, x, 0)),
    "ScaledTanh": (2, (1.0, 1.0), lambda x, a, b: a * np.tanh(b * x)),
    "HardSigmoid": (2, (0.2, 0.5), lambda x, a, b: np.clip(a * x + b, 0, 1)),
    "Elu": (1, (1.0,), lambda x, a: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0)))),
    "Softsign": (0, (), lambda x: x / (1 + np.abs(x))),
    "Softplus": (0, (), lambda x: np.logaddexp(0, x)),
}
USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _functions(kind: str, directions: int, attributes: dict[str, Any]) -> list[list[Callable[[Any], Any]]]:
    names = attributes.get("activations") or USUAL[kind] * directions
    alphas, betas = list(attributes.get("activation_alpha", [])), list(attributes.get("activation_beta", []))
    clip = float(np.float32(attributes.get("clip", np.inf)))  # attributes are float32
    made: list[Callable[[Any], Any]] = []
    for name in names:
        arguments, defaults, function = FUNCTIONS[name]
        given = list(defaults)
        for k, values in enumerate((alphas, betas)):
            if k < arguments and values:
                given[k] = float(np.float32(values.pop(0)))
        made.append(lambda x, f=function, g=tuple(given): f(np.clip(x, -clip, clip), *g))
    per = len(USUAL[kind])
    return [made[d * per : d * per + per] for d in range(directions)]


def run(kind: str, inputs: dict[str, np.ndarray | None], attributes: dict[str, Any]) -> list[np.ndarray]:
    """Y, Y_h and, for LSTM, Y_c."""
    given = {k: v.astype(np.float64) if v is not None and v.dtype.kind == "f" else v for k, v in inputs.items()}
    x, w, r = given["X"], given["W"], given["R"]
    assert x is not None and w is not None and r is not None
    swap = bool(attributes.get("layout", 0))
    if swap:
        x = x.swapaxes(0, 1)
    steps, batch, _ = x.shape
    directions, hidden, gates = len(w), r.shape[-1], GATES[kind]
    b = given.get("B")
    b = np.zeros((directions, 2 * gates * hidden)) if b is None else b
    lengths = given.get("sequence_lens")
    lengths = np.full(batch, steps) if lengths is None else lengths
    states = []
    for name in ("initial_h", "initial_c"):
        state = given.get(name)
        if state is None:
            state = np.zeros((directions, batch, hidden))
        elif swap:
            state = state.swapaxes(0, 1)
        states.append(state.copy())
    y, h_last, c_last = np.zeros((steps, directions, batch, hidden)), states[0].copy(), states[1].copy()
    functions = _functions(kind, directions, attributes)
    for d in range(directions):
        backwards = attributes.get("direction", "forward") == "reverse" or d == 1
        wg, rg = w[d].reshape(gates, hidden, -1), r[d].reshape(gates, hidden, hidden)
        wb, rb = b[d].reshape(2, gates, hidden)
        p = given.get("P")
        pg = np.zeros((3, hidden)) if p is None else p[d].reshape(3, hidden)
        for n in range(batch):
            h, c = states[0][d, n], states[1][d, n]
            order = range(int(lengths[n]))
            for t in reversed(order) if backwards else order:
                h, c = _step(kind, functions[d], attributes, x[t, n], h, c, (wg, rg, wb, rb, pg))
                y[t, d, n] = h
            h_last[d, n], c_last[d, n] = h, c
    if swap:
        y, h_last, c_last = y.transpose(2, 0, 1, 3), h_last.swapaxes(0, 1), c_last.swapaxes(0, 1)
    return [y, h_last, c_last] if kind == "LSTM" else [y, h_last]


def _step(
    kind: str,
    functions: list[Callable[[Any], Any]],
    attributes: dict[str, Any],
    x: Any,
    h: Any,
    c: Any,
    weights: tuple[Any, ...],
) -> tuple[Any, Any]:
    w, r, wb, rb, p = weights
    f, g = functions[0], functions[min(1, len(functions) - 1)]
    if kind == "RNN":
        return f(w[0] @ x + r[0] @ h + wb[0] + rb[0]), c
    if kind == "GRU":
        z, reset = (f(w[k] @ x + r[k] @ h + wb[k] + rb[k]) for k in (0, 1))
        if attributes.get("linear_before_reset", 0):
            new = g(w[2] @ x + reset * (r[2] @ h + rb[2]) + wb[2])
        else:
            new = g(w[2] @ x + r[2] @ (reset * h) + rb[2] + wb[2])
        return (1 - z) * new + z * h, c
    i = f(w[0] @ x + r[0] @ h + p[0] * c + wb[0] + rb[0])
    forget = 1 - i if attributes.get("input_forget", 0) else f(w[2] @ x + r[2] @ h + p[2] * c + wb[2] + rb[2])
    c = forget * c + i * g(w[3] @ x + r[3] @ h + wb[3] + rb[3])
    o = f(w[1] @ x + r[1] @ h + p[1] * c + wb[1] + rb[1])
    return o * functions[2](c), c
