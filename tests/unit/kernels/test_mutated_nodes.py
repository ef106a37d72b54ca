"""Nodes whose inputs and attributes do not fit each other are refused or run, but never read or write elsewhere."""

from __future__ import annotations

import random

import numpy as np
import pytest

from opforge.errors import OpforgeError
from tests.unit.kernels.graphs import Net

F = np.float32


def ones(*shape: int, dtype=F) -> np.ndarray:
    return np.ones(shape, dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


ROIS = np.array([[0, 0, 2, 2]], F)
NODES = {
    "Trilu": ([ones(3, 4), np.array(1)], {"upper": 0}, 1),
    "Compress": ([ones(3, 4), np.array([True, False, True])], {"axis": 0}, 1),
    "ReverseSequence": ([ones(3, 4), ints(1, 2, 3, 1)], {"time_axis": 0, "batch_axis": 1}, 1),
    "TensorScatter": ([ones(2, 3, 4), ones(2, 2, 4), ints(0, 1)], {"axis": 1, "mode": "linear"}, 1),
    "EyeLike": ([ones(3, 4)], {"k": 1}, 1),
    "BitShift": ([ones(3, dtype=np.int32), ones(3, dtype=np.int32)], {"direction": "LEFT"}, 1),
    "CumProd": ([ones(3, 4), np.array(1)], {"reverse": 1}, 1),
    "Hardmax": ([ones(3, 4)], {"axis": 1}, 1),
    "GridSample": ([ones(1, 2, 3, 4), ones(1, 2, 2, 2)], {"mode": "linear", "padding_mode": "border"}, 1),
    "RoiAlign": ([ones(1, 2, 4, 4), ROIS, ints(0)], {"output_height": 2, "output_width": 2, "sampling_ratio": 1}, 1),
    "MaxRoiPool": ([ones(1, 2, 4, 4), np.array([[0, 0, 0, 2, 2]], F)], {"pooled_shape": [2, 2]}, 1),
    "DeformConv": ([ones(1, 2, 4, 4), ones(2, 2, 2, 2), ones(1, 8, 3, 3)], {"group": 1, "offset_group": 1}, 1),
    "Col2Im": ([ones(1, 4, 4), ints(3, 3), ints(2, 2)], {"strides": [1, 1], "pads": [0, 0, 0, 0]}, 1),
    "MaxUnpool": (
        [ones(1, 1, 2, 2), ints(0, 3, 9, 12).reshape(1, 1, 2, 2)],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        1,
    ),
    "DFT": ([ones(1, 5, 2), np.array(6), np.array(1)], {"onesided": 1, "inverse": 0}, 1),
    "STFT": ([ones(1, 9, 1), np.array(2), ones(4)], {"onesided": 1}, 1),
    "MelWeightMatrix": ([np.array(4), np.array(16), np.array(8192), np.array(0, F), np.array(4096, F)], {}, 1),
    "Det": ([ones(2, 3, 3)], {}, 1),
    "LRN": ([ones(1, 4, 3)], {"size": 3}, 1),
    "NonMaxSuppression": ([ones(1, 5, 4), ones(1, 2, 5), np.array(2)], {"center_point_box": 0}, 1),
    "Unique": ([ones(3, 4)], {"axis": 1, "sorted": 1}, 4),
    "RandomUniform": ([], {"shape": [3, 4]}, 1),
    "Bernoulli": ([ones(3)], {}, 1),
    "Multinomial": ([ones(2, 3)], {"sample_size": 4}, 1),
    "Dropout": ([ones(3), np.array(0.5, F), np.array(True)], {}, 2),
    "TfIdfVectorizer": (
        [ints(1, 2, 3)],
        {
            "mode": "TF",
            "min_gram_length": 1,
            "max_gram_length": 2,
            "max_skip_count": 1,
            "ngram_counts": [0, 2],
            "ngram_indexes": [0, 1, 2],
            "pool_int64s": [1, 2, 1, 2],
        },
        1,
    ),
    "Resize": ([ones(1, 1, 4, 4), None, None, ints(1, 1, 2, 6)], {"mode": "cubic", "antialias": 1}, 1),
    "Conv": ([ones(1, 2, 4, 4).astype(np.float64), ones(2, 1, 2, 2).astype(np.float64)], {"group": 2}, 1),
    "MaxPool": ([ones(1, 1, 4, 4, dtype=np.uint8)], {"kernel_shape": [2, 2], "pads": [0, 1, 0, 1]}, 2),
}
SINCE = {"CumProd": 26, "BitShift": 28, "TensorScatter": 24, "DFT": 20, "GridSample": 20, "Dropout": 22}
TYPES = (np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_)
WORDS = ("", "linear", "circular", "LEFT", "TF", "reflection", "nothing")
NUMBERS = (0, 1, -1, 2, 3, 7, -8, 1 << 20, -(1 << 62), (1 << 63) - 1)


def _array(rng: random.Random, a: np.ndarray) -> np.ndarray:
    kind = rng.randrange(5)
    if kind == 0:
        return a.astype(rng.choice(TYPES))
    if kind == 1:
        shape = list(a.shape)
        if shape:
            shape[rng.randrange(len(shape))] = rng.choice((0, 1, 2, 5))
        return np.resize(a, shape).astype(a.dtype) if 0 not in shape else np.zeros(shape, a.dtype)
    if kind == 2:
        return a[None] if rng.random() < 0.5 or a.ndim == 0 or not len(a) else a[0]
    if kind == 3 and a.size and a.dtype.kind in "if":
        a = a.copy()
        value = rng.choice(NUMBERS)
        low, high = (np.iinfo(a.dtype).min, np.iinfo(a.dtype).max) if a.dtype.kind == "i" else (-(2**70), 2**70)
        a.flat[rng.randrange(a.size)] = (
            max(low, min(high, value)) if rng.random() < 0.9 or a.dtype.kind == "i" else np.nan
        )
    return a


def _attribute(rng: random.Random, value: object) -> object:
    if isinstance(value, str):
        return rng.choice(WORDS)
    if isinstance(value, list):
        changed = [rng.choice(NUMBERS) if rng.random() < 0.4 else v for v in value]
        return changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.3 else changed
    return rng.choice(NUMBERS)


def attempt(op: str, rng: random.Random, most: int) -> bool:
    """Run a node with up to ``most`` changes; tell whether it ran."""
    arrays, attributes, outputs = NODES[op]
    arrays, attributes = list(arrays), dict(attributes)
    for _ in range(rng.randrange(most + 1)):
        if arrays and rng.random() < 0.6:
            k = rng.randrange(len(arrays))
            arrays[k] = None if arrays[k] is None or (k and rng.random() < 0.1) else _array(rng, arrays[k])
        elif attributes:
            name = rng.choice(list(attributes))
            attributes[name] = _attribute(rng, attributes[name])
    net = Net()
    known = rng.random() < 0.5
    values = [-1 if a is None else net.constant(a) if k and known else net.feed(a) for k, a in enumerate(arrays)]
    first = next((net.program.values[v].dtype for v in values if v >= 0), 1)
    later = {"NonMaxSuppression": [7], "Dropout": [first, 9]}.get(op, [first, 7, 7, 7])
    dtypes = [1] if op in ("RandomUniform", "MelWeightMatrix", "TfIdfVectorizer") else later[:outputs]
    if op == "Multinomial":
        dtypes = [6]
    result = net.onnx(op, SINCE.get(op, 19), values, dtypes=dtypes, **attributes)
    try:
        net.run(result if outputs == 1 else result[0])
    except OpforgeError:
        return False
    return True


@pytest.mark.parametrize("op", NODES)
def test_mutations(op):
    rng = random.Random(op)
    assert attempt(op, rng, 0), "the node itself must run"
    ran = [attempt(op, rng, 3) for _ in range(15)]
    assert not all(ran) or op in ("Bernoulli", "EyeLike"), "some changes must be refused"
