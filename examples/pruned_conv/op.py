"""ChannelGather: the channels of an image, or of a convolution's weights, that pruning has kept.

After pruning a convolution reads some channels of its input. Which, is data (`kept`): a network may choose them when
it is run. What is left is a gather in front of a smaller convolution, of the images and of the weights alike, and both
are this operator; its gradient puts what comes back into the channels that it came from. Where `kept` is constant the
compiler gathers the weights itself, so that the file holds the small ones only.
"""

import numpy as np

import opforge as of

_TYPES = {"T": of.floating, "I": of.index}


def _reference(x, kept):
    return x[:, kept]


def _reference_scatter(y, kept, like):
    x = np.zeros(like.shape, y.dtype)
    np.add.at(x, (slice(None), kept), y)
    return x


channel_gather = of.kernel(
    "examples.prune::ChannelGather",
    "(x: T[n, c, h, w], kept: I[k]) -> (y: T[n, k, h, w])",
    types=_TYPES,
    sources=["cpu.cc"],
    reference=_reference,
    gradient=lambda inputs, outputs, grads, attrs: {"x": channel_scatter(grads.y, inputs.kept, inputs.x)},
    onnx_body="y = Gather <axis: int = 1> (x, kept)",
    doc="The channels `kept` of x, in that order; a channel may be named twice.",
)

channel_scatter = of.kernel(
    "examples.prune::ChannelScatter",
    "(y: T[n, k, h, w], kept: I[k], like: T[n, c, h, w]) -> (x: T[n, c, h, w])",
    types=_TYPES,
    sources=["cpu.cc"],
    reference=_reference_scatter,
    gradient=lambda inputs, outputs, grads, attrs: {"y": channel_gather(grads.x, inputs.kept), "like": None},
    doc="y put into channels `kept` of zeros like `like`; what is named twice adds up.",
)
