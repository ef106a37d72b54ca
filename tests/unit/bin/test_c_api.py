"""The C API from plain C, and opforge-run, without Python in the process."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from opforge._paths import include_dir, library_dir
from opforge.bin.program import GraphRef
from tests.unit.bin.programs import Builder

ROOT = Path(__file__).resolve().parents[3]
RUN = library_dir() / "opforge-run"


def transposed(folder: Path) -> Path:
    b = Builder()
    b.output(b.node("Transpose", [b.input("x", np.float32, ["N", 4])], np.float32, [4, "N"], name="y", perm=[1, 0]))
    return b.save(folder / "model.bin")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RUN, *map(str, arguments)], capture_output=True, text=True, check=False)


def run_c(source: str, folder: Path, *arguments: Path) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None
    program = folder / "api"
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wno-long-long", f"-I{include_dir()}"]
    link = [f"-L{library_dir()}", "-lopforge", f"-Wl,-rpath,{library_dir()}"]
    subprocess.run([compiler, *flags, ROOT / "tests" / "cpp" / source, "-o", program, *link], check=True)
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.compiler
def test_from_plain_c(tmp_path: Path) -> None:
    result = run_c("runtime_api.c", tmp_path, transposed(tmp_path))
    assert (result.stdout, result.returncode) == ("good\n", 0)


@pytest.mark.compiler
def test_what_a_c_caller_leaves_out_is_an_error_and_no_crash(tmp_path: Path) -> None:
    result = run_c("runtime_absent.c", tmp_path, transposed(tmp_path))
    assert (result.stdout, result.returncode) == ("good\n", 0)


def appending(folder: Path) -> Path:
    """A sequence to which a tensor is added, and an optional that passes through."""
    b = Builder()
    s, x, o = (b.input(name, np.float32, ["N"]) for name in "sxo")
    t = b.node("SequenceInsert", [s, x], np.float32, ["N"])
    p = b.node("Identity", [o], np.float32, ["N"])
    b.output(t, p)
    for value, kind in ((s, "sequence"), (t, "sequence"), (o, "optional"), (p, "optional")):
        b.program.values[value].kind = kind
    return b.save(folder / "append.bin")


def endless(folder: Path) -> Path:
    """A loop without end that keeps a new tensor per iteration."""
    b = Builder()
    x = b.input("x", np.float32, ["N"])
    start = b.node("SequenceEmpty", [], np.float32)
    body = Builder(b.program, "body")
    body.input("i", np.int64, [])
    body.input("go", np.bool_, [])
    s = body.input("s", np.float32, None)
    body.graph.captures = [x]
    t = body.node("SequenceInsert", [s, body.node("Concat", [x, x], np.float32, [None], axis=0)], np.float32)
    body.output(body.constant(np.bool_(True)), t)
    looped = b.node("Loop", [-1, -1, start], np.float32, body=GraphRef(body.index))
    b.output(b.node("SequenceLength", [looped], np.int64, []))
    for value in (start, s, t, looped):
        b.program.values[value].kind = "sequence"
    return b.save(folder / "endless.bin")


def joining(folder: Path) -> Path:
    """Two vectors of strings, element by element."""
    b = Builder()
    a, c = b.input("a", object, ["N"]), b.input("b", object, ["N"])
    b.output(b.node("StringConcat", [a, c], object, ["N"], name="y"))
    return b.save(folder / "joining.bin")


@pytest.mark.compiler
def test_sequences_strings_and_limits_from_plain_c(tmp_path: Path) -> None:
    result = run_c("runtime_values.c", tmp_path, appending(tmp_path), endless(tmp_path), joining(tmp_path))
    assert (result.stdout, result.returncode) == ("good\n", 0)


def test_run_says_that_it_is_for_tensors(tmp_path: Path) -> None:
    model = appending(tmp_path)
    assert "input  s: sequence of f4[N]" in run(model, "--info").stdout
    result = run(model)
    assert result.returncode == 2
    assert "s: sequence of f4[N]" in result.stderr
    assert "o: optional f4[N]" in result.stderr
    assert "hint: use `opforge run`" in result.stderr
    assert "a: string[N]" in run(joining(tmp_path)).stderr


def test_run_reads_and_writes_arrays(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    result = run(transposed(tmp_path), "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path, "--threads", 1)
    assert (result.returncode, result.stderr) == (0, "")
    assert "y: f4[4, 3]" in result.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x.T)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.bin", "x.npy", "y.npy"]


def two_outputs(folder: Path, first: str, second: str) -> Path:
    b = Builder()
    x = b.input("x", np.float32, [2])
    b.output(*(b.node("Identity", [x], np.float32, [2], name=name) for name in (first, second)))
    return b.save(folder / "model.bin")


def test_run_refuses_outputs_that_would_share_a_file(tmp_path: Path) -> None:
    model = two_outputs(tmp_path, "a/b", "a_b")
    result = run(model, "--output-dir", tmp_path)
    assert "outputs 'a/b' and 'a_b' would both be written to a_b.npy" in result.stderr
    assert (result.returncode, result.stdout) == (2, "")
    assert [p.name for p in tmp_path.iterdir()] == ["model.bin"]
    assert run(model).returncode == 0


def test_run_writes_all_outputs_or_none(tmp_path: Path) -> None:
    model = two_outputs(tmp_path, "first", "second")
    out = tmp_path / "out"
    (out / "second.npy.part").mkdir(parents=True)  # cannot be opened for writing
    result = run(model, "--output-dir", out)
    assert f"{out}/second.npy cannot be written" in result.stderr
    assert result.returncode == 2
    assert not list(out.glob("first*"))


def test_run_with_random_inputs_times_and_profile(tmp_path: Path) -> None:
    result = run(transposed(tmp_path), "--shape", "x=5,4", "--repeat", 3, "--profile", "--verify", "full", "--no-mmap")
    assert result.returncode == 0, result.stderr
    assert "y: f4[4, 5]" in result.stdout
    assert "3 runs: median" in result.stdout
    assert "Transpose -> y" in result.stdout


def test_run_info(tmp_path: Path) -> None:
    result = run(transposed(tmp_path), "--info")
    assert result.stdout == "input  x: f4[N, 4]\noutput y: f4[4, N]\nmetadata tool = opforge tests\n"
    assert run("--help").stdout.startswith("usage: opforge-run MODEL.bin")
    assert run("--version").stdout.startswith("opforge-run 0.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "z=a.npy"], "there is no input 'z'\n  expected: x"),
        (["--input", "x"], "--input needs NAME=VALUE, got 'x'"),
        (["--input", "x=none.npy"], "none.npy: cannot be opened"),
        (["--shape", "x=5,3"], "input 'x': dimension 1 of an input is wrong"),
        (["--shape", "x=5"], "input 'x': an input has the wrong rank"),
        (["--shape", "x=a"], "--shape needs a number of at least 0, got 'a'"),
        (["--shape", "x=9999999999,9999999999"], "input 'x' is too large"),
        (["--repeat", "0"], "--repeat needs a number of at least 1"),
        (["--threads"], "--threads needs a value"),
        (["--verify", "never"], "--verify is full or lazy"),
        (["--output-dir", "no/such/folder"], "no/such/folder/y.npy cannot be written"),
        (["other.bin"], "more than one model"),
        (["--what"], "unknown option --what"),
    ],
)
def test_run_refuses(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = run(transposed(tmp_path), *arguments)
    assert words in result.stderr
    assert result.returncode == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "this is no .npy file"),
        (b"\x93NUMPY\x01\x00\xff\xff", "the header is cut"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "the header is too long"),
        (b"\x93NUMPY\x01\x00\x05\x00{   }", "it is in Fortran order"),
    ],
)
def test_run_refuses_bad_arrays(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    result = run(transposed(tmp_path), "--input", f"x={tmp_path / 'x.npy'}")
    assert (words in result.stderr, result.returncode) == (True, 2)


def test_run_refuses_cut_and_wrong_arrays(tmp_path: Path) -> None:
    model = transposed(tmp_path)
    for array, words in (
        (np.zeros((3, 4), np.float64), "expected dtype f4, got f8"),
        (np.zeros((3, 4), np.float32, order="F"), "it is in Fortran order"),
        (np.zeros((3, 4), ">f4"), "its dtype is not a plain little-endian one"),
    ):
        np.save(tmp_path / "x.npy", array)
        assert words in run(model, "--input", f"x={tmp_path / 'x.npy'}").stderr
    np.save(tmp_path / "x.npy", np.zeros((3, 4), np.float32))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-1])
    assert "it is cut" in run(model, "--input", f"x={tmp_path / 'x.npy'}").stderr


def test_core_uses_no_heap_exceptions_or_streams() -> None:
    """format/, program/ and memory/planner must suit a machine without an operating system."""
    objects = [
        path
        for folder in ("format", "program")
        for path in (ROOT / "build" / "dev" / "runtime" / "CMakeFiles" / "opforge.dir" / folder).glob("*.o")
    ]
    if not objects or shutil.which("nm") is None:
        pytest.skip("needs the native build tree and nm")
    allowed_prefixes = ("_ZN7opforge", "_ZNK7opforge", "_ZTVN7opforge", "_ZN12_GLOBAL", "_ZZN7opforge", "opforge_")
    allowed = {"memcmp", "memcpy", "memset", "strlen", "snprintf", "vsnprintf", "__stack_chk_fail", "__cpu_model",
               "__cpu_indicator_init", "_GLOBAL_OFFSET_TABLE_", "__cxa_guard_acquire", "__cxa_guard_release",
               "__tls_get_addr", "memmove"}  # fmt: skip
    text = subprocess.run(["nm", "-u", *objects], capture_output=True, text=True, check=True).stdout
    found = {line.split()[-1] for line in text.splitlines() if line.strip().startswith("U ")}
    forbidden = {name for name in found - allowed if not name.startswith(allowed_prefixes)}
    assert forbidden == set()
