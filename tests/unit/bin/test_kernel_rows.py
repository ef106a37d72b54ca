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


@pytest.mark.parametrize(("file", "domain", "name", "first", "last", "rest"), [r for r in ROWS if r[1] == ""])
def test_required_inputs_are_those_of_onnx(file: str, domain: str, name: str, first: str, last: str, rest: str) -> None:
    onnx = pytest.importorskip("onnx")
    option = onnx.defs.OpSchema.FormalParameterOption
    history = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == name and s.domain == ""]
    newest = max(history, key=lambda s: s.since_version)
    required = max([k + 1 for k, p in enumerate(newest.inputs) if p.option == option.Single], default=1)
    fields = [f.strip() for f in rest.split(",")]
    tail = [f for f in fields if f == "0" or f.isdigit() or f.startswith(("kA", "kB", "kS", "kN"))]
    own = int(tail[-1]) if len(tail) == 2 else 1
    if name != "Upsample":  # its scales are required where it still exists (version 9)
        assert own == (max(required, 1) if newest.inputs else 0), (file, name)
    variadic = any(p.option == option.Variadic for p in newest.inputs)
    assert ("kAllInputs" in rest) == variadic, (file, name)
