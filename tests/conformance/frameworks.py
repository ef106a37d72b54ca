"""How the parity tests reach each framework: NumPy arrays in, NumPy arrays out; eager, traced, with open shapes."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import util

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

FRAMEWORKS = [
    pytest.param(name, marks=pytest.mark.skipif(util.find_spec(name) is None, reason=f"{name} is not installed"))
    for name in ("torch", "tensorflow", "jax")
]
MODES = ("eager", "traced", "dynamic")


def _flat(result):
    return list(result) if isinstance(result, tuple | list) else [result]


class _Torch:
    def __init__(self):
        import torch

        from opforge.frameworks.torch._arrays import to_numpy, to_tensor

        self.torch, self.to_numpy = torch, to_numpy
        self.tensor = lambda a: None if a is None else to_tensor(np.array(a, order="C"))

    def forward(self, op, arrays, attributes, mode):
        torch = self.torch
        inputs = [self.tensor(a) for a in arrays]
        function = lambda *v: op(*v, **attributes)  # noqa: E731
        if mode != "eager":
            torch._dynamo.reset()
            function = torch.compile(function, backend="eager", fullgraph=True, dynamic=mode == "dynamic")
        return [self.to_numpy(t) for t in _flat(function(*inputs))]

    def derivatives(self, op, arrays, attributes, weights, directions):
        torch = self.torch
        inputs = [self.tensor(a) for a in arrays]
        leaves = [t.requires_grad_() for t in inputs if t is not None and t.is_floating_point()]
        value = sum((self.tensor(w) * y).sum() for w, y in zip(weights, _flat(op(*inputs, **attributes)), strict=True))
        first = torch.autograd.grad(value, leaves, create_graph=True, allow_unused=True)
        first = [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, first, strict=True)]
        along = sum((g * self.tensor(d)).sum() for g, d in zip(first, directions, strict=True))
        second = torch.autograd.grad(along, leaves, allow_unused=True)
        second = [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, second, strict=True)]
        return [self.to_numpy(t) for t in first], [self.to_numpy(t) for t in second]


class _TensorFlow:
    def __init__(self):
        import tensorflow as tf

        self.tf = tf
        self.tensor = lambda a: None if a is None else tf.constant(a)

    def forward(self, op, arrays, attributes, mode):
        tf = self.tf
        inputs = [self.tensor(a) for a in arrays]
        present = [t for t in inputs if t is not None]

        def of_present(*values):
            rest = iter(values)
            return op(*(None if t is None else next(rest) for t in inputs), **attributes)

        function = of_present
        if mode == "traced":
            function = tf.function(of_present)
        elif mode == "dynamic":
            specs = [tf.TensorSpec([None] * t.shape.rank, t.dtype) for t in present]
            function = tf.function(of_present, input_signature=specs)
        return [t.numpy() for t in _flat(function(*present))]

    def derivatives(self, op, arrays, attributes, weights, directions):
        tf = self.tf
        inputs = [self.tensor(a) for a in arrays]
        leaves = [t for t in inputs if t is not None and t.dtype.is_floating]
        with tf.GradientTape() as outer:
            outer.watch(leaves)
            with tf.GradientTape() as inner:
                inner.watch(leaves)
                outputs = _flat(op(*inputs, **attributes))
                value = tf.add_n([tf.reduce_sum(w * y) for w, y in zip(weights, outputs, strict=True)])
            first = inner.gradient(value, leaves, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            along = tf.add_n([tf.reduce_sum(g * d) for g, d in zip(first, directions, strict=True)])
        second = outer.gradient(along, leaves, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [t.numpy() for t in first], [t.numpy() for t in second]


class _Jax:
    def __init__(self):
        import jax

        from opforge.frameworks.jax._arrays import enable_x64

        self.jax, self.enable_x64 = jax, enable_x64
        self.tensor = lambda a: None if a is None else jax.numpy.asarray(a)

    def forward(self, op, arrays, attributes, mode):
        jax = self.jax
        with self.enable_x64(True):
            inputs = [self.tensor(a) for a in arrays]
            function: Callable = lambda *v: op(*v, **attributes)  # noqa: E731
            if mode == "traced":
                function = jax.jit(lambda *v: jax.tree.map(lambda t: t, op(*v, **attributes)))
            elif mode == "dynamic":
                function = self._exported(op, inputs, attributes)
            return [np.asarray(t) for t in _flat(function(*inputs))]

    def _exported(self, op, inputs, attributes):
        """Exported with a symbolic first dimension that all inputs of its size share."""
        from jax import export

        import opforge.jax

        sizes = [t.shape[0] for t in inputs if t is not None and t.ndim]
        scope = export.SymbolicScope()
        chosen = max(sizes, default=0)
        if chosen < 2 or op.formula is None:
            return self.jax.jit(lambda *v: op(*v, **attributes))
        largest = max(t.ndim for t in inputs if t is not None)
        specs = []
        for t in inputs:
            text = ", ".join(
                "b" if k == 0 and t.ndim == largest and size == chosen else str(size) for k, size in enumerate(t.shape)
            )
            specs.append(self.jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), t.dtype))
        whole = export.export(
            self.jax.jit(lambda *v: op(*v, **attributes)), disabled_checks=opforge.jax.disabled_checks()
        )(*specs)
        return export.deserialize(whole.serialize()).call

    def derivatives(self, op, arrays, attributes, weights, directions):
        jax = self.jax
        with self.enable_x64(True):
            inputs = [self.tensor(a) for a in arrays]
            wanted = [
                k for k, t in enumerate(inputs) if t is not None and jax.numpy.issubdtype(t.dtype, jax.numpy.floating)
            ]

            def value(*leaves):
                every = list(inputs)
                for k, leaf in zip(wanted, leaves, strict=True):
                    every[k] = leaf
                outputs = _flat(op(*every, **attributes))
                return sum((w * y).sum() for w, y in zip(weights, outputs, strict=True))

            places = tuple(range(len(wanted)))
            gradient = jax.grad(value, argnums=places)
            along = lambda *v: sum((g * d).sum() for g, d in zip(gradient(*v), directions, strict=True))  # noqa: E731
            leaves = [inputs[k] for k in wanted]
            first = jax.jit(gradient)(*leaves)
            second = jax.jit(jax.grad(along, argnums=places))(*leaves)
            return [np.asarray(t) for t in first], [np.asarray(t) for t in second]


_KINDS = {"torch": _Torch, "tensorflow": _TensorFlow, "jax": _Jax}
_made: dict[str, object] = {}


def framework(name):
    """The framework's harness, imported on first use."""
    if name not in _made:
        _made[name] = _KINDS[name]()
    return _made[name]
