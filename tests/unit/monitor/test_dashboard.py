"""The dashboard has the form that Grafana's schema asks for, and asks for metrics that exist."""

import json
import re

from opforge.monitor import METRICS, dashboard


def test_it_has_the_form_of_grafanas_schema():
    """What ``dashboard_kind.cue`` requires, of the parts that are used."""
    found = json.loads(json.dumps(dashboard()))
    assert isinstance(found["schemaVersion"], int)
    assert found["graphTooltip"] in (0, 1, 2)
    assert 1 <= len(found["uid"]) <= 40
    assert {"from", "to"} <= found["time"].keys()
    for variable in found["templating"]["list"]:
        assert variable["type"] in {"query", "adhoc", "constant", "datasource", "interval", "textbox", "custom"}
        assert variable["hide"] in (0, 1, 2)
        assert variable["name"]
    for panel in found["panels"]:
        assert panel["type"] == "timeseries"
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["fieldConfig"].keys() == {"defaults", "overrides"}
        place = panel["gridPos"]
        assert 0 <= place["x"] < 24
        assert 0 < place["w"] <= 24 - place["x"]
        assert place["h"] > 0
        names = [target["refId"] for target in panel["targets"]]
        assert names
        assert len(set(names)) == len(names)


def test_panels_lie_apart():
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(cells)) == len(cells)
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(places) == len(METRICS)


def test_queries_ask_for_metrics_and_labels_that_exist():
    exposed = {name: metric for metric in METRICS.values() for name in names_of(metric)}
    asked = set()
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            used = re.findall(r"\bopforge_\w+", target["expr"])
            assert used
            assert used[0] in exposed, target["expr"]
            asked |= set(used)
            known = {"model", "process", *(label for name in used for label in exposed[name].labels)}
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= known
            assert target["expr"].count("(") == target["expr"].count(")")
            assert '{model=~"$model"}' in target["expr"]
    assert asked <= exposed.keys()
    assert {exposed[name].name for name in asked} == METRICS.keys()


def names_of(metric):
    return (
        [metric.name + suffix for suffix in ("_bucket", "_sum", "_count")]
        if metric.kind == "histogram"
        else [metric.name]
    )
