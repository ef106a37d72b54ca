"""Cases of PixelConv16 and of its gradients: channels below, at and above what a pixel is filled up to."""

_SIZES = [
    ("few channels", 2, 3, 2, 3, 5),
    ("sixteen", 1, 16, 3, 1, 2),
    ("seventeen", 2, 17, 1, 2, 4),
    ("no image", 0, 3, 2, 2, 2),
    ("no pixels", 2, 3, 0, 2, 2),
    ("no units", 1, 3, 2, 2, 0),
]


def _cases(*arguments):
    shapes = {
        "x": lambda n, c, h, w, m: [n, c, h, w],
        "y": lambda n, c, h, w, m: [n, m, h, w],
        "weight": lambda n, c, h, w, m: [m, c],
    }
    return [
        {
            "name": name,
            "inputs": {key: {"shape": shapes[key](*sizes), "normal": 1.0} for key in arguments},
            "attributes": {"layout": "nhwc16"},
        }
        for name, *sizes in _SIZES
    ]


CASES = {
    "PixelConv16": _cases("x", "weight"),
    "PixelConv16GradX": _cases("y", "weight"),
    "PixelConv16GradWeight": _cases("x", "y"),
}
