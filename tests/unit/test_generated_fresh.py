"""Generated files are what their generators give now."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _generator():
    spec = importlib.util.spec_from_file_location("opforge_generate", ROOT / "tools/generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_files_are_fresh():
    assert _generator().stale() == [], "run python tools/generate.py"


def test_every_row_of_the_opcode_table_is_read():
    from opforge.expr._generated.opcodes import BY_NUMBER, OPCODES

    rows = (ROOT / "runtime/bytecode/opcodes.def").read_text().splitlines()
    rows = [row for row in rows if row.startswith("OPCODE(")]
    assert len(OPCODES) == len(BY_NUMBER) == len(rows)
