"""Whole models in every engine that is here, equal to the reference; what docs/engines.md says is what is found."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from opforge.cli import main
from opforge.verify import engines
from tests.models import MODELS
from tests.models.running import outcome

pytestmark = pytest.mark.compiler
ROOT = Path(__file__).resolve().parents[2]
HERE = [name for name, engine in engines().items() if name != "reference" and engine.availability().ok]


def _table():
    spec = importlib.util.spec_from_file_location("engine_table", ROOT / "tools" / "engine_table.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["engine_table"] = module
    spec.loader.exec_module(module)
    return module


TABLE = _table()
FOUND = json.loads(TABLE.FOUND.read_text())["engines"]


def _cases():
    """One engine's models run in one process of a parallel run, where the engine is started once."""
    for engine in HERE:
        for name, model in MODELS.items():
            marks = [pytest.mark.xdist_group(f"models in {engine}")]
            if any(importlib.util.find_spec(package) is None for package in model.needs):
                marks.append(pytest.mark.skip(reason=f"{name} is made with {', '.join(model.needs)}"))
            yield pytest.param(engine, name, marks=marks, id=f"{engine}-{name}")


@pytest.mark.parametrize("engine, name", list(_cases()))
def test_models(engine, name):
    assert engine in FOUND, f"run python tools/engine_table.py {engine}"
    said = {row[0]: row for row in FOUND[engine]["models"]}
    assert name in said, f"run python tools/engine_table.py {engine}"
    passed, reason = outcome(name, engine)
    version = engines()[engine].availability().version
    assert passed == said[name][1], (
        f"{engine} {version}: {reason or 'passes'}; docs/engines.md, with {FOUND[engine]['version']}, says "
        f"{said[name][2] or 'yes'}: run python tools/engine_table.py {engine}"
    )


@pytest.mark.parametrize("engine", [pytest.param(e, marks=pytest.mark.xdist_group(f"models in {e}")) for e in HERE])
def test_operators_run_where_the_page_says(engine):
    said = {(row[0], row[1]): row[2] for row in FOUND[engine]["operators"]}
    found = {(row[0], row[1]): row[2] for row in TABLE.try_operators(engine)}
    assert found == said, f"run python tools/engine_table.py {engine}"


def test_the_page_follows_from_what_was_found(capsys):
    assert TABLE.main(["--check"]) == 0, capsys.readouterr().out


def test_every_reason_has_words():
    rows = [row for engine in FOUND.values() for row in (*engine["operators"], *engine["models"])]
    assert rows and all(bool(row[-1]) != row[-2] for row in rows)


@pytest.mark.parametrize("command, name", [("compare", "branches"), ("bench", "versions")])
def test_the_commands_take_them_with_all_engines(command, name, capsys):
    model = MODELS[name]
    packages = [word for package in model.packages for word in ("--package", package)]
    more = ["--rounds", "3", "--threads", "1"] if command == "bench" else []
    code = main([command, str(model.make()), "--engine", "all", *packages, *more, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert code == 0
    ran = {row["engine"] for row in result["rows"]}
    able = {engine for engine in HERE if any(row[0] == name and row[1] for row in FOUND[engine]["models"])}
    assert able <= ran, result["skipped"]
    assert set(engines()) == ran | set(result["skipped"]) | {"reference"}
