"""Where a report comes from: machine, versions, hashes of files, commands."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import opforge
from opforge.report._model import Block, Column, Report, Table

__all__ = ["provenance", "provenance_blocks"]

_PACKAGES = (
    "numpy", "onnx", "onnx-ir", "torch", "tensorflow-cpu", "tensorflow", "jax", "onnxruntime", "openvino", "ncnn",
    "ai-edge-litert", "executorch",
)  # fmt: skip


def provenance(files: Iterable[Path] = (), commands: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Describe this machine and installation.

    Args:
        files: whose hashes are wanted.
        commands: rows of line, exit_code, seconds.
    """
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": _machine(),
        "versions": {"opforge": opforge.__version__, "python": platform.python_version(), **_versions()},
        "files": {str(path): _hash(path) for path in files},
        "commands": [dict(row) for row in commands],
    }


def _machine() -> dict[str, str]:
    found = {"system": f"{platform.system()} {platform.release()}", "architecture": platform.machine()}
    found["processor"] = _field(Path("/proc/cpuinfo"), "model name") or platform.processor() or "unknown"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found["cores"] = f"{usable} of {os.cpu_count()} usable"
    flags = (_field(Path("/proc/cpuinfo"), "flags") or _field(Path("/proc/cpuinfo"), "Features")).split()
    wanted = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "neon", "asimd", "sve")
    found["instructions"] = " ".join(flag for flag in wanted if flag in flags) or "unknown"
    memory = _field(Path("/proc/meminfo"), "MemTotal").split()
    if memory:
        found["memory"] = f"{int(memory[0]) / (1 << 20):.1f} GiB"
    return found


def _field(path: Path, name: str) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def provenance_blocks(report: Report) -> Sequence[Block]:
    """Return the provenance as blocks: machine, versions, hashes, commands."""
    found = report.provenance
    blocks: list[Block] = []
    for title, key, heads in (
        ("Machine", "machine", ("what", "here")),
        ("Versions", "versions", ("package", "version")),
        ("Files", "files", ("file", "SHA-256")),
    ):
        rows = list(found.get(key, {}).items())
        if rows:
            blocks.append(Table(title, [Column(head) for head in heads], rows))
    commands = found.get("commands", [])
    if commands:
        columns = [Column("command"), Column("exit code", True), Column("seconds", True)]
        rows = [(row["line"], row["exit_code"], round(row["seconds"], 1)) for row in commands]
        blocks.append(Table("Commands", columns, rows))
    return blocks
