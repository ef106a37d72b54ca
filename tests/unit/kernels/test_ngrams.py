"""TfIdfVectorizer over integers, by its definition."""

from __future__ import annotations

import numpy as np
import pytest

from opforge.errors import OpforgeError
from tests.unit.kernels.one_node import check, run

RNG = np.random.default_rng(13)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("shape", [(12,), (2, 6), (0,), (3, 0)])
def test_ngrams(mode, shape):
    x = RNG.integers(0, 6, shape).astype(np.int64)
    options = {
        "min_gram_length": 1,
        "max_gram_length": 3,
        "max_skip_count": 2,
        "ngram_counts": [0, 3, 9],
        "ngram_indexes": [2, 0, 1, 3, 5, 4, 6],
        "pool_int64s": [1, 2, 5, 1, 2, 3, 3, 5, 0, 1, 2, 3],
        "weights": [0.5, 1.5, 2, 3, 4, 5, 6],
    }
    grams = [(1,), (2,), (5,), (1, 2), (3, 3), (5, 0), (1, 2, 3)]
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    counts = np.zeros((len(rows), 7), np.float32)
    for row, values in enumerate(rows):
        for gram, column in zip(grams, options["ngram_indexes"], strict=True):
            for step in (1,) if len(gram) == 1 else (1, 2, 3):
                for k in range(len(values) - (len(gram) - 1) * step):
                    counts[row, column] += tuple(values[k : k + len(gram) * step : step]) == gram
    weights = np.float32(options["weights"])
    want = {"TF": counts, "IDF": (counts > 0) * weights, "TFIDF": counts * weights}[mode]
    check("TfIdfVectorizer", [x], [np.float32], want=[want.reshape(*shape[:-1], 7)], mode=mode, **options)
    check(
        "TfIdfVectorizer", [x.astype(np.int32)], [np.float32], want=[want.reshape(*shape[:-1], 7)], mode=mode, **options
    )


def test_ngrams_are_checked():
    options = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    for counts, indexes, pool in (([5], [0], [1]), ([0], [0, 1], [1]), ([0, 1], [0, 1], [1, 2])):
        with pytest.raises(OpforgeError, match="a pool of integers that its lists describe"):
            lists = {"ngram_counts": counts, "ngram_indexes": indexes, "pool_int64s": pool}
            run("TfIdfVectorizer", [np.zeros(3, np.int64)], [np.float32], **options, **lists)
