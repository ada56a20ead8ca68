"""Evaluates the few forms of expressions that docs/alerts.yml uses, on a text of metrics.

An expression is comparisons joined by `and`, perhaps `on` some labels; what is compared with a
number is a selector, a sum of one, a share of two of these, or `absent` of one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from prometheus_client import Metric

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

SELECTOR = re.compile(r"(\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')
SUM = re.compile(r"sum by \((\w+)\) \((.*)\)")
ABSENT = re.compile(r"absent\((.*)\)")
AND = re.compile(r"\s+and (?:on \((\w+)\) )?")
COMPARISON = re.compile(r"(.*?)\s+(==|>=|>) ([\d.]+)", re.DOTALL)
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}


def evaluate(expression: str, metrics: Mapping[str, Metric]) -> Vector:
    """Return the series for which the expression holds; empty: no alert."""
    first, *others = AND.split(" ".join(expression.split()))
    found = _compared(first, metrics)
    for label, other in zip(others[::2], others[1::2], strict=True):
        right = {_only(label, labels) for labels in _compared(other, metrics)}
        found = {key: value for key, value in found.items() if _only(label, key) in right}
    return found


def _only(label: str | None, labels: Labels) -> Labels:
    return frozenset(pair for pair in labels if label in (None, pair[0]))


def _compared(expression: str, metrics: Mapping[str, Metric]) -> Vector:
    comparison = COMPARISON.fullmatch(expression)
    if comparison is None:
        return _term(expression, metrics)
    term, sign, number = comparison.groups()
    left = _term(term, metrics)
    return {key: value for key, value in left.items() if OPERATORS[sign](value, float(number))}


def _term(expression: str, metrics: Mapping[str, Metric]) -> Vector:
    if " / " in expression:
        upper, lower = (_term(part, metrics) for part in expression.split(" / "))
        return {key: upper[key] / lower[key] for key in upper.keys() & lower.keys()}
    if summed := SUM.fullmatch(expression):
        sums: Vector = {}
        for labels, value in _selected(summed[2], metrics).items():
            key = _only(summed[1], labels)
            sums[key] = sums.get(key, 0.0) + value
        return sums
    if absent := ABSENT.fullmatch(expression):
        return {} if _selected(absent[1], metrics) else {frozenset(): 1.0}
    return _selected(expression, metrics)


def _selected(expression: str, metrics: Mapping[str, Metric]) -> Vector:
    selector = SELECTOR.fullmatch(expression)
    assert selector, f"a form that is not known: {expression}"
    name, text = selector.groups(default="")
    matchers = MATCHER.findall(text)
    return {
        frozenset(sample.labels.items()): sample.value
        for metric in metrics.values()
        for sample in metric.samples
        if sample.name == name
        and all(_matches(sample.labels.get(label, ""), *how) for label, *how in matchers)
    }


def _matches(value: str, sign: str, wanted: str) -> bool:
    return value == wanted if sign == "=" else re.fullmatch(wanted, value) is not None
