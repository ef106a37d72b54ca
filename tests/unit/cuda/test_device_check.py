"""The device check without a device: rehearsed whole on emulated kernels, and each of its ways to go wrong."""

import inspect
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from opforge.cuda.device import Session
from opforge.errors import ToolchainError
from tools.device_check import clock, packages, parts, table
from tools.device_check.check import verdict
from tools.device_check.parts import Part, Running
from tools.device_check.prebuilt import DRIVER, build, main

ROOT = Path(__file__).parents[3]
LIBRARY = (".so", ".manifest.json")
pytestmark = [pytest.mark.compiler, pytest.mark.xdist_group("device check")]


@pytest.fixture(scope="module")
def prebuilt(tmp_path_factory):
    """What `make device-build` makes, for the emulator."""
    folder = tmp_path_factory.mktemp("prebuilt")
    made = build(folder, packages=("opforge.ops:CustomGELU",), emulated=True)
    assert [row["name"] for row in made["libraries"]] == [
        "com_example_custom_gelu_v1",
        "com_example_custom_gelu_v1_cuda",
    ]
    assert (folder / DRIVER).is_file() and not made["left_out"]
    return folder


def test_a_library_that_cannot_be_built_is_missing_and_a_failure(tmp_path, monkeypatch, capsys):
    def fails(plan, *, architectures):
        raise ToolchainError("no nvcc", where=f"{plan.name} for {architectures[0]}")

    monkeypatch.setattr("opforge.build.cuda.build_cuda_library", fails)
    other = tmp_path / "other_architecture"
    other.mkdir()
    old = [folder / f"com_example_custom_gelu_v1_cuda{end}" for folder in (tmp_path, other) for end in LIBRARY]
    for file in [*old, tmp_path / DRIVER]:
        file.write_text("of an earlier build")
    assert main(["--out", str(tmp_path), "--package", "opforge.ops:CustomGELU"]) == 1
    shown = capsys.readouterr().out
    assert "left out com_example_custom_gelu_v1_cuda: " in shown and "for sm_80" in shown and "left out sm_120" in shown
    assert not any(file.exists() for file in old) and (tmp_path / DRIVER).is_file()
    assert (tmp_path / "com_example_custom_gelu_v1.so").is_file()


def run(*words, **changes):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **changes}
    command = [sys.executable, "-m", "tools.device_check", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_where_there_is_no_gpu_it_says_why_and_is_content(tmp_path):
    nowhere = str(tmp_path / "libcuda.so.1")
    folders = ("--out", tmp_path / "out", "--work", tmp_path / "work")
    done = run(*folders, OPFORGE_CUDA_DRIVER=nowhere, OPFORGE_DEVICE_CHECK="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"no GPU: the NVIDIA driver is not installed: {nowhere}")
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert not content["gpu"] and content["reason"] in (tmp_path / "out" / "table.md").read_text()


def test_a_python_that_has_numpy_alone_takes_what_was_carried_along(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    installed = Path(np.__file__).parents[1]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT, site))),
        "OPFORGE_CUDA_DRIVER": str(tmp_path / "libcuda.so.1"),
        "OPFORGE_DEVICE_CHECK": "",
    }
    folders = ("--prebuilt", "made", "--out", "out", "--work", "work")
    command = [sys.executable, "-S", "-m", "tools.device_check", *folders]  # without what is installed

    def check():
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = check()
    assert done.returncode == 1, done.stderr
    assert done.stdout == (
        f"FAILED: {sys.executable} lacks numpy, click, ml_dtypes, pytest, and none for it lies in made: "
        "pip install numpy click ml-dtypes pytest\n"
    )
    assert {"pytest", "pluggy", "click", "ml-dtypes"} <= set(packages.carry(tmp_path / "made"))
    for name in ("numpy", "numpy.libs"):
        if (installed / name).is_dir():
            (site / name).symlink_to(installed / name)
    done = check()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("no GPU: the NVIDIA driver is not installed")


def test_packages_with_machine_code_are_for_their_python(tmp_path, monkeypatch):
    packages.carry(tmp_path, ("click", "ml-dtypes"))
    assert packages.carried(tmp_path) == []  # they are here
    monkeypatch.setattr(packages, "_is_here", lambda name: False)
    assert [Path(one).name for one in packages.carried(tmp_path)] == ["click", "ml-dtypes"]
    facts = tmp_path / "packages" / "packages.json"
    facts.write_text(facts.read_text().replace(sys.implementation.cache_tag, "cpython-399"))
    assert [Path(one).name for one in packages.carried(tmp_path)] == ["click"]


def test_what_was_put_on_the_device_is_there_before_any_stream_goes_on(prebuilt, monkeypatch):
    monkeypatch.setenv("OPFORGE_CUDA_DRIVER", str(prebuilt / DRIVER))
    with Session() as session:
        calls = []
        call = session.driver.call
        monkeypatch.setattr(session.driver, "call", lambda *words: calls.append(words) or call(*words))
        session.upload(np.ones(8, np.float32))
        session.empty((8,), np.float32)
        told = [words for words in calls if words[0] != "cuMemAlloc_v2"]
        assert [words[0] for words in told[::2]] == ["cuMemcpyHtoD_v2", "cuMemsetD8Async"]
        assert told[1::2] == [("cuStreamSynchronize", 0)] * 2


SANITIZER = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift 2; done
echo "========= COMPUTE-SANITIZER"
exec "$@"
"""


def test_the_whole_is_rehearsed(tmp_path, prebuilt):
    """Tests on streams, sanitizer, tuning and the benchmark's machinery as on a device."""
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text(SANITIZER)
    tool.chmod(0o755)
    wanted = ("test_kernels", "test_streams", "test_launcher", "bench_launch", "memcheck", "tune")
    chosen = [word for name in wanted for word in ("--part", name)]
    folders = ("--out", tmp_path / "out", "--work", tmp_path / "work", "--prebuilt", prebuilt)
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    done = run("--rehearse", *folders, *chosen, PATH=path)
    assert done.returncode == 0, done.stdout + (tmp_path / "out" / "logs.txt").read_text()
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {part["name"]: part["state"] for part in content["parts"]} == dict.fromkeys(wanted, "passed")
    logs = (tmp_path / "out" / "logs.txt").read_text()
    assert "COMPUTE-SANITIZER" in logs and " passed" in logs
    assert content["machine"]["devices"][0]["name"] == "Emulated GPU"
    who = {row["participant"] for row in content["rows"] if row["case"] == "call 1 KiB f32" and "seconds" in row}
    assert who == {"opforge", "torch eager", "torch.sigmoid"}
    tuned = [row for row in content["rows"] if row["part"] == "tune"]
    assert {row["participant"] for row in tuned} > {"opforge", "256 threads, 1 items"}
    words = (tmp_path / "out" / "table.md").read_text()
    assert "figures mean nothing" in words and "a rehearsal has no CUDA operators" in words
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["logs.txt", "results.json", "table.md"]


@pytest.mark.torch
def test_the_other_benchmarks_are_rehearsed(tmp_path, prebuilt):
    names = ["ceilings", "elementwise", "gradients", "sparse"]
    changes = {"OPFORGE_DEVICE_WORK": str(tmp_path), "OPFORGE_DEVICE_CHECK": "emulated",
               "OPFORGE_TORCH_BUILD": "off", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}  # fmt: skip
    command = [sys.executable, "-m", "tools.device_check.benchmark", *names]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **changes}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in names:
        rows = [json.loads(line) for line in (tmp_path / f"bench_{name}.jsonl").read_text().splitlines()]
        assert rows and all(row["part"] == name for row in rows)
        if name != "ceilings":
            assert any(row["participant"] == "opforge" and row["seconds"] > 0 for row in rows)


def test_a_part_that_hangs_or_fails_costs_the_others_nothing(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(parts, "time", SimpleNamespace(monotonic=lambda: now[0]))
    words = "import sys, time; print('begun', flush=True); time.sleep(float(sys.argv[1])); sys.exit(int(sys.argv[2]))"
    hangs = Part("hangs", ("-c", words, "900", "0"), 4.0)
    fails = Part("fails", ("-c", words, "0", "3"), 100.0)
    first, second = running = [Running(part, {}, tmp_path, 100.0) for part in (hangs, fails)]
    while not (second.finished() and first.log.read_text()):
        assert not first.finished()
        time.sleep(0.02)
    now[0] = 5.0
    assert first.finished()
    hung, failed = (one.result() for one in running)
    assert hung["state"] == "timed out" and hung["log"] == "begun\n"
    assert failed["state"] == "FAILED" and failed["code"] == 3
    assert len({part.name for stage in parts.STAGES for part in stage}) == sum(map(len, parts.STAGES))


@pytest.mark.parametrize(
    ("states", "code", "words"),
    [
        ({"test_kernels": "passed", "test_streams": "passed"}, 0, "2 of 2 parts passed, 0 left out"),
        ({"test_kernels": "passed", "memcheck": "left out"}, 0, "1 of 2 parts passed, 1 left out"),
        ({"test_kernels": "FAILED", "tune": "timed out", "prepare": "passed"}, 1, "FAILED: test_kernels, tune; 1 of 3"),
        ({"test_kernels": "left out", "prepare": "passed"}, 1, "FAILED: test_kernels; 1 of 2 parts passed, 1 left"),
        ({"test_streams": "nothing to do", "prepare": "passed"}, 1, "FAILED: test_streams; 1 of 2"),
        ({"test_jax": "left out"}, 1, "FAILED: nothing was checked; 0 of 1 parts passed, 1 left out"),
        ({}, 1, "FAILED: nothing was checked"),
    ],
)
def test_what_was_not_checked_has_not_passed(states, code, words):
    found = verdict([{"name": name, "state": state} for name, state in states.items()])
    assert found[0] == code and found[1].startswith(words)


def test_a_part_that_there_is_not_is_refused():
    done = run("--rehearse", "--part", "test_kernel")
    assert done.returncode == 2 and "invalid choice: 'test_kernel'" in done.stderr


def row(case, who, seconds, **more):
    return {"case": case, "participant": who, "seconds": seconds, "low": seconds, "high": seconds,
            "bytes": 1000, "flops": 10, **more}  # fmt: skip


def test_figures_are_held_against_what_the_run_measured():
    rows = [
        row("copy", "torch copy", 1e-6),
        row("gelu 256 MiB f32", "opforge", 1.1e-6),
        row("gelu 256 MiB f16", "opforge", 1.3e-6),
        row("sparse matmul f32", "opforge", 1e-6),
        row("sparse matmul f32", "torch.mm (cuBLAS)", 4.2e-6),
        row("sparse matmul f32", "torch CSR (cuSPARSE)", 1.5e-6),
        {"case": "call 1 KiB f32", "participant": "load_inline", "left_out": "there is no nvcc"},
    ]
    found = {what: (shown, verdict) for what, _, shown, verdict in table.aims(rows)}
    assert found["gelu 256 MiB f32: part of the copy bandwidth"] == ("91%", "reached")
    assert found["gelu 256 MiB f16: part of the copy bandwidth"] == ("77%", "FALLS SHORT")
    assert found["sparse matmul f32: torch.mm (cuBLAS) / opforge"] == ("4.20", "FALLS SHORT")
    assert found["sparse matmul f32: torch CSR (cuSPARSE) / opforge"] == ("1.50", "reached")
    assert found["call 1 KiB f32: load_inline / opforge"] == ("not measured", "")
    text = table.markdown({"gpu": True, "machine": {}, "parts": [], "rows": rows})
    assert "| gelu 256 MiB f32 | opforge | 1.10 | 1.1 to 1.1 | 1 | 91% |" in text
    assert "there is no nvcc" in text


class Event:
    """Records what torch.cuda.Event is told; time passes by one second per record."""

    now = 0
    log: ClassVar[list] = []

    def __init__(self, enable_timing=False):
        assert enable_timing

    def record(self):
        Event.now += 1
        self.at = Event.now
        Event.log.append("record")

    def elapsed_time(self, end):
        return 1000.0 * (end.at - self.at)


def test_events_lie_around_the_call_and_after_the_flush():
    taken = object.__new__(clock.CudaClock)
    Event.log.clear()
    cuda = SimpleNamespace(Event=Event, synchronize=lambda: Event.log.append("synchronize"))
    taken._torch = SimpleNamespace(cuda=cuda)
    taken._flush = SimpleNamespace(zero_=lambda: Event.log.append("flush"))
    found = taken.times({"a": lambda: Event.log.append("a"), "b": lambda: Event.log.append("b")}, rounds=2)
    assert found == {"a": [1.0, 1.0], "b": [1.0, 1.0]}
    assert Event.log.count("synchronize") == 1 and Event.log[-1] == "synchronize"
    calls = [Event.log[k : k + 4] for k in range(0, 16, 4)]
    assert all(c[:2] == ["flush", "record"] and c[3] == "record" for c in calls)
    assert [sorted((calls[k][2], calls[k + 1][2])) for k in (0, 2)] == [["a", "b"]] * 2


@pytest.mark.torch
def test_torch_has_the_calls_that_only_a_gpu_runs():
    import torch

    assert "enable_timing" in inspect.signature(torch.cuda.Event.__new__).parameters
    inspect.signature(torch.cuda.Event.record).bind(None)
    inspect.signature(torch.cuda.Event.elapsed_time).bind(None, None)
    from torch.utils.cpp_extension import load_inline

    wanted = (
        "name",
        "cpp_sources",
        "cuda_sources",
        "build_directory",
        "is_python_module",
        "extra_cuda_cflags",
        "no_implicit_headers",
    )
    assert set(wanted) <= set(inspect.signature(load_inline).parameters)
