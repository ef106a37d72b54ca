"""The rows of the kernel tables: arity as ONNX says, no two rows for one node."""

import re
from pathlib import Path

import pytest

OPS = Path(__file__).resolve().parents[3] / "runtime" / "kernels" / "ops"
ROW = re.compile(r'\{"([\w.]*)", "(\w+)",\s*(\d+),\s*(\w+),\s*([^{}]*?)\}', re.DOTALL)
ROWS = [(path.name, *match.groups()) for path in sorted(OPS.glob("*.cpp")) for match in ROW.finditer(path.read_text())]


def test_rows_are_found() -> None:
    assert len(ROWS) > 80


def test_no_two_rows_serve_one_version() -> None:
    served: dict[tuple[str, str], list[range]] = {}
    for _, domain, name, first, last, _ in ROWS:
        versions = range(int(first), (int(last) if last.isdigit() else 2**31 - 1) + 1)
        for other in served.setdefault((domain, name), []):
            assert max(versions.start, other.start) >= min(versions.stop, other.stop), (domain, name)
        served[domain, name].append(versions)


MANY = 2**31 - 1
FEWER = {"BatchNormalization": 1}
"""Rows that serve fewer outputs than ONNX has: those of training."""
MORE_INPUTS = {"ConstantOfShape": 2}
"""Rows that take an attribute of ONNX's as an input."""


def arity(rest: str) -> tuple[int, int, int]:
    """Required inputs, most inputs and most outputs of a row, from what follows its versions: load, infer, run, ..."""
    fields = [f.strip() for f in re.split(r",(?![^<]*>)", rest)][4:]
    numbers = [MANY if f == "kMany" else int(f) for f in fields]
    required, inputs, outputs = [*numbers, *(1, 0, 1)[len(numbers) :]]
    return required, inputs or (MANY if "kAllInputs" in rest else required), outputs


@pytest.mark.parametrize(("file", "domain", "name", "first", "last", "rest"), [r for r in ROWS if r[1] == ""])
def test_required_inputs_are_those_of_onnx(file: str, domain: str, name: str, first: str, last: str, rest: str) -> None:
    onnx = pytest.importorskip("onnx")
    option = onnx.defs.OpSchema.FormalParameterOption
    every = onnx.defs.get_all_schemas_with_history()
    history = sorted((s for s in every if s.name == name and s.domain == ""), key=lambda s: s.since_version)
    newest = max(history, key=lambda s: s.since_version)
    required = max([k + 1 for k, p in enumerate(newest.inputs) if p.option == option.Single], default=1)
    own, most_inputs, most_outputs = arity(rest)
    if name != "Upsample":  # its scales are required where it still exists (version 9)
        assert own == (max(required, 1) if newest.inputs else 0), (file, name)
    variadic = any(p.option == option.Variadic for p in newest.inputs)
    assert ("kAllInputs" in rest) == variadic, (file, name)
    served = [s for s in history if s.since_version >= int(first)] or [newest]
    served += [s for s in history if s.since_version <= int(first)][-1:]
    most = max(s.max_input for s in served)
    assert most_inputs == MORE_INPUTS.get(name, most), (file, name)
    assert most_outputs == FEWER.get(name, max(s.max_output for s in served)), (file, name)
