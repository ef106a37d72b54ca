"""Doctor rows say what is there, what is not, and how to get it."""

from opforge.build.doctor import doctor_rows


def rows():
    return {row.name: row for row in doctor_rows()}


def test_this_installation():
    found = rows()
    assert found["python"].state == "ok"
    assert found["headers"].state == "ok"
    assert found["numpy"].state == "ok"
    assert found["OPFORGE_JIT"].detail == "auto"
    assert all(row.state in ("ok", "missing", "optional") for row in found.values())
    assert all(row.hint for row in found.values() if row.state != "ok")


def test_missing_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    row = rows()["C++ compiler"]
    assert row.state == "missing"
    assert "formulas run by the interpreter, kernel operators do not run" in row.detail
    assert "g++: not on PATH" in row.detail
    assert "apt-get install g++" in row.hint


def test_wrong_settings_are_rows_not_exceptions(monkeypatch):
    monkeypatch.setenv("OPFORGE_JIT", "maybe")
    monkeypatch.setenv("OPFORGE_CACHE", "/proc/nowhere")
    monkeypatch.setenv("OPFORGE_LIBRARY_PATH", "relative/folder")
    monkeypatch.setenv("OPFORGE_ISA", "avx2")
    monkeypatch.setenv("OPFORGE_NUM_THREADS", "0")
    found = rows()
    assert "expected: baseline, v3, v4" in found["OPFORGE_ISA"].detail
    assert "expected: a number from 1 to 256" in found["OPFORGE_NUM_THREADS"].detail
    assert found["OPFORGE_JIT"].state == "missing"
    assert "expected: auto, off or require" in found["OPFORGE_JIT"].detail
    assert found["OPFORGE_LIBRARY_PATH"].state == "missing"


def test_unwritable_cache(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path / "file" / "cache"))
    row = rows()["build cache"]
    assert row.state == "missing"
    assert "set OPFORGE_CACHE" in row.hint
