"""What is here: a GPU or the reason why none, torch, nvcc, compute-sanitizer."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from opforge.build.cuda_driver import find_devices

__all__ = ["describe", "found_tool", "no_gpu", "torch_reason"]

_TOOLKITS: Final = ("/usr/local/cuda/bin", "/opt/cuda/bin", "/usr/local/cuda/compute-sanitizer")


def no_gpu() -> str:
    """Return why nothing can be checked here, "" where there is a GPU."""
    return find_devices().reason


def torch_reason() -> str:
    """Return why torch cannot use the GPU, "" where it can; torch is imported."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} (CUDA {torch.version.cuda}) does not see the GPU"
    return ""


def found_tool(name: str) -> Path | None:
    """Find a program of the CUDA toolkit."""
    home = os.environ.get("CUDA_HOME", "")
    folders = [f"{home}/bin", f"{home}/compute-sanitizer"] if home else []
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join([*folders, *_TOOLKITS]))
    return Path(found) if found else None


def describe() -> dict[str, Any]:
    """Return the machine as plain data."""
    return {
        "devices": [asdict(device) for device in find_devices().devices],
        "python": sys.version.split()[0],
        "nvcc": str(found_tool("nvcc") or ""),
        "compute_sanitizer": str(found_tool("compute-sanitizer") or ""),
        "processors": os.cpu_count(),
    }
