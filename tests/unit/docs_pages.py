"""Reads the Markdown pages of the project and runs what they show.

Conventions of code blocks, by their info string:
    python                run; all blocks of a page share one namespace and one empty folder
    python raises=NAME    must raise this class or a subclass; printed is the message
    bash                  run by bash with -e in the same folder
    bash exit=N           must end with this status
    bash setup            not run: installs, fetches or needs another tree; its commands are looked up
    text                  after one of the above: what it printed; `...` stands for anything
    no info, or another   not run
A block whose first line is a comment with a file name (`# net.py`, `// run.c`) is written to that file instead.

`python docs_pages.py PAGE FOLDER` runs one page in FOLDER and says at which line it fails.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))
from tests.notices import without_notices  # noqa: E402

sys.path.pop()  # what pages import is opforge, not this repository
_FENCE = re.compile(r"^(\s*)```(.*)$")
_FILE = re.compile(r"^(?:#|//) ([\w./-]+\.\w+)$")


@dataclass
class Block:
    """A fenced code block: its language, options, text and the line where it begins."""

    language: str
    options: tuple[str, ...]
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that the block is written to, if it names one."""
        first = self.text.split("\n", 1)[0]
        match = _FILE.match(first)
        return match.group(1) if match else None

    def option(self, name: str) -> str | None:
        """The value of ``name=value`` in the info string."""
        return next((o.partition("=")[2] for o in self.options if o.startswith(f"{name}=")), None)


def pages() -> list[Path]:
    """Every Markdown file of the project that a reader may open."""
    folders = ("docs", "src/opforge/ops", "runtime", "examples", "benchmarks", "tests", "adapters", "tools")
    found = [*ROOT.glob("*.md")]
    for folder in folders:
        found += (ROOT / folder).rglob("*.md")
    return sorted(found)


def blocks(page: Path) -> list[Block]:
    """The fenced code blocks of a page in order."""
    found: list[Block] = []
    opened: tuple[str, int, list[str]] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if fence is None:
            if opened is not None:
                opened[2].append(line)
        elif opened is None:
            opened = (fence.group(2).strip(), number, [])
        else:
            words = opened[0].split()
            found.append(Block(words[0] if words else "", tuple(words[1:]), "\n".join(opened[2]) + "\n", opened[1]))
            opened = None
    assert opened is None, f"{page}: the block of line {opened[1]} is not closed"  # type: ignore[index]
    return found


def matches(expected: str, got: str) -> bool:
    """Whether ``got`` is what the page shows; blanks count once, `...` stands for anything."""
    wanted = [" ".join(line.split()) for line in expected.strip().splitlines()]
    text = "\n".join(" ".join(line.split()) for line in got.strip().splitlines())
    pattern = "\n".join(re.escape(line).replace(r"\.\.\.", ".*") if line != "..." else "(?s:.*)" for line in wanted)
    return re.fullmatch(pattern, text) is not None


class _Runner:
    def __init__(self, page: Path, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.names: dict[str, object] = {"__name__": "__page__"}
        self.printed = ""
        shims = folder / ".commands"
        shims.mkdir()
        for name, arguments in (("python", ""), ("opforge", " -m opforge")):
            (shims / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
            (shims / name).chmod(0o755)
        path = f"{shims}{os.pathsep}{os.environ['PATH']}"
        source = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": source, "COLUMNS": "140"}

    def fail(self, block: Block, what: str) -> None:
        raise SystemExit(f"{self.page}:{block.line}: {what}")

    def python(self, block: Block) -> None:
        file = self.folder / f"block_{block.line}.py"
        file.write_text(block.text, encoding="utf-8")
        wanted = block.option("raises")
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                exec(compile(block.text, str(file), "exec"), self.names)
        except Exception as error:
            if wanted not in [kind.__name__ for kind in type(error).__mro__]:
                self.fail(block, f"raises\n{traceback.format_exc()}")
            self.printed = str(error)
        else:
            if wanted is not None:
                self.fail(block, f"should raise {wanted}")
            self.printed = output.getvalue()

    def bash(self, block: Block) -> None:
        command = ["bash", "-e", "-o", "pipefail", "-c", block.text]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        if done.returncode != int(block.option("exit") or 0):
            self.fail(block, f"exit status {done.returncode}:\n{done.stdout}{done.stderr}")
        # Of what succeeds the page shows results; warnings of other packages differ from machine to machine.
        self.printed = done.stdout + (without_notices(done.stderr) if done.returncode else "")

    def run(self) -> None:
        checkable = False
        for block in blocks(self.page):
            if block.file is not None and block.language not in ("", "text"):
                (self.folder / block.file).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / block.file).write_text(block.text, encoding="utf-8")
                checkable = False
            elif block.language in ("python", "bash") and "setup" not in block.options:
                getattr(self, block.language)(block)
                checkable = True
            elif block.language == "text" and checkable:
                if not matches(block.text, self.printed):
                    self.fail(block, f"the page shows\n{block.text}\nbut what is printed is\n{self.printed}")
                checkable = False
            else:
                checkable = False


def main(page: str, folder: str) -> None:
    """Run one page."""
    sys.path[0] = ""  # not this script's folder, where folders are called as frameworks are
    os.chdir(folder)
    _Runner(Path(page), Path(folder)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
