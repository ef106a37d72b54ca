"""`opforge tune` with the fake driver and emulated kernels; and what it says where there is no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tools.device_check.prebuilt import build

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.compiler, pytest.mark.xdist_group("device check")]


def tune(*words, **changes):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **changes}
    command = [sys.executable, "-m", "opforge", "tune", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prebuilt")
    build(folder, packages=("opforge.ops:CustomGELU",), emulated=True)
    cache = tmp_path_factory.mktemp("cache")
    return {
        "OPFORGE_LIBRARY_PATH": str(folder),
        "OPFORGE_CUDA_DRIVER": str(folder / "libfakecuda.so"),
        "OPFORGE_CACHE": str(cache),
    }


def test_no_gpu_is_said_with_the_reason(tmp_path):
    done = tune("opforge.ops:CustomGELU", OPFORGE_CUDA_DRIVER=str(tmp_path / "libcuda.so.1"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: no GPU") and "the NVIDIA driver is not installed" in done.stderr
    done = tune("opforge.ops:CustomGELU", "--json", OPFORGE_CUDA_DRIVER=str(tmp_path / "libcuda.so.1"))
    assert done.returncode == 2 and json.loads(done.stdout)["error"]["type"] == "UnsupportedError"


def test_no_such_gpu(device):
    done = tune("opforge.ops:CustomGELU", "--gpu", "3", **device)
    assert done.returncode == 2 and "GPU 3: no such GPU" in done.stderr


@pytest.mark.parametrize(
    ("dtype", "words"),
    [("flaot32", "unknown dtype"), ("i32", "nothing to tune for this dtype"), ("int32", "got: i32")],
)
def test_a_dtype_that_nothing_can_be_tuned_for(device, dtype, words):
    done = tune("opforge.ops:CustomGELU", "--dtype", "f32", "--dtype", dtype, **device)
    assert done.returncode == 2
    assert words in done.stderr and "expected: f16, bf16, f32, f64" in done.stderr


def test_dtypes_by_their_long_names():
    from opforge.ops import custom_gelu
    from opforge.verify.tuning import wanted_dtypes

    assert wanted_dtypes([custom_gelu], ["float32", "f16"]) == ("f32", "f16")
    assert wanted_dtypes([custom_gelu], []) == ()


def test_choices_are_measured_kept_and_used(device):
    words = ("opforge.ops:CustomGELU", "--dtype", "f32", "--largest", "10000", "--json")
    done = tune(*words, **device)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert {row["operator"] for row in content["rows"]} == {
        "com.example::CustomGELU:1",
        "com.example::CustomGELUGrad:1",
    }
    assert {row["klass"] for row in content["rows"]} == {0, 1}
    for row in content["rows"]:
        assert "as it is" in row["tried"] and len(row["tried"]) == 16 and row["refused"] == {}
        assert 0 <= row["seconds"] <= row["untuned"]
    kept = json.loads(Path(content["file"]).read_text())
    assert kept["device"] == "Emulated GPU" and len(kept["rows"]) == len(content["rows"])
    text = tune(*words[:-1], **device).stdout
    assert "CustomGELU" in text and "rows kept in" in text


def test_a_choice_that_computes_something_else_is_left_out():
    from opforge.ops import custom_gelu
    from opforge.verify.tuning import _same

    x = np.linspace(-1, 1, 100, dtype=np.float32)
    assert _same(custom_gelu, [x], [x * np.float32(1 + 1e-7)])
    assert not _same(custom_gelu, [x], [x * np.float32(1 + 1e-3)])
    holed = x.copy()
    holed[7] = np.nan
    assert not _same(custom_gelu, [x], [holed])


def test_which_variants_of_sparse_matmul_may_be_kept():
    from opforge.ops import sparse_matmul, sparse_matmul_grad_dense
    from opforge.verify.cases import case_of, tuning_of
    from opforge.verify.tuning import _choices, _may_be_kept

    for operator in (sparse_matmul, sparse_matmul_grad_dense):
        known = tuning_of(operator)
        assert [case_of(operator, row).name for row in known["cases"]] == ["small", "medium", "many rows", "vector"]
        assert [(c.variant, text) for c, text in _choices(operator)] == [
            (0, "as it is"), (1, "by rows"), (2, "merged"), (3, "cuSPARSE"), (4, "cuSPARSE, any order"),
        ]  # fmt: skip
        assert [c.variant for c, _ in _choices(operator) if _may_be_kept(operator, c)] == [0, 3]
        assert [text for _, text in _choices(operator, "cuSPARSE")] == ["as it is", "cuSPARSE"]


def test_cases_of_one_class_agree_on_a_choice():
    from opforge.build.tuning import Choice
    from opforge.verify.tuning import Tuned, agreed

    def row(name, kept=True, **tried):
        names = {"own": Choice(), "library": Choice(variant=3)}
        choices = {text: names[text] for text in tried if kept}
        own, best = tried["own"], min(tried, key=lambda text: tried[text])
        return Tuned("o", (), 3, "[1]", tried[best], own, names[best], best, "", tried, {}, name, kept, choices)

    def variants(*rows):
        return {name: choice.variant for name, choice, _ in agreed(rows)}

    assert variants(row("a", own=4.0, library=2.0), row("a", own=4.0, library=6.0)) == {"a": 3}  # 4 against 3.5
    assert variants(row("a", own=4.0, library=3.0), row("a", own=1.0, library=6.0)) == {"a": 0}
    assert variants(row("a", own=4.0, library=3.99)) == {"a": 0}  # noise
    assert variants(row("a", own=4.0, library=2.0), row("a", own=4.0)) == {"a": 0}  # it does not serve both
    assert variants(row("a", kept=False, own=4.0, library=2.0), row("b", own=4.0, library=2.0)) == {"b": 3}
    ((_, _, measured),) = agreed([row("b", own=4.0, library=2.0)])
    assert measured.pop("shape") == "[1]" and measured == pytest.approx({"seconds": 2.0, "untuned": 4.0})


def test_a_choice_whose_bits_differ_from_run_to_run():
    from opforge.verify.tuning import _repeats

    class Session:
        driver = None

        def __init__(self, runs):
            self.runs = iter(runs)

        def download(self, array):
            return next(self.runs)

    class Launcher:
        outputs = (None,)

        def __call__(self):
            pass

    same, other = np.ones(3, np.float32), np.nextafter(np.ones(3, np.float32), 2)
    for runs, expected in (([same, same], True), ([same, other], False)):
        session = Session(runs)
        session.driver = type("Driver", (), {"fill": lambda *_: None})
        launcher = Launcher()
        launcher.outputs = (type("Array", (), {"address": 0, "elements": 3, "dtype": same.dtype})(),)
        assert _repeats(session, launcher, [same]) is expected
