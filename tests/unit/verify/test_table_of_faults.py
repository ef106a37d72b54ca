"""The table in docs/checking.md names every planted fault, its test, and words that this test holds the check to."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "checking.md"
# Beside faults, these files show that what is right passes.
RIGHT = re.compile(r"test_a_right_|_is_no_fault$|_are_sound$|_pass_a_right_")


def rows():
    table = PAGE.read_text().split("<!-- planted -->\n")[1].split("<!-- end of planted -->")[0]
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        words = [word.replace("\\|", "|") for word in re.findall(r"`([^`]*)`", cells[2])]
        yield cells[0], words, cells[3].strip("`")


def planted_tests():
    found = {}
    for file in [HERE / "test_planted_faults.py", *sorted((HERE / "planted").glob("test_*.py"))]:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
                found[node.name] = texts
    return found


def test_every_row_names_a_test_that_asserts_its_words():
    known = planted_tests()
    for fault, words, name in rows():
        assert name in known, f"{fault}: there is no {name}"
        for word in words:
            assert any(word in text for text in known[name]), f"{fault}: {name} does not hold the check to {word!r}"


def test_every_planted_fault_is_in_the_table():
    named = {name for _, _, name in rows()}
    assert {name for name in planted_tests() if not RIGHT.search(name)} == named
