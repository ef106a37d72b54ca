"""No test of onnx's backend suite that passed is lost; `python -m benchmarks.conformance --write` keeps the list."""

import os
import string

import pytest

from benchmarks import conformance
from benchmarks._backend_tests import GROUPS, Outcome

pytestmark = pytest.mark.xdist_group("onnx backend")  # one process runs them all, once
PASSING = conformance.passing()
LETTERS = ["abc", "def", "ghi", "jkl", "mno", "pqr", "stuvwxyz"]


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str], Outcome]:
    """All of them in one process of its own, since making onnx's tests takes seconds; a crash is one outcome."""
    return {(o.group, o.name): o for o in conformance.run(PASSING, "opforge")}


def require(found: dict[tuple[str, str], Outcome], names: list[tuple[str, str]]) -> None:
    assert names
    lost = [f"{group} {name}: {found[group, name].failure}" for group, name in names if not found[group, name].passed]
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("letters", LETTERS)
def test_node_tests(outcomes: dict[tuple[str, str], Outcome], letters: str) -> None:
    require(outcomes, [(g, n) for g, n in PASSING if g == "node" and n.removeprefix("test_")[0].lower() in letters])


@pytest.mark.parametrize("group", [g for g in GROUPS if g != "node"])
def test_models(outcomes: dict[tuple[str, str], Outcome], group: str) -> None:
    require(outcomes, [p for p in PASSING if p[0] == group])


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process")
def test_groups_are_heard(request: pytest.FixtureRequest) -> None:
    """Pytest-xdist names groups by a field that pytest 9.2 lost: all of this would then run once per process."""
    assert request.node.nodeid.endswith("@onnx backend")


def test_every_test_of_the_list_belongs_to_one_of_the_above() -> None:
    assert sorted("".join(LETTERS)) == list(string.ascii_lowercase)
    assert {g for g, _ in PASSING} == set(GROUPS)
    assert len(PASSING) == len(set(PASSING)) > 1400


def test_the_page_says_what_the_list_says() -> None:
    rows = [line.split(" | ") for line in conformance.PAGE.read_text().splitlines() if line.startswith("| ")]
    page = {row[0][2:]: int(row[1]) for row in rows if row[0][2:] in GROUPS}
    assert page == {group: sum(g == group for g, _ in PASSING) for group in GROUPS}


def test_a_test_that_hangs_is_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "COMMAND", ("-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(conformance, "SECONDS", 0.2)
    (found,) = conformance.run([("node", "test_abs")], "opforge")
    assert "no result after 0.2 s" in found.failure


def test_a_test_that_ends_its_process_is_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    # A worker that is killed at the second test: the first and the third have outcomes of their own.
    three = [("node", "test_abs"), ("node", "test_acos"), ("node", "test_add")]
    code = (
        "import json, os, sys\n"
        "for line in sys.stdin.read().splitlines():\n"
        "    group, name = line.split()\n"
        "    name == 'test_acos' and os.abort()\n"
        "    print(json.dumps(dict(group=group, name=name, operator='', failure='')), flush=True)\n"
    )
    monkeypatch.setattr(conformance, "COMMAND", ("-c", code))
    found = list(conformance.run(three, "opforge"))
    assert [o.name for o in found] == ["test_abs", "test_acos", "test_add"]
    assert [o.passed for o in found] == [True, False, True]
    assert "the process ended with -6" in found[1].failure
