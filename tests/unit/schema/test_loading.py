"""Loading of operator packages by name, folder, file and entry point."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

from opforge.errors import ArgumentError, MissingOperatorError, SchemaError
from opforge.schema import discover, load, operators, registry

SOURCE = """\
from opforge.schema import Operator, register
probe = register(Operator("{domain}", "{name}", "(x: T[*S]) -> (y: T[*S])", types="T: {dtypes}"))
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Each test has a registry and modules of its own; opforge's own operators are in the one of all others before."""
    discover()
    monkeypatch.setattr(registry, "_operators", {})
    monkeypatch.setattr(registry, "_host_names", {})
    monkeypatch.setattr("opforge.schema.loading._discovered", None)
    monkeypatch.setattr("opforge.schema.loading._given", {})
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if "loading_probe" in name or name.startswith("_opforge_"):
            del sys.modules[name]


def write(path, name="Probe", domain="test.loading", dtypes="f32"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SOURCE.format(name=name, domain=domain, dtypes=dtypes))
    return path


def names(found):
    return [operator.name for operator in found]


def test_file_twice(tmp_path):
    file = write(tmp_path / "mine.py")
    first = load(file)
    assert names(first) == ["Probe"]
    assert load(str(file)) == first
    assert first[0].declared_at == f"{file}:2"


def test_folder_with_op(tmp_path):
    write(tmp_path / "op.py")
    assert names(load(tmp_path)) == ["Probe"]


def test_folder_of_operators(tmp_path):
    write(tmp_path / "b_op" / "op.py", "Second")
    write(tmp_path / "a_op" / "op.py", "First")
    write(tmp_path / "_hidden" / "op.py", "Hidden")
    assert names(load(tmp_path)) == ["First", "Second"]


def test_folder_that_is_a_package(tmp_path):
    package = tmp_path / "loading_probe_package"
    write(package / "__init__.py", "Top")
    (package / "helper.py").write_text("value = 1\n")
    write(package / "relu" / "op.py", "Inner")
    (package / "relu" / "__init__.py").write_text("")
    assert names(load(package)) == ["Top", "Inner"]


def test_project_folder_with_src(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    write(tmp_path / "src" / "loading_probe_src" / "__init__.py")
    assert names(load(tmp_path)) == ["Probe"]


def test_importable_package_finds_one_folder_per_operator(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loading_probe_a").mkdir()
    (tmp_path / "loading_probe_a" / "__init__.py").write_text("")
    write(tmp_path / "loading_probe_a" / "one" / "op.py", "One")
    (tmp_path / "loading_probe_a" / "one" / "__init__.py").write_text("")
    write(tmp_path / "loading_probe_a" / "op.py", "Own")
    assert sorted(names(load("loading_probe_a"))) == ["One", "Own"]
    assert sorted(names(load("loading_probe_a"))) == ["One", "Own"], "a second load finds the imported modules"
    assert set(load(tmp_path / "loading_probe_a")) == set(load("loading_probe_a"))


@pytest.mark.parametrize("wanted", ["Second", "second", "test.loading::Second"])
def test_one_operator_of_a_package(tmp_path, wanted):
    write(tmp_path / "a" / "op.py", "First")
    write(tmp_path / "b" / "op.py", "Second")
    assert names(load(f"{tmp_path}:{wanted}")) == ["Second"]


def test_an_operator_that_is_not_there(tmp_path):
    write(tmp_path / "op.py", "CustomGELU")
    with pytest.raises(
        MissingOperatorError, match=r"(?s)expected: CustomGELU.*got: CustomGelu.*did you mean CustomGELU\?"
    ):
        load(f"{tmp_path}:CustomGelu")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("loading_probe_nowhere", "no such package"),
        ("loading_probe.nowhere", "no such package"),
        ("./nowhere/op.py", "no such file or folder"),
        ("not-a-name", "not a package name or an existing path"),
    ],
)
def test_nothing_there(target, words):
    with pytest.raises(ArgumentError, match=words):
        load(target)


def test_no_operators(tmp_path):
    with pytest.raises(ArgumentError, match="no operators are declared there"):
        load(tmp_path)
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(ArgumentError, match="no operators are declared there"):
        load(tmp_path / "empty.py")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ArgumentError, match="not a Python file"):
        load(tmp_path / "notes.txt")


def test_a_failing_import_speaks_for_itself(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loading_probe_broken.py").write_text("import loading_probe_dependency\n")
    with pytest.raises(ModuleNotFoundError, match="loading_probe_dependency"):
        load("loading_probe_broken")
    (tmp_path / "op.py").write_text("1/0\n")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            load(tmp_path)


def test_two_files_that_disagree_are_both_named(tmp_path):
    write(tmp_path / "a" / "op.py")
    write(tmp_path / "b" / "op.py", dtypes="f64")
    with pytest.raises(SchemaError) as caught:
        load(tmp_path)
    assert str(tmp_path / "a" / "op.py") in str(caught.value)
    assert str(tmp_path / "b" / "op.py") in str(caught.value)


def entry(name, value):
    return importlib.metadata.EntryPoint(name, value, "opforge.operators")


def test_a_broken_entry_point_is_named_and_leaves_others_alone(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loading_probe_bad.py").write_text("raise OSError('no disk')\n")
    write(tmp_path / "loading_probe_good.py", "Good")
    entries = [
        entry("bad", "loading_probe_bad"),
        entry("gone", "loading_probe_gone"),
        entry("good", "loading_probe_good"),
    ]
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: entries if group == "opforge.operators" else []
    )
    with pytest.warns(RuntimeWarning) as caught:
        found = discover()
    assert "Good" in names(found)
    texts = [str(w.message) for w in caught]
    assert any("entry point 'bad'" in text and "OSError: no disk" in text for text in texts)
    assert any("entry point 'gone'" in text and "no such package" in text for text in texts)
    assert discover() == found, "later calls do not try again"
    assert "test.loading::Good" in operators()


def test_a_file_that_is_written_anew_within_a_second_is_read_anew(tmp_path):
    """Python itself would take what it compiled of a file of this size and this second."""
    code = "import sys; from opforge.schema import load; print([one.name for one in load(sys.argv[1])])"
    for name in ("Once", "Anew"):
        path = write(tmp_path / "op.py", name)
        os.utime(path, (1e9, 1e9))
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
        assert done.stdout == f"['{name}']\n"
    assert [one.name for one in tmp_path.iterdir()] == ["op.py"]


def test_the_own_operators_need_no_entry_point():
    code = (
        "import importlib.metadata; importlib.metadata.entry_points = lambda **k: []\n"
        "from opforge.schema import get; print(get('com.example', 'CustomGELU').key)"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert result.stdout.startswith("com.example::CustomGELU:"), result.stderr


def test_package_with_plain_folders(tmp_path, monkeypatch):
    """Folders of a package hold operators with or without a file `__init__.py`."""
    package = tmp_path / "loading_probe_plain"
    write(package / "b_op" / "op.py", "Second")
    write(package / "a_op" / "op.py", "First")
    write(package / "_hidden" / "op.py", "Hidden")
    (package / "__init__.py").write_text("")
    (package / "a_op" / "__init__.py").write_text("")
    assert names(load(package)) == ["First", "Second"]
    monkeypatch.syspath_prepend(tmp_path)
    assert names(load("loading_probe_plain")) == ["First", "Second"]


def test_two_packages_with_one_name(tmp_path):
    """A changed operator gets another version; one that somebody else has declared, another name."""
    first, second = (tmp_path / name / "op.py" for name in ("one", "two"))
    load(write(first, dtypes="f32"))
    with pytest.raises(SchemaError) as raised:
        load(write(second, dtypes="f64"))
    text = str(raised.value)
    assert f"declared at {first}:2" in text and f"declared at {second}:2" in text
    assert "to do: two files declare it: give one of them another name or domain, or load only one" in text
