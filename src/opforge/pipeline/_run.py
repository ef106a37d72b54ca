"""Runs the steps in their order; one that fails ends only what needs its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opforge._files import whole_file
from opforge.pipeline._commands import run_command
from opforge.pipeline._record import file_hash, fingerprint, read_record, steps_of, write_record
from opforge.pipeline._steps import STEPS, Settings, Step

__all__ = ["Pipeline", "StepResult", "run"]

ALL = tuple(step.name for step in STEPS)

_GOOD = ("passed", "up to date", "idle", "not asked")


@dataclass
class StepResult:
    """How one step went.

    Attributes:
        step: its name.
        state: ``passed``, ``failed``, ``up to date`` (a run before this one passed, and nothing has changed),
            ``idle`` (nothing to do), ``not run`` (what it needs was not made), ``not asked``.
        reason: why, where it is not ``passed``.
        seconds: of the clock.
        commands: rows of line, exit_code, seconds.
        key: what it depended on.
        files: what it wrote, with the hash of each.
    """

    step: str
    state: str
    reason: str = ""
    seconds: float = 0.0
    commands: list[dict[str, Any]] = field(default_factory=list)
    key: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @property
    def bad(self) -> bool:
        """Whether it failed, or lacks what another should have made."""
        return self.state not in _GOOD


@dataclass
class Pipeline:
    """How all steps went.

    Attributes:
        settings: of the run.
        steps: in their order.
    """

    settings: Settings
    steps: list[StepResult]

    @property
    def passed(self) -> bool:
        """Whether no step failed, and none lacks what another should have written."""
        return not any(step.bad for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the record."""
        s = self.settings
        return {
            "source": s.source,
            "name": s.name,
            "folder": str(s.folder),
            "packages": list(s.packages),
            "passed": self.passed,
            "steps": [asdict(step) for step in self.steps],
        }


def run(
    settings: Settings,
    *,
    asked: Collection[str] = ALL,
    resume: bool = False,
    show: Callable[[str], None] = lambda _: None,
    ended: Callable[[StepResult], None] = lambda _: None,
) -> Pipeline:
    """Run the steps; the record is written after each, so that an interrupt loses only the step that ran.

    Args:
        settings: what the pipeline is about.
        asked: names of the steps that are wanted.
        resume: keep what an earlier run passed, where its inputs, words and files are still the same.
        show: told what is running.
        ended: told of each step as it ends.

    Raises:
        OSError: the folder cannot be written.
    """
    (settings.folder / "results").mkdir(parents=True, exist_ok=True)
    before = steps_of(read_record(settings.folder))
    made = Pipeline(settings, [])
    stale: set[Path] = set()
    for number, step in enumerate(STEPS):
        if step.name in asked:
            show(step.about)
            result = _step(step, settings, stale, before.get(step.name, {}) if resume else {})
            if result.bad:
                stale.update(step.writes(settings))
        else:
            old = before.get(step.name, {})  # a later run may still go on from it
            result = StepResult(step.name, "not asked", key=old.get("key", ""), files=old.get("files", {}))
        made.steps.append(result)
        content = made.as_dict()
        rest = [before[later.name] for later in STEPS[number + 1 :] if later.name in before]
        write_record(settings.folder, {**content, "steps": [*content["steps"], *rest]})
        ended(result)
    return made


def _step(step: Step, settings: Settings, stale: Collection[Path], before: dict[str, Any]) -> StepResult:
    needs = list(step.needs(settings))
    absent = [path.name for path in needs if path in stale or not path.is_file()]
    if absent:
        return StepResult(step.name, "not run", f"{', '.join(absent)} was not made")
    calls = [[*words, *dict(settings.options).get(step.name, ())] for words in step.calls(settings)]
    if not calls:
        return StepResult(step.name, "idle", step.idle)
    given = {path for told in STEPS for path in settings.results(told.name)} & {Path(word) for word in calls[0]}
    key = fingerprint(settings, calls, [*needs, *sorted(given)])
    if before.get("key") == key and all(file_hash(Path(path)) == known for path, known in before["files"].items()):
        return StepResult(step.name, "up to date", key=key, files=before["files"])
    for path in settings.results(step.name):
        path.unlink()  # it says nothing of this run
    made = StepResult(step.name, "passed")
    for number, words in enumerate(calls):
        done = run_command(words, seconds=settings.seconds)
        made.commands.append({"line": done.line, "exit_code": done.code, "seconds": done.seconds})
        made.seconds += done.seconds
        path = settings.result(step.name, number)
        if not done.reason:
            with whole_file(path) as temporary:
                temporary.write_text(json.dumps(done.content, indent=1) + "\n", encoding="utf-8")
            made.files[str(path)] = file_hash(path)
        if done.code != 0 and step.name != "report":  # whose exit code repeats what others said
            made.state = "failed"
            found = f"{done.line} found something: results/{path.name}"
            made.reason = "; ".join(filter(None, (made.reason, done.reason or found)))
    lost = [path.name for path in step.writes(settings) if not path.is_file()]
    if lost and made.state == "passed":
        made.state, made.reason = "failed", f"{', '.join(lost)} was not written"
    if made.state == "passed":
        made.key = key
        made.files |= {str(path): file_hash(path) for path in step.writes(settings)}
    return made
