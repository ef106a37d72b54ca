"""Occupancy of kernels from what the compiler said when their library was built: neither nvcc nor a GPU is needed."""

import json
import re

import pytest

from opforge.cli import main
from opforge.cuda.measure import demangled, resources_of_library, uses
from opforge.errors import ArgumentError
from tests.unit.cuda.test_occupancy import WORDS


@pytest.fixture
def library(tmp_path):
    path = tmp_path / "gate_cuda.so"
    path.touch()
    path.with_name("gate_cuda.manifest.json").write_text(json.dumps({"compiler_words": WORDS}))
    return path


def test_of_a_library_built_ahead(library):
    first, second = uses(resources_of_library(library), 256)
    assert (first.kernel, first.resources.registers, first.resources.spill_loads) == ("total", 38, 12)
    assert (first.found.blocks, first.found.limiting, first.found.fraction) == (6, "registers", 0.75)
    assert second.resources.architecture == 90
    assert uses(resources_of_library(library), 256, dynamic=60000)[0].found.limiting == "shared memory"
    assert uses(resources_of_library(library), 256, dynamic=300000)[0].best == 0


def test_the_command(library, capsys):
    assert main(["occupancy", str(library), "--threads", "128", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["threads"] == 128
    assert told["kernels"][0] == {
        "kernel": "total",
        "architecture": "sm_80",
        "registers": 38,
        "spill_stores": 8,
        "spill_loads": 12,
        "stack": 16,
        "shared": 2048,
        "blocks": 12,
        "occupancy": 0.75,
        "limiting": "registers",
        "best_threads": 64,
    }
    assert main(["occupancy", str(library)]) == 0
    table = capsys.readouterr().out
    assert "limited by" in table
    assert "20 B" in table
    assert "2 kernels, blocks of 256 threads" in table


def test_architectures_whose_limits_are_not_known(library, capsys):
    record = library.with_name("gate_cuda.manifest.json")
    record.write_text(json.dumps({"compiler_words": WORDS.replace("sm_90a", "sm_103")}))
    assert main(["occupancy", str(library)]) == 0
    told = capsys.readouterr().out
    assert "1 kernels, blocks of 256 threads\nleft out: sm_103, whose limits are not known" in told
    assert main(["occupancy", str(library), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unknown_architectures"] == ["sm_103"]
    record.write_text(json.dumps({"compiler_words": WORDS.replace("sm_90a", "sm_103").replace("sm_80", "sm_110")}))
    assert main(["occupancy", str(library)]) == 2
    told = capsys.readouterr().err
    assert "no limits are known of these architectures" in told
    assert "expected: sm_75, sm_80" in told
    assert "got: sm_103, sm_110" in told


def test_a_library_of_which_nothing_is_known(tmp_path, capsys):
    with pytest.raises(ArgumentError, match=r"nothing says(?s:.*)opforge build PACKAGE --device cuda"):
        resources_of_library(tmp_path / "other.so")
    assert main(["occupancy", str(tmp_path / "no.cu")]) == 2
    words = r"no.cu: the file cannot be read\n  expected: CUDA C\+\+ in UTF-8\n  got: No such file"
    assert re.search(words, capsys.readouterr().err)
    assert main(["build", "x", "--arch", "sm_80"]) == 2
    assert "--arch goes with --device cuda" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z5totalPKfPfi", "total"),
        (
            "_ZN7opforge4cuda7combineIfdjEEvNS0_5SpaceEiNS0_5PartsEPKT0_",
            "opforge::cuda::combine<float, double, unsigned int>",
        ),
        ("plain", "plain"),
        ("_Znonsense", "_Znonsense"),
    ],
)
def test_names_as_they_are_written(mangled, name):
    assert demangled(mangled) == name
