"""The documentation says what is true: its examples run, its links resolve, and what it names exists."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module, util
from pathlib import Path

import click
import pytest

import opforge
from opforge.cli._app import _group
from tests.unit.docs_pages import ROOT, blocks, matches, pages

PAGES = pages()
NAMES = [str(p.relative_to(ROOT)) for p in PAGES]


def runs(block) -> bool:
    return block.language in ("python", "bash") and block.file is None and "setup" not in block.options


# `make executorch` runs the examples of that page, where ExecuTorch is.
LEFT_OUT = {"README.zh-CN.md", *([] if util.find_spec("executorch") else ["executorch.md"])}
RUNNABLE = [p for p in PAGES if p.name not in LEFT_OUT and any(map(runs, blocks(p)))]
COMMANDS = {
    name: import_module(f"opforge.cli.commands.{name}").command for name in _group.list_commands(click.Context(_group))
}


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return re.sub(r"(?ms)^\s*```.*?^\s*```$", "", page.read_text(encoding="utf-8"))


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def code(page: Path) -> list[str]:
    """Inline code, and the lines of code blocks."""
    return [*inline_code(page), *(line for b in blocks(page) for line in b.text.splitlines())]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_run(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    for package in ("torch", "onnxruntime", "tensorflow", "jax", "keras"):
        if package in text and util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "OPFORGE_TORCH_BUILD": "off",
        "PYTHONDONTWRITEBYTECODE": "1",  # blocks write files anew, perhaps within one second
    }
    script = Path(__file__).with_name("docs_pages.py")
    done = subprocess.run(
        [sys.executable, script, page, tmp_path], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_resolve(page):
    text = prose(page)
    headings = {}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            if file not in headings:
                headings[file] = {slug(h) for h in re.findall(r"(?m)^#+ (.+)$", prose(file))}
            assert anchor in headings[file], f"{page.name}: {target} names no heading of {sorted(headings[file])}"


def slug(heading: str) -> str:
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def quoted_commands(page: Path) -> list[list[str]]:
    """The words of every `opforge ...` in inline code and in shell blocks; those that show a failure are left out."""
    lines = inline_code(page)
    for block in blocks(page):
        if block.language == "bash" and block.option("exit") is None:
            lines += block.text.splitlines()
    found = []
    for line in lines:
        for command in re.split(r"[;|&]", line):
            match = re.match(r"\s*(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?opforge ([a-z].*)", command)
            if match:
                found.append(match.group(1).split())
    return found


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_exist(page):
    for name, *words in quoted_commands(page):
        assert name in COMMANDS, f"{page.name} quotes `opforge {name}`"
        options = {o for parameter in COMMANDS[name].params for o in (*parameter.opts, *parameter.secondary_opts)}
        for word in words:
            option = word.partition("=")[0]
            if option.startswith("-") and option not in ("-h", "--help"):
                assert option in options, f"{page.name} quotes `opforge {name} {option}`"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_public_names_exist(page):
    for text in code(page):
        for dotted in re.findall(r"(?<![\w.\"'/])of((?:\.[A-Za-z_]\w*)+)", text):
            resolve("opforge" + dotted, page)
    for text in inline_code(page):
        if re.fullmatch(r"opforge(\.\w+)+(\(.*\))?", text):
            resolve(text.partition("(")[0], page)


def resolve(dotted: str, page: Path) -> None:
    value = opforge
    for index, name in enumerate(dotted.split(".")[1:], 1):
        if not hasattr(value, name):
            path = ".".join(dotted.split(".")[: index + 1])
            try:
                value = import_module(path)
                continue
            except ModuleNotFoundError:
                pytest.fail(f"{page.name} quotes {dotted}; there is no {path}")
        value = getattr(value, name)


def source_text() -> str:
    files = [
        *(path for suffix in ("*.py", "*.cc", "*.cu", "*.cuh") for path in (ROOT / "src").rglob(suffix)),
        *(ROOT / "tools").rglob("*.py"),
        *(ROOT / ".ci").glob("*"),
        ROOT / "Makefile",
        ROOT / "CMakeLists.txt",
    ]
    for folder in ("runtime", "include", "adapters", "tests"):
        files += [
            p
            for suffix in ("*.cpp", "*.h", "*.cuh", "*.def", "*.py", "CMakeLists.txt")
            for p in (ROOT / folder).rglob(suffix)
        ]
    own = {Path(__file__), Path(__file__).with_name("docs_pages.py")}
    return "\n".join(p.read_text(encoding="utf-8") for p in files if p.is_file() and p not in own)


def test_environment_variables_are_documented_and_exist():
    source = source_text()
    for page in PAGES:
        for name in set(re.findall(r"OPFORGE_[A-Z0-9_]*[A-Z0-9]", page.read_text(encoding="utf-8"))):
            assert name in source, f"{page.name} quotes {name}"
    read = set(re.findall(r"(?:environ\.get\(|getenv\(|environ\[)\"(OPFORGE_\w+)\"", source))
    missing = read - set(re.findall(r"`(OPFORGE_\w+)`", (ROOT / "docs/environment.md").read_text()))
    assert not missing, f"docs/environment.md lacks {missing}"


def test_files_that_pages_name_exist():
    folders = "src|runtime|include|docs|tests|tools|adapters|examples|benchmarks|requirements"
    for page in PAGES:
        for text in inline_code(page):
            if re.fullmatch(rf"(?:{folders})/[\w./-]+", text) and not re.search(r"\b(NAME|HOST|PART)\b", text):
                assert (ROOT / text).exists(), f"{page.relative_to(ROOT)} names {text}"


def test_make_targets_and_extras_exist():
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    project = (ROOT / "pyproject.toml").read_text()
    extras = set(
        re.findall(
            r"(?m)^([a-z]+) = \[", project.split("[project.optional-dependencies]")[1].split("[project.scripts]")[0]
        )
    )
    for page in PAGES:
        for text in code(page):
            command = re.match(r"make ([a-z-]+)(?![\w -])", text) or re.fullmatch(
                r"make ([a-z-]+)(?: [A-Z_]+=\S+)?", text
            )
            if command:
                assert command.group(1) in targets, f"{page.name} quotes {text}"
            for names in re.findall(r"(?:opforge|'\.)\[([a-z,]+)\]", text):
                assert set(names.split(",")) <= extras, f"{page.name} quotes the extras {names}"


def test_set_up_blocks_hold_installs_only():
    allowed = (
        "pip install",
        "python3 -m venv",
        "python -m venv",
        "git clone",
        "make ",
        "cd ",
        ". ",
        "sudo apt-get",
        "cmake ",
        "#",
    )
    for page in PAGES:
        for block in blocks(page):
            if block.language == "bash" and "setup" in block.options:
                for line in filter(str.strip, block.text.splitlines()):
                    assert line.strip().startswith(allowed), f"{page.name}:{block.line}: {line} can be run"


def test_chinese_readme_shows_the_same_code_and_links():
    english, chinese = ROOT / "README.md", ROOT / "README.zh-CN.md"
    assert [(b.language, b.options, b.text) for b in blocks(chinese)] == [
        (b.language, b.options, b.text) for b in blocks(english)
    ]
    links = re.compile(r"\]\((docs/[^)\s#]+|C[A-Z]+\.md)")
    assert links.findall(prose(chinese)) == links.findall(prose(english))
    assert len(re.findall(r"(?m)^## ", prose(chinese))) == len(re.findall(r"(?m)^## ", prose(english)))


def test_generated_tables_are_fresh():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/doc_tables.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_bench_table_prints_the_results(tmp_path):
    row = {
        "case": "gelu",
        "metric": "time",
        "threads": 1,
        "ours": 1e-3,
        "peer": "torch",
        "peer_value": 3e-3,
        "ratio": 3.0,
        "interval": [2.9, 3.1],
        "limit": 3.5,
        "verdict": "below",
        "group": "operators",
    }
    other = {**row, "case": "net", "group": "models", "peer_value": 4e-3, "ratio": 4.0, "limit": None, "verdict": ""}
    third = {**other, "case": "net two", "ratio": 1.0, "peer": "jax"}
    more = [{**other, "case": "net three"}, {**third, "case": "net three"}, {**third, "peer": "seldom"}]
    (tmp_path / "results.json").write_text(json.dumps([row, other, third, *more]))
    script = ROOT / "tools/bench_table.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path / "results.json"], capture_output=True, text=True, check=True
    )
    assert "| gelu | 1 | 1.00 ms | torch | 3.00 ms | 3.00 | 2.90 to 3.10 | 3.50, short |" in done.stdout
    page = tmp_path / "page.md"
    whole = "a\n<!-- bench begin -->\nold\n<!-- bench end -->\nb\n"
    page.write_text(whole + "<!-- bench begin: models -->\nold\n<!-- bench end -->\nb\n")
    subprocess.run(
        [sys.executable, script, tmp_path / "results.json", "--write", page], capture_output=True, check=True
    )
    assert "old" not in page.read_text()
    first, second = page.read_text().split("<!-- bench begin: models -->")
    assert "| gelu |" in first
    assert "| gelu |" not in second
    assert "| net | 1 | 1.00 ms | 4.00 |  |" in second
    assert "seldom" in first
    assert "### Geometric means over whole models" not in first  # of ONNX Runtime and OpenVINO, which are not there
    assert "seldom" not in second  # a peer of fewer than half of the cases has no column
    assert "| geometric mean | 1 | | 4.00 | 1.00 |" in second
    assert page.read_text().startswith("a\n<!-- bench begin -->\n")
    assert page.read_text().endswith("<!-- bench end -->\nb\n")


def test_matching_of_printed_text():
    assert matches("a ... c\n...\nend\n", "a  b c\nx\ny\nend\n")
    assert not matches("a\nb\n", "a\nc\n")


def test_the_version_of_torch_is_the_pinned_one():
    pinned = re.search(r"(?m)^torch==(\S+)$", (ROOT / "requirements/constraints.txt").read_text())
    assert pinned is not None
    for page in PAGES:
        for version in re.findall(r"torch==(\S+)", page.read_text(encoding="utf-8")):
            assert version == pinned.group(1), f"{page.name} names torch {version}"
