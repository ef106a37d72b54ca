"""The registry: versions, conflicts, host names, derived operators, threads."""

import threading

import pytest

from opforge.errors import MissingOperatorError, SchemaError
from opforge.schema import (
    Operator,
    find,
    floating,
    get,
    nearest,
    operators,
    register,
    registry,
    subscribe,
    unregister,
    versions,
)

SIGNATURE = "(x: T[*S]) -> (y: T[*S])"


def make(name="Probe", domain="test.registry", **options):
    options.setdefault("types", {"T": floating})
    return Operator(domain, name, options.pop("signature", SIGNATURE), **options)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Each test has a registry of its own."""
    monkeypatch.setattr(registry, "_operators", {})
    monkeypatch.setattr(registry, "_host_names", {})
    monkeypatch.setattr(registry, "_subscribers", [])
    monkeypatch.setattr("opforge.schema.loading._discovered", [])


def test_the_same_schema_twice_is_harmless():
    first = register(make())
    assert register(make(doc="other words")) is first
    assert operators() == {"test.registry::Probe": first}


def test_a_changed_schema_is_an_error_that_names_both():
    register(make(declared_at="a.py:3"))
    with pytest.raises(SchemaError) as caught:
        register(make(declared_at="b.py:7", types="T: f32"))
    text = str(caught.value)
    for words in ("test.registry::Probe:1: the operator is declared twice", "a.py:3", "b.py:7", "raise since="):
        assert words in text


def test_host_name_collision_names_both():
    register(make("PReLU", domain="com.example", declared_at="a.py:1"))
    with pytest.raises(SchemaError) as caught:
        register(make("PRelu", domain="com.example", declared_at="b.py:1", host_name="p_re_lu"))
    text = str(caught.value)
    for words in ("host name com_example.p_re_lu", "com.example::PReLU:1 declared at a.py:1", "b.py:1", "host_name="):
        assert words in text
    register(make("PRelu", domain="com.other", host_name="p_re_lu"))
    with pytest.raises(SchemaError, match=r"host name com_example.p_re_lu"):
        register(make("Third", domain="com_example", host_name="p_re_lu"))


def test_the_newest_version_that_is_old_enough_counts():
    one, three = register(make()), register(make(since_version=3, types="T: f32"))
    assert versions("test.registry", "Probe") == [1, 3]
    assert [get("test.registry", "Probe", v) for v in (1, 2, 3, 9, None)] == [one, one, three, three, three]
    assert operators() == {"test.registry::Probe": three}
    assert list(operators(all_versions=True)) == ["test.registry::Probe:1", "test.registry::Probe:3"]


def test_no_version_is_old_enough():
    register(make(since_version=3))
    assert find("test.registry", "Probe", 2) is None
    with pytest.raises(MissingOperatorError, match=r"(?s)Probe for version 2: no version.*up to 2\n  got: 3"):
        get("test.registry", "Probe", 2)


def test_an_unknown_operator_names_the_nearest():
    register(make("CustomGELU"))
    with pytest.raises(MissingOperatorError, match=r"to do: did you mean test.registry::CustomGELU\?"):
        get("test.registry", "CustomGelu")
    with pytest.raises(MissingOperatorError, match="load its package"):
        get("org.nowhere", "Quux")


def test_nearest():
    assert nearest("customgelu", ["CustomGELU", "Mish"]) == "CustomGELU"
    assert nearest("treshold", ["threshold", "lo"]) == "threshold"
    assert nearest("zzz", ["threshold", "lo"]) is None
    assert nearest("x", []) is None


def test_gradient_operators_are_found_through_their_owner():
    made = []
    second = make("ProbeGradGrad", is_gradient=True)
    first = make("ProbeGrad", is_gradient=True, derived=lambda: made.append(2) or [second])
    owner = register(make(derived=lambda: made.append(1) or [first]))
    assert made == []
    assert find("test.registry", "ProbeGrad") is first
    assert find("test.registry", "ProbeGradGrad") is second
    assert find("test.registry", "Grad") is None
    assert operators() == {"test.registry::Probe": owner}
    assert set(operators(gradients=True)) == {f"test.registry::Probe{g}" for g in ("", "Grad", "GradGrad")}


def test_an_operator_that_ends_in_grad_is_its_own():
    operator = register(make("MyGrad"))
    assert find("test.registry", "MyGrad") is operator


def test_subscribers_see_earlier_and_later_operators():
    early, seen = register(make("Early")), []
    subscribe(seen.append)
    late = register(make("Late"))
    register(make("Late"))
    assert seen == [early, late]


def test_unregister_frees_name_and_host_name():
    operator = register(make())
    unregister(operator)
    unregister(operator)
    assert operators() == {}
    assert register(make(types="T: f32")).types_text == "T: f32"


def test_registering_collects_this_threads_operators():
    known = register(make("Known"))
    with registry.registering() as outer:
        register(make("Known"))
        with registry.registering() as inner:
            new = register(make("New"))
        thread = threading.Thread(target=lambda: register(make("Other")))
        thread.start()
        thread.join()
    assert inner == [new]
    assert outer == [known, new]


def test_many_threads_register_the_same_operators():
    barrier = threading.Barrier(8)
    results, errors = [], []

    def work(k):
        barrier.wait()
        try:
            results.extend(register(make(f"Op{n}")) for n in range(30))
            operators(all_versions=True)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len({id(operator) for operator in results}) == len(operators()) == 30
