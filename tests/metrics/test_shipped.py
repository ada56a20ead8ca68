"""What is shipped for Prometheus and Grafana names metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from django_pgjobs.metrics import names
from django_pgjobs.metrics.exposition import Metric
from tests.helpers import ROOT, in_a_loop

DOCS = ROOT / "docs"
METRICS = {metric.name: metric for metric in (*names.OF_WORKERS, *names.OF_INSTALLATION)}
NAME = re.compile(r"\bpgjobs_\w+")
SELECTOR = re.compile(r"\b(pgjobs_\w+)\{([^}]*)\}")
LABEL = re.compile(r'(\w+)(?:=~|!~|!=|=)"')
GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")


def named(expression: str) -> list[str]:
    """Return the names of series in an expression, without the values of labels."""
    return NAME.findall(re.sub(r'"[^"]*"', '""', expression))


def metric_of(name: str) -> Metric | None:
    """Return the metric of a series: histograms have three."""
    for suffix in ("_bucket", "_sum", "_count"):
        found = METRICS.get(name.removesuffix(suffix))
        if found is not None and found.kind == "histogram":
            return found if name.endswith(suffix) else None
    return METRICS.get(name)


def expressions_of_rules() -> Iterator[str]:
    """Yield what the rules ask."""
    for group in rules()["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def expressions_of_dashboard() -> Iterator[str]:
    """Yield what the panels and the variables ask."""
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def rules() -> Any:
    return yaml.safe_load((DOCS / "alerts.yml").read_text())


EXPRESSIONS = [*expressions_of_rules(), *expressions_of_dashboard()]


@in_a_loop("expression", EXPRESSIONS)
def test_every_metric_and_label_that_is_asked_for_exists(expression: str) -> None:
    found = named(expression)
    assert found
    assert [name for name in found if metric_of(name) is None] == []
    known = {"le", "instance"}.union(*(metric_of(name).labels for name in found))  # type: ignore[union-attr]
    for name, labels in SELECTOR.findall(expression):
        metric = metric_of(name)
        assert metric is not None
        assert set(LABEL.findall(labels)) <= {*metric.labels, "le"}
    for group in GROUPED.findall(expression):
        assert set(group.split(", ")) <= known
    assert expression.count("(") == expression.count(")")


def test_values_of_labels_that_are_asked_for_exist() -> None:
    from django_pgjobs.metrics.of_installation import OUTCOMES, STATES

    asked = {
        value
        for expression in EXPRESSIONS
        for values in re.findall(r'(?:outcome|state)=~?"([^"]*)"', expression)
        for value in values.split("|")
    }
    assert asked <= {*OUTCOMES, *STATES, "live", "lost"}


def test_every_metric_is_on_the_dashboard_or_in_a_rule() -> None:
    asked = {
        metric.name
        for expression in EXPRESSIONS
        for name in named(expression)
        if (metric := metric_of(name))
    }
    # Which worker is which, when a number was counted, and sizes of keys: for those who ask.
    assert set(METRICS) - asked == {
        names.INFO.name, names.QUEUE_JOBS_AT.name, names.ALL_SLOTS.name, names.RATE_LIMIT_KEYS.name,
    }  # fmt: skip


def test_rules_are_complete_and_say_what_to_do() -> None:
    found = [rule for group in rules()["groups"] for rule in group["rules"]]
    for rule in found:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert all(text.endswith((".", "?")) for text in rule["annotations"].values())
    named = set(re.findall(r"`(Pgjobs\w+)`", (DOCS / "metrics.md").read_text()))
    assert named and named <= {rule["alert"] for rule in found}


def test_every_metric_is_documented_as_the_code_says() -> None:
    page = (DOCS / "metrics.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("- `pgjobs_")]
    assert rows == [documented(metric) for metric in METRICS.values()]


def documented(metric: Metric) -> str:
    """Return the line of a metric: most are gauges, so only of the others the kind is told."""
    kind = "" if metric.kind == "gauge" else f", a {metric.kind}"
    labels = ", ".join(f"`{each}`" for each in metric.labels)
    return f"- `{metric.name}`{f' ({labels})' if labels else ''}{kind}: {metric.help}"


def test_panels_have_places_of_their_own() -> None:
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
