"""The device check (docs/device_check.md): ``make device-check``, or ``--rehearse`` on a machine without a GPU.

Exit code 0 where everything passed, and where there is no GPU (with the reason); 1 where a part failed, where none
passed, and where the tests of kernels or streams were left out. Figures that fall short of the aims are marked, and
are no failure.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from opforge._files import whole_file
from tools.device_check import machine
from tools.device_check.packages import default_folder, rehearses
from tools.device_check.parts import ROOT, STAGES, Part, Running
from tools.device_check.prebuilt import DRIVER, build
from tools.device_check.table import markdown

SECONDS: Final = 460.0
_POLL: Final = 0.05
_NAMES: Final = tuple(part.name for stage in STAGES for part in stage)
_NEEDED: Final = ("test_kernels", "test_streams")
"""Parts without which a run says nothing."""


def main(arguments: Sequence[str] | None = None, *, packages: Sequence[str] = ()) -> int:
    """Run the parts stage by stage; results are written after each.

    Args:
        arguments: of the command line.
        packages: folders of Python packages for the end of the parts' path.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or "build/device-check"))
    parser.add_argument("--work", type=Path, default=Path("build/device-work"), help="for what need not be kept")
    parser.add_argument("--prebuilt", type=Path)
    parser.add_argument("--part", action="append", choices=_NAMES, help="run these parts only")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the whole")
    parser.add_argument("--rehearse", action="store_true", default=rehearses())
    given = parser.parse_args(arguments)
    prebuilt = (given.prebuilt or default_folder(given.rehearse)).absolute()
    out, work = given.out.absolute(), given.work.absolute()
    for folder in (out, work):
        folder.mkdir(parents=True, exist_ok=True)
    for old in [out / "logs.txt", *work.glob("bench_*.jsonl")]:  # of an earlier run
        old.unlink(missing_ok=True)
    if given.rehearse:
        if not (prebuilt / DRIVER).is_file():
            build(prebuilt, packages=("opforge.ops:CustomGELU", "opforge.ops:SparseMatMul"), emulated=True)
        os.environ["OPFORGE_CUDA_DRIVER"] = str(prebuilt / DRIVER)
    reason = machine.no_gpu()
    content: dict[str, Any] = {"gpu": not reason, "reason": reason, "rehearsal": given.rehearse}
    content |= {"parts": [], "rows": []}
    if reason:
        _write(out, content)
        print(f"no GPU: {reason}")
        return 0
    content["machine"] = machine.describe()
    content["prebuilt"] = _prebuilt(prebuilt)
    environment = _environment(prebuilt, work, packages, given.rehearse)
    until = time.monotonic() + given.seconds
    for stage in STAGES:
        chosen = [part for part in stage if not given.part or part.name in given.part]
        _run_stage(chosen, environment, (out, work), until, content)
        content["rows"] = _rows(work)
        _write(out, content)
    print(markdown(content))
    code, words = verdict(content["parts"])
    print(f"{words}; see {out / 'logs.txt'}" if code else words)
    return code


def verdict(parts: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """Return the exit code and a line about parts that have ended or were left out."""
    states = {part["name"]: part["state"] for part in parts}
    bad = [name for name, state in states.items() if state in ("FAILED", "timed out")]
    bad += [name for name in _NEEDED if states.get(name, "passed") != "passed" and name not in bad]
    passed, omitted = (sum(state == wanted for state in states.values()) for wanted in ("passed", "left out"))
    counts = f"{passed} of {len(states)} parts passed, {omitted} left out"
    if bad:
        return 1, f"FAILED: {', '.join(bad)}; {counts}"
    return (0, counts) if passed else (1, f"FAILED: nothing was checked; {counts}")


def _run_stage(
    parts: Sequence[Part],
    environment: dict[str, str],
    folders: tuple[Path, Path],
    until: float,
    content: dict[str, Any],
) -> None:
    out, work = folders
    running = []
    for part in parts:
        why = _left_out(part, until)
        if why:
            content["parts"].append({"name": part.name, "state": "left out", "why": why})
            print(f"{part.name}: left out, {why}", flush=True)
        else:
            running.append(Running(part, environment, work, until - time.monotonic()))
    while running:
        for one in [r for r in running if r.finished()]:
            running.remove(one)
            result = one.result()
            content["parts"].append(result)
            print(f"{result['name']}: {result['state']} in {result['seconds']:.1f} s", flush=True)
            with (out / "logs.txt").open("a", encoding="utf-8") as logs:
                logs.write(f"==== {result['name']}: {result['state']}\n{one.tail(60000)}\n")
            _write(out, content)
        time.sleep(_POLL)


def _left_out(part: Part, until: float) -> str:
    if part.needs and importlib.util.find_spec(part.needs) is None:
        return f"{part.needs} is not installed"
    if part.needs == "torch" and not os.environ.get("OPFORGE_CUDA_DRIVER"):
        reason = machine.torch_reason()
        if reason:
            return reason
    if part.tool and machine.found_tool(part.tool) is None:
        return f"{part.tool} is not here"
    if part.words[1] == "pytest":
        if importlib.util.find_spec("pytest") is None:
            return "pytest is not installed"
        if not (ROOT / part.words[-1]).is_file():
            return f"there is no {part.words[-1]}"
    if time.monotonic() > until - 5:
        return "no time is left"
    return ""


def _environment(prebuilt: Path, work: Path, packages: Sequence[str], rehearse: bool) -> dict[str, str]:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", ""), *packages]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
        "OPFORGE_LIBRARY_PATH": str(prebuilt),
        "OPFORGE_CACHE": str(work / "cache"),
        "OPFORGE_TORCH_BUILD": "off",  # the first part builds it, and nothing beside the benchmark
        "OPFORGE_DEVICE_WORK": str(work),
        "OPFORGE_DEVICE_CHECK": "emulated" if rehearse else "",
        # Frameworks that would take all of the memory for themselves.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def _rows(work: Path) -> list[dict[str, Any]]:
    """Read what the benchmark's processes wrote, row by row; a line that was cut off is left out."""
    rows = []
    for path in sorted(work.glob("bench_*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
    return rows


def _prebuilt(folder: Path) -> Any:  # noqa: ANN401 - what the file holds
    try:
        return json.loads((folder / "prebuilt.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {"missing": f"{error}; kernels are compiled here, where that works (make device-build)"}


def _write(out: Path, content: dict[str, Any]) -> None:
    with whole_file(out / "results.json") as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    with whole_file(out / "table.md") as temporary:
        temporary.write_text(markdown(content), encoding="utf-8")
