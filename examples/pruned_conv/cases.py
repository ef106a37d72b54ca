"""Cases of ChannelGather and ChannelScatter."""


def _gather(name, x, kept):
    return {"name": name, "inputs": {"x": {"shape": x, "normal": 1.0}, "kept": {"values": kept}}}


def _scatter(name, y, kept, like):
    inputs = {"y": {"shape": y, "normal": 1.0}, "kept": {"values": kept}, "like": {"shape": like, "normal": 1.0}}
    return {"name": name, "inputs": inputs}


CASES = {
    "ChannelGather": [
        _gather("some", [2, 5, 3, 4], [4, 0, 2]),
        _gather("all, turned round", [1, 3, 2, 2], [2, 1, 0]),
        _gather("one twice", [2, 3, 1, 7], [1, 1]),
        _gather("no image", [0, 3, 2, 2], [1]),
        _gather("no pixels", [2, 3, 0, 4], [1, 2]),
    ],
    "ChannelScatter": [
        _scatter("some", [2, 3, 3, 4], [4, 0, 2], [2, 5, 3, 4]),
        _scatter("one twice", [2, 2, 1, 7], [1, 1], [2, 3, 1, 7]),
        _scatter("no image", [0, 1, 2, 2], [1], [0, 3, 2, 2]),
    ],
}
