"""One call of an emulated kernel's launcher, as a script: run alone, under a sanitizer's runtime.

It imports nothing of opforge and no NumPy: both take long and allocate much while a sanitizer watches. Buffers come
from malloc itself, so that each has the sanitizer's guards at both ends.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

_NUMBERS = {
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


def main(folder: Path) -> int:
    """Do what ``call.json`` in the folder says; leave buffers and status there."""
    call = json.loads((folder / "call.json").read_text(encoding="utf-8"))
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    buffers: dict[int, tuple[int, int]] = {}
    arguments: list[Any] = []
    for index, one in enumerate(call["arguments"]):
        if one["kind"] == "buffer":
            data = (folder / f"{index}.bin").read_bytes()
            memory = libc.malloc(len(data))
            ctypes.memmove(memory, data, len(data))
            buffers[index] = (memory, len(data))
            arguments.append(ctypes.c_void_p(memory))
        elif one["kind"] == "null":
            arguments.append(ctypes.c_void_p(None))
        else:
            arguments.append(_NUMBERS[one["kind"]](one["value"]))
    library = ctypes.CDLL(call["library"])
    library.opforge_cuda_order(ctypes.c_int(call["order"]), ctypes.c_uint(call["seed"]))
    library.opforge_cuda_error_text.restype = ctypes.c_char_p
    function = getattr(library, call["function"])
    function.restype = ctypes.c_int
    status = function(*arguments)
    for index, (memory, size) in buffers.items():
        (folder / f"{index}.bin").write_bytes(ctypes.string_at(memory, size))
    result = {"status": status, "text": library.opforge_cuda_error_text().decode("utf-8", "replace")}
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
