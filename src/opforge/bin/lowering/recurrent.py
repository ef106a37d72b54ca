"""LSTM, GRU and RNN with constant weights: the weights packed for the runtime, the gates of 16 units side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opforge.bin.lowering.graph import FLOAT, Node, Value
from opforge.passes._dims import Dim

__all__ = ["lower_gru", "lower_lstm", "lower_rnn"]

Array = NDArray[np.float32]
BLOCK = 16


def _side_by_side(gates: Array) -> Array:
    """Turn ``[gates, hidden, ...]`` into ``[columns, ...]``: row ``(unit // 16 * gates + gate) * 16 + unit % 16``."""
    missing = -gates.shape[1] % BLOCK
    padded = np.pad(gates, [(0, 0), (0, missing), *[(0, 0)] * (gates.ndim - 2)])
    blocks = padded.reshape(len(gates), -1, BLOCK, *gates.shape[2:])
    return np.ascontiguousarray(blocks.swapaxes(0, 1)).reshape(-1, *gates.shape[2:])


def _weights(name: str, gates: Array) -> Value:
    matrix = _side_by_side(gates).T  # [k, columns]
    return Value(name, FLOAT, [Dim.of(d) for d in matrix.shape], np.ascontiguousarray(matrix), packing="matmul16")


def _vector(name: str, data: Array) -> Value:
    return Value(name, FLOAT, [Dim.of(data.size)], np.ascontiguousarray(data.reshape(-1)))


def _direction(
    kind: str, name: str, w: Array, r: Array, b: Array | None, p: Array | None, *, linear: bool
) -> list[Value | None]:
    """Pack one direction: weights of the input and of the state, bias, and what the kind needs besides."""
    split = kind == "GRU" and not linear
    packed: list[Value | None] = [_weights(f"{name}__w", w), _weights(f"{name}__r", r[:2] if split else r), None, None]
    if split:
        packed[3] = _weights(f"{name}__r_last", r[2:])
    if b is not None:
        of_input, of_state = b[: len(w)].copy(), b[len(w) :].copy()
        if kind == "GRU" and linear:  # the last gate's second bias stands inside the reset
            of_input[:2] += of_state[:2]
            of_state[:2] = 0
            packed[3] = _vector(f"{name}__state_bias", _side_by_side(of_state))
        else:
            of_input += of_state
        packed[2] = _vector(f"{name}__bias", _side_by_side(of_input))
    if p is not None:
        packed[3] = _vector(f"{name}__peepholes", np.pad(p, [(0, 0), (0, -p.shape[1] % BLOCK)]))
    return packed


def _lower(
    kind: str,
    inputs: list[Value | None],
    outputs: list[Value | None],
    attributes: dict[str, Any],
    origin: list[str],
) -> Node | None:
    x, w, r, b, lengths, h, c, p = (*inputs, *[None] * 8)[:8]
    constants = [v for v in (w, r, b, p) if v is not None]
    if x is None or w is None or r is None or x.dtype != FLOAT or any(v.data is None for v in constants):
        return None  # weights that are computed are packed in every run
    assert w.data is not None and r.data is not None
    hidden = r.data.shape[-1]
    directions = 2 if attributes.get("direction", "forward") == "bidirectional" else 1
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    if r.data.shape != (directions, gates * hidden, hidden) or w.data.shape[:2] != r.data.shape[:2] or not hidden:
        return None  # the runtime says what is wrong
    made: list[Value | None] = [x, lengths, h, c]
    linear = bool(attributes.get("linear_before_reset", 0))
    for d in range(directions):
        biases = None if b is None or b.data is None else b.data[d].reshape(2 * gates, hidden)
        peepholes = None if p is None or p.data is None else p.data[d].reshape(3, hidden)
        name = f"{w.name}_{d}" if directions > 1 else w.name
        w_gates, r_gates = (v.data[d].reshape(gates, hidden, -1) for v in (w, r) if v.data is not None)
        made += _direction(kind, name, w_gates, r_gates, biases, peepholes, linear=linear)
    return Node("opforge", kind, 1, made, outputs, {**attributes, "hidden_size": hidden}, origin)


def lower_lstm(
    inputs: list[Value | None], outputs: list[Value | None], attributes: dict[str, Any], origin: list[str]
) -> Node | None:
    """Pack an LSTM."""
    return _lower("LSTM", inputs, outputs, attributes, origin)


def lower_gru(
    inputs: list[Value | None], outputs: list[Value | None], attributes: dict[str, Any], origin: list[str]
) -> Node | None:
    """Pack a GRU."""
    return _lower("GRU", inputs, outputs, attributes, origin)


def lower_rnn(
    inputs: list[Value | None], outputs: list[Value | None], attributes: dict[str, Any], origin: list[str]
) -> Node | None:
    """Pack an RNN."""
    return _lower("RNN", inputs, outputs, attributes, origin)
