"""Occupancy: equal to NVIDIA's own calculator, and to its documented example."""

import importlib.metadata
import random
import subprocess

import pytest

from opforge.build.toolchain import find_compiler
from opforge.cli import main
from opforge.cuda import measure
from opforge.cuda.resources import LIMITS, Resources, best_block, occupancy, read_resources
from opforge.errors import ArgumentError

WORDS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5totalPKfPfi' for 'sm_80'
ptxas info    : Function properties for _Z5totalPKfPfi
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 38 registers, used 1 barriers, 2048 bytes smem, 3336 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compiling entry function '_Z5gelu' for 'sm_90a'
ptxas info    : Function properties for _Z5gelu
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers, 368 bytes cmem[0]
"""


def header():
    """The folder of cuda_occupancy.h, from the wheel of CUDA's runtime (test extra)."""
    try:
        files = importlib.metadata.files("nvidia-cuda-runtime")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("nvidia-cuda-runtime is not installed")
    (found,) = [file for file in files if file.name == "cuda_occupancy.h"]
    return found.locate().parent


def test_equal_to_nvidias_calculator_on_20000_cases(tmp_path):
    program = tmp_path / "occupancy"
    source = __file__.replace("unit/cuda/test_occupancy.py", "data/cuda/occupancy.cpp")
    subprocess.run([*find_compiler().command, f"-I{header()}", "-w", source, "-o", program], check=True)
    rng = random.Random(0)
    cases = []
    for _ in range(20000):
        capability = rng.choice(list(LIMITS))
        shared = rng.choice([0, rng.randint(0, 8000), rng.randint(0, LIMITS[capability].shared_block + 100)])
        cases.append((capability, rng.randint(1, 1024), rng.choice([rng.randint(1, 255), rng.randint(16, 64)]), shared))
    lines = []
    for capability, threads, registers, shared in cases:
        limits = LIMITS[capability]
        device = f"{capability} {limits.warps} {limits.shared} {limits.shared_block} {limits.reserved}"
        lines.append(f"{device} {threads} {registers} {shared}\n")
    done = subprocess.run([program], input="".join(lines), capture_output=True, text=True, check=True)
    theirs = [int(line) for line in done.stdout.split()]
    assert [occupancy(*case).blocks for case in cases] == theirs
    assert len(set(theirs)) > 10


def test_the_example_of_the_best_practices_guide():
    """37 registers: 12 blocks of 128 threads, 75 % of the warps; 320 threads give 62.5 %."""
    found = occupancy(80, 128, 37)
    assert (found.blocks, found.fraction, found.limiting) == (12, 0.75, "registers")
    assert occupancy(80, 320, 37).fraction == 0.625


@pytest.mark.parametrize(
    ("arguments", "limiting"),
    [
        ((90, 1024, 16), "warps"),
        ((90, 32, 16), "blocks"),
        ((90, 256, 128), "registers"),
        ((90, 64, 16, 100000), "shared memory"),
    ],
)
def test_what_limits(arguments, limiting):
    assert occupancy(*arguments).limiting == limiting


def test_a_block_that_does_not_fit():
    assert occupancy(86, 256, 32, 200000).blocks == 0
    assert occupancy(86, 256, 256).blocks == 0
    with pytest.raises(ArgumentError, match="sm_86: no block of this kernel fits"):
        best_block(86, 32, 200000)


def test_the_best_block():
    assert best_block(90, 16) == 64  # with 32 threads the number of blocks limits
    assert best_block(80, 37) in (32 * k for k in range(1, 33))
    threads = best_block(80, 37)
    assert occupancy(80, threads, 37).fraction >= max(occupancy(80, t, 37).fraction for t in range(32, 1025, 32))


def test_words_of_ptxas():
    assert read_resources(WORDS) == [
        Resources("_Z5totalPKfPfi", 80, 38, 2048, 8, 12, 16),
        Resources("_Z5gelu", 90, 16),
    ]
    with pytest.raises(ArgumentError, match=r"not the words of ptxas(?s:.*)nvcc -Xptxas -v(?s:.*)something"):
        read_resources("something")


def test_what_cannot_be():
    with pytest.raises(ArgumentError, match=r"unknown architecture(?s:.*)sm_75, sm_80(?s:.*)sm_61"):
        occupancy(61, 128, 32)
    with pytest.raises(ArgumentError, match=r"no such block(?s:.*)1 to 1024 threads(?s:.*)2000 threads"):
        occupancy(80, 2000, 32)


def folder(path):
    path.mkdir()


BAD = [
    ("lib.so", None, None, "got: there is no such library"),
    ("lib.so", folder, None, "got: the library is a folder"),
    ("lib.so", b"", None, "got: there is no lib.manifest.json"),
    ("lib.so", b"text", b"", "got: lib.manifest.json has no compiler_words"),
    ("lib.so", b"text", b"[]", "got: lib.manifest.json has no compiler_words"),
    ("lib.so", b"text", b"[" * 100_000, "got: lib.manifest.json has no compiler_words"),
    ("lib.so", b"text", b'{"compiler_words": 3}', "the library is for the CPU, or the file is damaged"),
    ("lib.so", b"text", folder, "got: there is no lib.manifest.json"),
    ("k.cu", None, None, "got: No such file or directory"),
    ("k.cu", folder, None, "got: Is a directory"),
    ("k.cu", b"\x95\x00", None, "got: invalid start byte at byte 0"),
]


@pytest.mark.parametrize(("name", "content", "manifest", "words"), BAD)
def test_files_that_are_none(tmp_path, monkeypatch, capsys, name, content, manifest, words):
    """No compiler is asked for: what is wrong with the file is said on any machine."""
    monkeypatch.setattr(measure, "find_toolkit", lambda: pytest.fail("a compiler was looked for"))
    path = tmp_path / name
    for place, given in ((path, content), (path.with_suffix(".manifest.json"), manifest)):
        if callable(given):
            given(place)
        elif given is not None:
            place.write_bytes(given)
    assert main(["occupancy", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path}: ")
    assert words in said
    assert "  expected: " in said and "  to do: " in said


@pytest.mark.parametrize("command", [["build", "--device", "cuda"], ["check"]])
def test_a_library_is_no_package(tmp_path, monkeypatch, capsys, command):
    """It was imported as a module of Python, since its name looks like one in a package."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.so").touch()
    assert main([command[0], "some.so", *command[1:]]) == 2
    assert "not a Python file" in capsys.readouterr().err
