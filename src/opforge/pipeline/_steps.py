"""The steps of a pipeline, as rows: what each is called with, what it needs of those before it, what it writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opforge.pipeline._commands import Common, option_words
from opforge.verify import engines

__all__ = ["STEPS", "Settings", "Step"]


@dataclass(frozen=True, kw_only=True)
class Settings(Common):
    """What a pipeline is about, and what its commands are called with; see also `Common`.

    Attributes:
        source: ``module.py:factory``, ``PACKAGE:Operator``, the folder of a SavedModel, or an .onnx.
        folder: for all that is written.
        name: files' names begin with it.
        engines: that results are compared with and timed; () = the commands' own choice.
        options: further words of a step's command, by its name.
    """

    source: str
    folder: Path
    name: str
    engines: Sequence[str] = ()
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the source is a model in ONNX, which needs no export."""
        return self.source.endswith(".onnx")

    @property
    def exported(self) -> Path:
        """The model in ONNX."""
        return Path(self.source) if self.ready else self.folder / f"{self.name}.onnx"

    @property
    def simplified(self) -> Path:
        """The simplified model."""
        return self.folder / f"{self.name}.simplified.onnx"

    @property
    def program(self) -> Path:
        """The compiled model."""
        return self.folder / f"{self.name}.bin"

    def result(self, step: str, number: int = 0) -> Path:
        """Where the JSON of a step's command is kept."""
        return self.folder / "results" / (f"{step}-{number + 1}.json" if number else f"{step}.json")

    def results(self, step: str) -> list[Path]:
        """Return the JSON files of a step that are there, in the order of its commands."""
        found = [p for p in self.folder.glob(f"results/{step}*.json") if p.stem.partition("-")[0] == step]
        return sorted(found, key=lambda path: int(path.stem.partition("-")[2] or 1))


Words = Callable[[Settings], Sequence[Sequence[str]]]


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        name: of the step.
        about: what it is for.
        calls: words of its commands; none where there is nothing to do.
        idle: why there is nothing to do.
        needs: files that steps before it write.
        writes: files that must be there when it ends.
    """

    name: str
    about: str
    calls: Words
    idle: str = ""
    needs: Callable[[Settings], Iterable[Path]] = lambda _: ()
    writes: Callable[[Settings], Iterable[Path]] = lambda _: ()


def _checks(s: Settings) -> list[list[str]]:
    return [["check", package, "--level", s.level] for package in s.packages]


def _export(s: Settings) -> list[list[str]]:
    return [] if s.ready else [["export", s.source, "-o", str(s.exported), *s.words("package")]]


def _compare(s: Settings) -> list[list[str]]:
    module = ["--torch", s.source] if Path(s.source.rpartition(":")[0]).suffix == ".py" and _lower(s.source) else []
    mine = ["opforge"] if s.engines and not {"opforge", "all"} & set(s.engines) else []
    chosen = option_words("engine", (*mine, *s.engines))
    return [["compare", str(s.simplified), "--bin", str(s.program), *module, *chosen,
             *s.words("package", "size", "threads")]]  # fmt: skip


def _bench(s: Settings) -> list[list[str]]:
    """Time the engines that were compared: they can run the model."""
    names: list[str] = list(s.engines)
    if not names and s.result("compare").is_file():
        compared = json.loads(s.result("compare").read_text(encoding="utf-8"))
        ran = [row["engine"] for row in compared["rows"]] + [compared["reference"]]
        names = [name for name in dict.fromkeys(["opforge", *ran]) if name in engines() and name != "reference"]
    chosen = option_words("engine", names or ["opforge"])
    return [["bench", str(s.simplified), *chosen, *s.words("size", "threads", "package")]]


def _lower(source: str) -> bool:
    """Whether the name after the colon is a factory's, as ``opforge export`` tells it from an operator's."""
    return not source.rpartition(":")[2][:1].isupper()


def _report(s: Settings) -> list[list[str]]:
    results = [str(path) for step in _TOLD for path in s.results(step)]
    if not results:
        return []
    forms = [word for suffix in ("html", "xml", "json") for word in ("-o", str(s.folder / f"report.{suffix}"))]
    return [["report", *results, *forms, "--title", s.name]]


_TOLD = ("check", "validate", "compare", "bench", "profile", "stress", "inspect", "memory")
"""Steps whose results a report has a section for."""

STEPS: tuple[Step, ...] = (
    Step("check", "operators: values, gradients, boundary inputs", _checks, idle="no operator package is named"),
    Step("export", "the model to ONNX", _export, idle="the source is ONNX", writes=lambda s: [s.exported]),
    Step("validate", "the ONNX model: domains, imports, nodes against their operators",
         lambda s: [["check", str(s.exported), "--level", "quick", *s.words("package")]],
         needs=lambda s: [s.exported]),
    Step("simplify", "constants folded, dead nodes gone",
         lambda s: [["simplify", str(s.exported), "-o", str(s.simplified), *s.words("package")]],
         needs=lambda s: [s.exported], writes=lambda s: [s.simplified]),
    Step("compile", "the model to one .bin",
         lambda s: [["compile", str(s.simplified), "-o", str(s.program), *s.words("package")]],
         needs=lambda s: [s.simplified], writes=lambda s: [s.program]),
    Step("inspect", "what the .bin holds", lambda s: [["inspect", str(s.program), "--nodes"]],
         needs=lambda s: [s.program]),
    Step("memory", "its memory plan", lambda s: [["inspect", str(s.program), "--memory", *s.words("size")]],
         needs=lambda s: [s.program]),
    Step("compare", "the same inputs through the .bin, its source and other engines", _compare,
         needs=lambda s: [s.simplified, s.program]),
    Step("profile", "where the time goes",
         lambda s: [["profile", str(s.program), *s.words("size", "threads", "package")]],
         needs=lambda s: [s.program]),
    Step("bench", "time in each engine", _bench,
         needs=lambda s: [s.simplified]),
    Step("stress", "leaks, races, crashes", lambda s: [s.stress(str(s.program), s.folder / "stress")],
          needs=lambda s: [s.program]),
    Step("report", "all of it on one page", _report, idle="no step before it has a result",
         writes=lambda s: [s.folder / "report.html"]),
)  # fmt: skip
"""In their order."""
