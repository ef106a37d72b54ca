"""Tools from outside: NVTX and ITT ranges, static probes, and that a run which nobody watches reads no clock."""

import os
import platform
import re
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from opforge import _paths
from opforge.build.toolchain import find_compiler
from tests.unit.profiling.models import mlp_bin

HERE = Path(__file__).parent
RUN = """
import sys
import numpy as np
from opforge.bin.session import Session
session = Session(sys.argv[1], threads=1)
x = {"x": np.ones((2, 8), np.float32)}
for _ in range(int(sys.argv[2])):
    session.run(x)
"""


def itt_headers() -> Path | None:
    """ITT's headers, which TensorFlow's package has."""
    spec = find_spec("tensorflow")
    places = spec.submodule_search_locations if spec is not None else None
    found = Path(places[0], "include/external/onednn/src/common/ittnotify") if places else None
    return found if found is not None and (found / "ittnotify_config.h").exists() else None


def tool(name: str, folder: Path, *flags: str) -> Path:
    compiler = find_compiler()
    library = folder / f"{name}.so"
    source = str(HERE / f"{name}.c")
    subprocess.run([*compiler.command, "-x", "c", "-shared", "-fPIC", *flags, source, "-o", str(library)], check=True)
    return library


def run(model: Path, times: int, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, str(model), str(times)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    ("name", "variable", "ending"),
    [("fake_nvtx", "NVTX_INJECTION64_PATH", "pop 0"), ("fake_itt", "INTEL_LIBITTNOTIFY64", "pop opforge")],
)
def test_ranges_carry_operator_and_output(name: str, variable: str, ending: str, tmp_path: Path) -> None:
    model = mlp_bin(tmp_path)
    done = run(model, 2, **{variable: str(tool(name, tmp_path))})
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    pushes = [line for line in lines if line.startswith("push")]
    assert len(pushes) == 4 and lines[1::2] == [ending] * 4, lines
    assert [line.split(maxsplit=2 if name == "fake_nvtx" else 3)[-1] for line in pushes[:2]] == [
        "opforge::MatMul hidden", "opforge::MatMul y"
    ]  # fmt: skip


def test_a_collector_that_is_told_of_the_program(tmp_path: Path) -> None:
    """Its records are those of ITT's own header."""
    headers = itt_headers()
    if headers is None:
        pytest.skip("ITT's headers come with TensorFlow's package")
    model = mlp_bin(tmp_path)
    done = run(model, 1, INTEL_LIBITTNOTIFY64=str(tool("fake_collector", tmp_path, f"-I{headers}", "-w")))
    assert (done.returncode, done.stderr.splitlines()) == (
        0,
        ["push opforge 0 opforge::MatMul hidden", "pop opforge", "push opforge 0 opforge::MatMul y", "pop opforge"],
    )


def test_a_library_that_is_no_tool_is_left_alone(tmp_path: Path) -> None:
    model = mlp_bin(tmp_path)
    done = run(model, 1, NVTX_INJECTION64_PATH=str(_paths.runtime_library()), INTEL_LIBITTNOTIFY64="/nowhere.so")
    assert (done.returncode, done.stderr) == (0, "")


def notes() -> dict[str, tuple[int, int, str]]:
    """Probes in the library: name -> address, address of the semaphore, where the arguments are."""
    data = _paths.runtime_library().read_bytes()
    (offset,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + k * size) for k in range(count)]
    texts = headers[names][4]
    found = {}
    for header in headers:
        if data[texts + header[0] : data.index(b"\0", texts + header[0])] != b".note.stapsdt":
            continue
        at, end = header[4], header[4] + header[5]
        while at < end:
            name_size, body_size, kind = struct.unpack_from("<III", data, at)
            body = at + 12 + -(-name_size // 4) * 4
            assert (kind, data[at + 12 : at + 12 + name_size]) == (3, b"stapsdt\0")
            address, _, semaphore = struct.unpack_from("<QQQ", data, body)
            provider, name, arguments = data[body + 24 : body + body_size].split(b"\0")[:3]
            assert provider == b"opforge"
            found[name.decode()] = (address, semaphore, arguments.decode())
            at = body + -(-body_size // 4) * 4
    return found


NOP = 0x90 if platform.machine() == "x86_64" else 0x1F  # of aarch64: 1f 20 03 d5


def file_offset(data: bytes, address: int) -> int:
    (first,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for k in range(count):
        kind, _, offset, start, _, length = struct.unpack_from("<IIQQQQ", data, first + k * size)
        if kind == 1 and start <= address < start + length:
            return offset + address - start
    raise AssertionError(address)


def test_probes_are_described_in_the_library() -> None:
    found = notes()
    assert set(found) == {"node_begin", "node_end"}
    for address, semaphore, arguments in found.values():
        assert address and semaphore and re.fullmatch(r"8@\S+ -4@\S+", arguments)
    code = _paths.runtime_library().read_bytes()
    assert all(code[file_offset(code, address)] == NOP for address, _, _ in found.values())


CLOCKLESS = """
import ctypes, sys
import numpy as np
from opforge.bin.session import Session

libc = ctypes.CDLL(None)
session = Session(sys.argv[1], threads=1)
x = {"x": np.ones((2, 8), np.float32)}
session.run(x)
if sys.argv[2] == "on":
    session.profile()
    session.run(x)
if sys.argv[2].isdigit():  # what a tool does that attaches to a probe
    base = min(int(line.split("-")[0], 16) for line in open("/proc/self/maps") if "libopforge.so" in line)
    ctypes.c_uint16.from_address(base + int(sys.argv[2])).value += 1
assert libc.prctl(26, 2, 0, 0, 0) == 0, "PR_SET_TSC, PR_TSC_SIGSEGV: reading the counter ends the process"
for _ in range(100):
    session.run(x)
libc._exit(0)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="prctl(PR_SET_TSC) is of x86")
def test_a_run_that_nobody_watches_reads_no_clock(tmp_path: Path) -> None:
    """With the counter forbidden, rdtsc and the system's clock (which reads it too) end the process."""
    model = mlp_bin(tmp_path)
    off, on, probed = (
        subprocess.run([sys.executable, "-c", CLOCKLESS, str(model), mode], capture_output=True, text=True)
        for mode in ("off", "on", str(notes()["node_begin"][1]))
    )
    assert (off.returncode, off.stderr) == (0, "")
    assert on.returncode == -11, "a watched run reads the counter, so the test sees that"
    assert probed.returncode == -11, "a run is watched while a tool is attached to a probe"
