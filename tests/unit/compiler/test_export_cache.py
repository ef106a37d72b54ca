"""Exports are kept under names that change with what made them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import _exports


def test_another_exporter_makes_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = tmp_path / "maker.py"
    maker.write_text("first")
    versions = {"torch": "1"}
    monkeypatch.setattr(_exports, "version", lambda package: versions.get(package, "0"))

    def path() -> Path:
        _exports._key.cache_clear()
        return _exports.keyed(tmp_path / "net.onnx", str(maker))

    first = path()
    assert first == path()
    first.write_text("a model")
    other = tmp_path / "net-of-mine.onnx"
    other.write_text("kept")
    versions["torch"] = "2"
    second = path()
    assert second.name != first.name
    assert not first.exists(), "nobody would look at it again"
    assert other.exists()
    maker.write_text("second")
    assert path().name not in (first.name, second.name)
    _exports._key.cache_clear()
