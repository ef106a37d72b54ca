"""The checklist of a deployment: a row per question and stage, answered by what was run, or by the command to run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from opforge.errors import ArgumentError, OpforgeError
from opforge.monitor import LogReport, fingerprint, judge, read_log
from opforge.pipeline._record import RECORD, file_hash, read_record, steps_of
from opforge.pipeline._steps import STEPS, Settings

__all__ = ["CHECKLIST", "STAGES", "Answer", "Folder", "Item", "Looked", "as_dict", "checklist", "open_folder"]

TEST_DOMAIN = "local.test"
"""Of operators that nobody gave a domain to: two of them may mean different things."""


@dataclass(frozen=True)
class Looked:
    """What was seen: ``passed`` is None where nobody looked yet, or where it is not clear."""

    passed: bool | None
    words: str


@dataclass(frozen=True)
class Item:
    """A row of the checklist.

    Attributes:
        stage: of the way from the first line of an operator to the deployed model.
        asks: what has to hold.
        command: does what is not done; names in braces are the folder's.
        look: answers by what was run, or looks itself.
    """

    stage: str
    asks: str
    command: str
    look: Callable[[Folder], Looked]


@dataclass(frozen=True)
class Answer:
    """A row with its answer; ``command`` is "" where nothing is left to do."""

    stage: str
    asks: str
    passed: bool | None
    words: str
    command: str


class Folder:
    """What a pipeline left in a folder; a result counts while the files that it is about are those of now."""

    def __init__(self, settings: Settings, record: Mapping[str, Any], logs: Sequence[Path]) -> None:
        """Use ``open_folder``."""
        self.settings = settings
        self.logs = logs
        self._record = record

    @property
    def names(self) -> dict[str, str]:
        """What stands for the names in braces of commands."""
        s = self.settings
        packages = s.packages or (["PACKAGE"] if self.custom else [])
        again = ["opforge", "pipeline", s.source, *(w for p in packages for w in ("--package", p)), "-o", str(s.folder)]
        log = s.folder / f"{s.name}.jsonl"
        return {
            "pipeline": shlex.join(again),
            "program": shlex.quote(str(s.program)),
            "log": shlex.quote(str(log)),
        }

    def results(self, step: str) -> list[Any] | Looked:
        """Return what the commands of a step printed, or why that says nothing."""
        row = self._record.get(step)
        if row is None or (row["state"] == "not asked" and not row["files"]):
            return Looked(None, "not done")
        if row["state"] == "not run":
            return Looked(None, f"not done: {row['reason']}")
        paths = [Path(name) for name in row["files"] if Path(name).parent.name == "results"]
        if not paths:
            return Looked(False if row["state"] == "failed" else None, row["reason"] or "not done")
        stale = [path.name for path in paths if file_hash(path) != row["files"][str(path)]]
        stale += [path.name for path in self._needed(step) if not self._is_recorded(path)]
        if stale:
            return Looked(None, f"done, but {', '.join(stale)} changed since")
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]

    def _needed(self, step: str) -> Iterable[Path]:
        return next(told for told in STEPS if told.name == step).needs(self.settings)

    def _is_recorded(self, path: Path) -> bool:
        """Whether a file is the one that the step before wrote; one that no step wrote is the user's."""
        known = [row["files"][str(path)] for row in self._record.values() if str(path) in row["files"]]
        return not known or file_hash(path) in known

    @cached_property
    def custom(self) -> dict[str, int | None]:
        """Operators of the model that are not ONNX's, as ``domain::Name``, with the domain's version."""
        from opforge.onnx._read import read_model
        from opforge.onnx._walk import nodes, opset_versions, standard

        path = self.settings.exported
        if not path.is_file():
            return {}
        model = read_model(path, weights=False)
        versions = opset_versions(model)
        kinds = {(p.node.domain, p.node.op_type) for p in nodes(model) if not standard(p.node.domain)}
        return {f"{domain}::{name}": versions.get(domain) for domain, name in sorted(kinds)}

    @cached_property
    def reports(self) -> list[LogReport]:
        """The logs of this very file, held against the profile of the pipeline where there is one."""
        s = self.settings
        mine = fingerprint(s.program) if s.program.is_file() else ""
        profile = self.results("profile")
        baseline = profile[0] if isinstance(profile, list) else None
        return [judge(log, baseline) for log in read_log(self.logs) if log.fingerprint == mine]


def open_folder(folder: Path, logs: Sequence[Path] = ()) -> Folder:
    """Open what ``opforge pipeline`` wrote.

    Args:
        folder: of the pipeline.
        logs: of the deployed model; () = NAME.jsonl in the folder, where it is there.

    Raises:
        ArgumentError: it is no such folder.
    """
    content = read_record(folder)
    if not content.get("steps"):
        raise ArgumentError(
            "no pipeline wrote there",
            where=str(folder),
            expected=f"a folder with {RECORD}",
            hint="opforge pipeline SOURCE -o FOLDER",
        )
    settings = Settings(
        source=content["source"],
        folder=Path(content["folder"]),
        name=content["name"],
        packages=tuple(content["packages"]),
    )
    if settings.folder.absolute() != folder.absolute():
        raise ArgumentError(
            "the folder was moved, or is looked at from another one",
            where=str(folder),
            expected=f"what the pipeline was told: -o {settings.folder}",
            hint="call the checklist where the pipeline was called",
        )
    default = folder / f"{settings.name}.jsonl"
    return Folder(settings, steps_of(content), logs or ([default] if default.is_file() else []))


def checklist(folder: Folder, stages: Sequence[str] = ()) -> list[Answer]:
    """Answer every row of these stages; () = all."""
    found = []
    for item in CHECKLIST:
        if not stages or item.stage in stages:
            seen = item.look(folder)
            command = "" if seen.passed else item.command.format(**folder.names)
            found.append(Answer(item.stage, item.asks, seen.passed, seen.words, command))
    return found


def as_dict(answers: Sequence[Answer]) -> dict[str, Any]:
    """Give plain data."""
    return {"passed": all(answer.passed for answer in answers), "checklist": [asdict(answer) for answer in answers]}


def _told(step: str, judge: Callable[[list[Any]], Looked]) -> Callable[[Folder], Looked]:
    """Judge what the commands of a step printed; where that says nothing, say why."""

    def look(folder: Folder) -> Looked:
        found = folder.results(step)
        return found if isinstance(found, Looked) else judge(found)

    return look


def _rows(step: str, *checks: str) -> Callable[[Folder], Looked]:
    """Look at these rows of a step's check; () = all."""

    def judge(found: list[Any]) -> Looked:
        rows = [r for content in found for report in content["reports"] for r in report["rows"]]
        rows = [row for row in rows if not checks or row["check"] in checks]
        bad = [row for row in rows if not row["passed"]]
        if bad:
            return Looked(False, f"{len(bad)} of {len(rows)} checks failed: {bad[0]['check']}: {bad[0]['detail']}")
        if not rows:
            return Looked(True, "no operator has any")
        return Looked(True, f"{len(rows)} checks passed")

    return _told(step, judge)


def _checked(*checks: str) -> Callable[[Folder], Looked]:
    """Look at these rows of the packages' checks."""

    def look(folder: Folder) -> Looked:
        if folder.settings.packages:
            return _rows("check", *checks)(folder)
        if folder.custom:
            return Looked(None, f"not done: no --package was named for {', '.join(folder.custom)}")
        return Looked(True, "the model has no operators of its own")

    return look


def _registered(folder: Folder) -> Looked:
    seen = _rows("validate", "registry")(folder)
    named = ", ".join(f"{name} version {version}" for name, version in folder.custom.items())
    return Looked(True, named or "the model has no operators of its own") if seen.passed else seen


def _domains(folder: Folder) -> Looked:
    if not folder.settings.exported.is_file():
        return Looked(None, "not done: there is no model yet")
    domains = sorted({name.partition("::")[0] for name in folder.custom})
    if TEST_DOMAIN in domains:
        return Looked(False, f"{TEST_DOMAIN} is for tests: others may mean another operator by the same name")
    return Looked(True, ", ".join(domains) or "the model has no operators of its own")


def _simplified(found: list[Any]) -> Looked:
    nodes = found[0]["nodes"]
    return Looked(True, f"nodes: {nodes['before']}, then {nodes['after']}")


def _agrees(found: list[Any]) -> Looked:
    rows = found[0]["rows"]
    bad = [row for row in rows if not row["passed"]]
    if bad or not rows:
        words = f"{bad[0]['engine']}, output {bad[0]['output']}: {bad[0]['detail']}" if bad else "nothing was compared"
        return Looked(False, words)
    names = ", ".join(dict.fromkeys(row["engine"] for row in rows))
    return Looked(True, f"{names} against {found[0]['reference']}: at most {max(r['max_abs'] for r in rows):.3g} apart")


def _sound(folder: Folder) -> Looked:
    from opforge.bin.format import read
    from opforge.bin.table import read_table

    path = folder.settings.program
    if not path.is_file():
        return Looked(None, "not done: there is no .bin yet")
    try:
        table = read_table(path)
        read(path)
    except OpforgeError as problem:
        return Looked(False, str(problem))
    return Looked(True, f"format {table.version}, {len(table.sections)} sections, {table.size} bytes, checksums hold")


def _layouts(found: list[Any]) -> Looked:
    layouts = ", ".join(f"{name} {count}" for name, count in found[0]["layouts"].items())
    return Looked(True, f"of values: {layouts}; conversions: {len(found[0]['conversions']) or 'none'}")


def _loads(folder: Folder) -> Looked:
    """Open the file as a program would, every checksum tested."""
    from opforge.bin.format import read
    from opforge.bin.libraries import libraries_of
    from opforge.bin.session import Session

    path = folder.settings.program
    if not path.is_file():
        return Looked(None, "not done: there is no .bin yet")
    try:
        libraries = libraries_of(path, search=True)
        Session(path, verify="full", libraries=libraries)
        needed = [f"{item.domain}::{item.name}" for item in read(path).program.required]
    except OpforgeError as problem:
        return Looked(False, str(problem))
    return Looked(True, f"custom op loaded: {', '.join(needed)}" if needed else "loaded; no operator needs a library")


def _stressed(*checks: str) -> Callable[[Folder], Looked]:
    return _told("stress", lambda found: _verdicts(found[0]["verdicts"], checks, f"{found[0]['runs']} calls"))


def _logged(check: str) -> Callable[[Folder], Looked]:
    def look(folder: Folder) -> Looked:
        if not folder.logs:
            return Looked(None, "not done: there is no log")
        if not folder.reports:
            return Looked(None, "not done: the logs are of another file")
        rows = [asdict(verdict) for report in folder.reports for verdict in report.verdicts]
        return _verdicts(rows, (check,), f"{sum(report.log.runs for report in folder.reports)} runs")

    return look


def _verdicts(rows: Sequence[Mapping[str, Any]], checks: Sequence[str], amount: str) -> Looked:
    chosen = [row for row in rows if row["check"] in checks]
    for wanted in (False, None):
        for row in chosen:
            if row["passed"] is wanted:
                return Looked(wanted, "; ".join(filter(None, (row["words"], row["detail"]))))
    words = ", ".join(dict.fromkeys(row["words"] for row in chosen))
    return Looked(True, f"{words} ({amount})") if chosen else Looked(None, "not done")


_WATCH = "opforge monitor {program} --seconds 60 --log {log}"

CHECKLIST: tuple[Item, ...] = (
    Item("develop", "values agree with the reference", "{pipeline} --only check",
         _checked("values", "drawn", "boundary")),
    Item("develop", "gradients agree with finite differences, second ones too", "{pipeline} --only check",
         _checked("gradient", "gradient shapes", "second derivative")),
    Item("register", "domain, op_type and version of every operator are registered", "{pipeline} --only validate",
         _registered),
    Item("register", "domains name their owner", "opforge new NAME --domain com.company.ai", _domains),
    Item("export", "the model is sound: domains, imports, nodes, shapes", "{pipeline} --only validate",
         _rows("validate")),
    Item("export", "it is simplified", "{pipeline} --only simplify", _told("simplify", _simplified)),
    Item("convert", "header, section table and checksums of the .bin are sound", "{pipeline} --only compile", _sound),
    Item("convert", "layouts are recorded", "{pipeline} --only inspect", _told("inspect", _layouts)),
    Item("convert", "the .bin gives the source's results", "{pipeline} --only compare",
         _told("compare", _agrees)),
    Item("deploy", "the .bin is loaded, with its operators' libraries", "opforge check {program}", _loads),
    Item("deploy", "several callers get the same results; no crash, no errors", "{pipeline} --only stress",
         _stressed("process", "errors", "repeatable", "threads")),
    Item("monitor", "no errors", _WATCH, _logged("errors")),
    Item("monitor", "latency is stable", _WATCH, _logged("latency")),
    Item("monitor", "memory does not grow", _WATCH, _logged("memory")),
    Item("monitor", "no operator became slower", _WATCH, _logged("operators")),
)  # fmt: skip
"""In the order of the way."""

STAGES = tuple(dict.fromkeys(item.stage for item in CHECKLIST))
