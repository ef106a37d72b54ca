"""Runs the other commands for ``opforge report``, each in a process of its own, and keeps what they print as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from opforge.cli._targets import load_operators, split_target
from opforge.pipeline import Common, Ended, option_words, run_command
from opforge.report import KINDS, Section, adapted, missing, name_origins

__all__ = ["Gathered", "Options", "gather", "gathered_sections"]

_PROFILED = ("opforge", "onnxruntime", "openvino")
"""Engines that say what their nodes take, as far as a report sets them side by side."""


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """What the commands are run with; see also `Common`.

    Attributes:
        kinds: the parts that are wanted.
    """

    kinds: frozenset[str] = frozenset(KINDS)
    seconds: float = 900.0


@dataclass
class Gathered:
    """What was printed, the parts that are not there, the commands, and the files that were looked at."""

    results: list[tuple[str, Any]] = field(default_factory=list)
    others: list[Section] = field(default_factory=list)
    commands: list[dict[str, Any]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


def gather(target: str, options: Options, folder: Path, show: Callable[[str], None]) -> Gathered:
    """Run what there is for a target.

    Args:
        target: a model's file, or operators.
        options: for the commands.
        folder: for what they write.
        show: told what is running.
    """
    runner = _Runner(target, options, folder, show)
    path = Path(target)
    made: Mapping[str, Callable[[Path], None]] = {".onnx": runner.onnx_model, ".bin": runner.bin_file}
    if path.suffix in made:
        runner.found.files.append(path)
        made[path.suffix](path)
    else:
        runner.operators()
    return runner.found


def gathered_sections(parts: Mapping[str, Gathered]) -> list[Section]:
    """Make the sections of one target or of several, whose checks are one section; the others bear their names."""
    found: list[tuple[str, Section]] = []
    checks: list[Any] = []
    for target, part in parts.items():
        name_origins(content for _, content in part.results)
        mine = [content for where, content in part.results if where == _CHECK]
        checks += mine
        made = [adapted(content, where) for where, content in part.results if where != _CHECK]
        present = {section.kind for section in made} | ({"check"} if mine else set())
        made += [one for one in part.others if one.state != "missing" or one.kind not in present]
        found += [(target, section) for section in made]
    every = []
    if checks:
        reports = [report for content in checks for report in content["reports"]]
        every.append(adapted({"passed": all(content["passed"] for content in checks), "reports": reports}, _CHECK))
    # What is missing everywhere for one reason is said once.
    common = Counter((section.kind, section.summary) for _, section in found if section.state == "missing")
    for target, section in found:
        count = common.get((section.kind, section.summary), 0)
        if count < len(parts) or len(parts) == 1:
            named = f"{section.title}: {target}" if len(parts) > 1 else section.title
            every.append(replace(section, title=named))
        elif all(section != other for other in every):
            every.append(section)
    return every


_CHECK = "opforge check"


class _Runner:
    def __init__(self, target: str, options: Options, folder: Path, show: Callable[[str], None]) -> None:
        self._target, self._options, self._folder, self._show = target, options, folder, show
        self.found = Gathered()

    def onnx_model(self, path: Path) -> None:
        """Everything: the model against engines, and its program."""
        o, model = self._options, str(path)
        self._section("check", ["check", model, "--level", o.level, *o.words("package")])
        self._engines(model)
        self._section("inspect", ["inspect", model, "--nodes"])
        self._program(path)

    def bin_file(self, path: Path) -> None:
        """What a program tells alone."""
        for kind in ("compare", "bench"):
            self._left_out(kind, "A .bin alone has nothing that it could be held against; give the .onnx")
        self._section("check", ["check", str(path), "--level", self._options.level, *self._options.words("package")])
        self._profile(path, ["opforge"])
        self._one_program(path)

    def operators(self) -> None:
        """Checks and stress of all; engines where it is one operator, as a model of one node."""
        o = self._options
        self._section("check", ["check", self._target, "--level", o.level])
        model = self._folder / "operator.onnx"
        operators = load_operators(self._target)
        where, name = split_target(self._target)
        alone = f"{where}:{name or operators[0].name}"
        exported = self._run(["export", alone, "-o", str(model)]) if len(operators) == 1 else None
        if model.is_file():
            self._options = replace(o, packages=[*o.packages, where])
            self._engines(str(model))
            self._section("inspect", ["inspect", str(model), "--nodes"])
            self._program(model, stress=False)
        else:
            why = (exported and exported.reason) or "It is about a model or one operator; name one, as PACKAGE:Operator"
            for kind in ("compare", "bench", "profile", "inspect", "memory"):
                self._left_out(kind, why)
        self._stress(self._target)

    def _engines(self, model: str) -> None:
        words = self._options.words("package", "size", "threads")
        self._section("compare", ["compare", model, "--engine", "all", *words])
        compared: Any = next((c for name, c in self.found.results if name == "opforge compare"), {"rows": []})
        # Those that ran; what the others were held against (ONNX's evaluator) is no peer, and slow.
        ran = dict.fromkeys(["opforge", *(row["engine"] for row in compared["rows"])])
        self._section("bench", ["bench", model, *option_words("engine", ran), *words])
        self._profile(Path(model), [name for name in ran if name in _PROFILED])

    def _profile(self, model: Path, engines: Sequence[str]) -> None:
        words = self._options.words("package", "size", "threads")
        self._section("profile", ["profile", str(model), *option_words("engine", engines), *words])

    def _program(self, model: Path, *, stress: bool = True) -> None:
        target = self._folder / f"{model.stem}.bin"
        compiled = self._run(["compile", str(model), "-o", str(target), *self._options.words("package")])
        if not target.is_file():
            for kind in ("stress", "inspect", "memory"):
                self._left_out(kind, f"The model does not compile: {compiled.reason}")
            return
        self._one_program(target, stress=stress)

    def _one_program(self, path: Path, *, stress: bool = True) -> None:
        o, name = self._options, str(path)
        if stress:
            self._stress(name)
        self._section("inspect", ["inspect", name, "--nodes"])
        self._section("memory", ["inspect", name, "--memory", *o.words("size")])

    def _stress(self, target: str) -> None:
        self._section("stress", self._options.stress(target, self._folder / "stress"))

    def _section(self, kind: str, words: Sequence[str]) -> None:
        if kind not in self._options.kinds:
            return
        ended = self._run(words)
        why = ended.reason
        if not why:
            self.found.results.append((f"opforge {words[0]}", ended.content))
        elif ended.finding:
            why = f"The command itself failed: {why}" if ended.broken else why
            self.found.others.append(Section(kind, KINDS[kind].title, "failed", why))
        else:
            self._left_out(kind, why)

    def _left_out(self, kind: str, why: str) -> None:
        if kind in self._options.kinds:
            self.found.others.append(missing(KINDS[kind], why))

    def _run(self, words: Sequence[str]) -> Ended:
        self._show(f"opforge {words[0]}")
        ended = run_command(words, seconds=self._options.seconds, folder=self._folder)
        if ended.code is not None:
            self.found.commands.append({"line": ended.line, "exit_code": ended.code, "seconds": ended.seconds})
        return ended
