"""Print the results: Markdown for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from tests.benchmarks.results import BARE, OURS, Results
from tests.benchmarks.rows import Figure, Row

VERDICTS = {True: "yes", False: "NO", None: ""}


def format_value(value: float | None) -> str:
    """Format with three significant digits, thousands grouped, no exponent."""
    if value is None:
        return ""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.4f}"


def format_ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def format_target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    sign = "≥" if figure.more_is_better else "≤"
    base = " x bare" if figure.target.of_bare else ""
    return f"{sign} {format_value(figure.target.value)}{base}"


def make_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, its columns padded so that it reads well as text too."""
    rows = [list(header), *map(list, lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]

    def format_line(row: Sequence[str]) -> str:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([format_line(rows[0]), rule, *map(format_line, rows[1:])])


def title_with_unit(figure: Figure) -> str:
    return f"{figure.title}, {figure.unit}" if figure.unit else figure.title


def make_summary(results: Results, rows: Sequence[Row]) -> str:
    """One line per figure, one column per system: medians."""
    header = ["work", *(results.titles[name] for name in results.systems)]
    header += ["ours / bare", "target", "met"]
    lines = []
    for row in rows:
        for figure in row.figures:
            line = [title_with_unit(figure)]
            for name in results.systems:
                cell = results.cell(row, name)
                value = format_value(results.median(row, figure, name))
                mark = "*" if value and any(one.cut for one in cell.measured) else ""
                line.append("failed" if cell.failure and not value else value + mark)
            line.append(format_ratio(results.ratio(row, figure, OURS, BARE)))
            line += [format_target(figure), VERDICTS[results.meets_target(row, figure)]]
            lines.append(line)
    return make_table(header, lines)


def make_detail(results: Results, rows: Sequence[Row]) -> str:
    """One line per figure and system: median, spread, ratios."""
    lines = []
    for row in rows:
        for figure in row.figures:
            for name in results.systems:
                values = results.cell(row, name).values(figure.key)
                if not values:
                    continue
                lines.append(
                    [
                        title_with_unit(figure),
                        results.titles[name],
                        format_value(results.median(row, figure, name)),
                        f"{format_value(min(values))} - {format_value(max(values))}",
                        str(len(values)),
                        format_ratio(results.ratio(row, figure, name, BARE)),
                        format_ratio(results.ratio(row, figure, name, OURS)),
                    ]
                )
    header = ["work", "system", "median", "min - max", "n", "/ bare", "/ ours"]
    return make_table(header, lines)


def list_remarks(results: Results, rows: Sequence[Row]) -> list[str]:
    remarks = [f"{results.titles[name]}: skipped, {why}" for name, why in results.skipped.items()]
    for row in rows:
        for name in results.systems:
            cell = results.cell(row, name)
            texts = cell.notes()
            if cell.failure:
                lines = cell.failure.strip().splitlines()
                texts.append(f"failed: {lines[0]}" + (f" ... {lines[-1]}" if lines[1:] else ""))
            remarks += [f"{row.key}, {results.titles[name]}: {text}" for text in texts]
    return remarks


def make_markdown(results: Results, rows: Sequence[Row]) -> str:
    facts = [f"- {name}: {value}" for name, value in results.facts.items()]
    methods = [f"- `{row.key}`: {row.method}" for row in rows]
    settings = [
        f"- {results.titles[name]}: " + "; ".join(f"{k}: {v}" for k, v in described.items())
        for name, described in results.settings.items()
    ]
    remarks = [f"- {' '.join(text.split())}" for text in list_remarks(results, rows)]
    parts = [
        make_summary(results, rows),
        "`*`: a measurement hit the time limit (see remarks).",
        make_detail(results, rows),
        "Machine and server:\n\n" + "\n".join(facts),
        "Rows:\n\n" + "\n".join(methods),
        "Systems:\n\n" + "\n".join(settings),
    ]
    if remarks:
        parts.append("Remarks:\n\n" + "\n".join(remarks))
    return "\n\n".join(parts) + "\n"


def make_json(results: Results, rows: Sequence[Row]) -> str:
    cells = [
        {
            "row": row.key,
            "system": name,
            "figures": {f.key: results.cell(row, name).values(f.key) for f in row.figures},
            "notes": results.cell(row, name).notes(),
            "failure": results.cell(row, name).failure,
        }
        for row in rows
        for name in results.systems
        if row.covers(name)
    ]
    document = {
        "facts": results.facts,
        "systems": results.settings,
        "skipped": results.skipped,
        "measurements": cells,
    }
    return json.dumps(document, indent=2) + "\n"
