"""The TensorFlow host: operators as operations, with gradients of any order, Keras layers and SavedModels.

One prebuilt adapter on TensorFlow's C API serves every operator and several versions of TensorFlow.
"""

from __future__ import annotations

import tensorflow as tf

from opforge.frameworks.tensorflow._calls import (
    call,
    decomposed,
    decomposing,
    function,
    register,
    register_library,
    specialize,
)
from opforge.frameworks.tensorflow._entries import Entry, all_entries, tensorflow_name

__all__ = [
    "Entry",
    "all_entries",
    "call",
    "decomposed",
    "decomposing",
    "function",
    "name",
    "register",
    "register_library",
    "specialize",
    "tensorflow_name",
    "version",
]

name = "tensorflow"


def version() -> str:
    """Return TensorFlow's version."""
    return str(tf.__version__)
