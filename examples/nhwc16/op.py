"""PixelConv16: a convolution of one pixel (1 x 1) in NHWC with the channels filled up to 16, as one atomic operator.

A device that reads sixteen channels at once wants them side by side, and zeros where an image has fewer. Seen from a
network the operator takes and gives NCHW as any convolution does; the conversion there and back is inside. So nothing
between can pull the layout apart, no pass has to know it, and the layout is an attribute of the node, which the ONNX
file and the `.bin` carry and `opforge inspect --nodes` shows. It has no default: what is its default, a file may leave
out.
"""

import numpy as np

import opforge as of

LANES = 16
_TYPES = {"T": of.floating}


def to_nhwc16(x):
    """Put channels last and fill them up with zeros: [n, c, h, w] to [n, h, w, 16 * ceil(c / 16)]."""
    return np.pad(np.moveaxis(x, 1, 3), ((0, 0), (0, 0), (0, 0), (0, -x.shape[1] % LANES)))


def _reference(x, weight, *, layout):
    """As the device would: both sides filled up; zeros add nothing."""
    rows = np.pad(weight, ((0, 0), (0, -weight.shape[1] % LANES)))
    return np.moveaxis(to_nhwc16(x) @ rows.T, 3, 1)


def _gradient(inputs, outputs, grads, attrs):
    return {
        "x": pixel_conv16_grad_x(grads.y, inputs.weight, layout=attrs.layout),
        "weight": pixel_conv16_grad_weight(inputs.x, grads.y, layout=attrs.layout),
    }


pixel_conv16 = of.kernel(
    "examples.layout::PixelConv16",
    "(x: T[n, c, h, w], weight: T[m, c]; layout: string) -> (y: T[n, m, h, w])",
    types=_TYPES,
    sources=["cpu.cc"],
    reference=_reference,
    gradient=_gradient,
    doc="y[:, m] = the sum over c of weight[m, c] x[:, c], computed in the layout that the attribute names.",
)

pixel_conv16_grad_x = of.kernel(
    "examples.layout::PixelConv16GradX",
    "(y: T[n, m, h, w], weight: T[m, c]; layout: string) -> (x: T[n, c, h, w])",
    types=_TYPES,
    sources=["cpu.cc"],
    reference=lambda y, weight, *, layout: np.einsum("nmhw,mc->nchw", y, weight),
    gradient=lambda inputs, outputs, grads, attrs: {
        "y": pixel_conv16(grads.x, inputs.weight, layout=attrs.layout),
        "weight": pixel_conv16_grad_weight(grads.x, inputs.y, layout=attrs.layout),
    },
)

pixel_conv16_grad_weight = of.kernel(
    "examples.layout::PixelConv16GradWeight",
    "(x: T[n, c, h, w], y: T[n, m, h, w]; layout: string) -> (weight: T[m, c])",
    types=_TYPES,
    sources=["cpu.cc"],
    reference=lambda x, y, *, layout: np.einsum("nchw,nmhw->mc", x, y),
    gradient=lambda inputs, outputs, grads, attrs: {
        "x": pixel_conv16_grad_x(inputs.y, grads.weight, layout=attrs.layout),
        "y": pixel_conv16(inputs.x, grads.weight, layout=attrs.layout),
    },
)
