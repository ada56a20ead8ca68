"""What can be used is documented, and what is documented is there."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import json
import re
import typing
from pathlib import Path

from django.core.management import load_command_class
from django.core.management.base import BaseCommand

from django_pgjobs.management.arguments import MAX_SLOTS, MAX_WORKER_NAME_BYTES
from django_pgjobs.status import PauseKind
from django_pgjobs.values.bounds import MAX_QUEUE_NAME_BYTES
from tests.helpers import ROOT, in_a_loop
from tests.test_house import calls, check_ids, modules

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("**/*.md"), *ROOT.glob("*.md")])
PUBLIC_MODULES = (
    "django_pgjobs",
    "django_pgjobs.backend",
    "django_pgjobs.models",
    "django_pgjobs.testing",
)

CODE_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"<!-- command: (\w+) -->\n+```\w*\n(.*?)\n```", re.DOTALL)


def read(name: str) -> str:
    """Return a page of docs/."""
    return (DOCS / name).read_text()


def mentions(text: str, name: str) -> bool:
    """Return whether *text* has *name* as a word in code style, like `name` or `name=`."""
    return re.search(rf"`[^`\n]*(?<![\w.-]){re.escape(name)}(?![\w-])[^`\n]*`", text) is not None


def without_code(text: str) -> str:
    """Return the page without its code blocks."""
    return CODE_BLOCK.sub("", text)


def anchors(path: Path) -> set[str]:
    """Return the fragments that links to the page's headings may use."""
    headings = re.findall(r"^#+ +(.+?) *$", without_code(path.read_text()), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return {*words, *re.findall(r'<a (?:id|name)="([^"]+)"', path.read_text())}


def setting_names() -> list[str]:
    """Return the keys of the setting PGJOBS."""
    from django_pgjobs.conf import Conf

    return [field.name for field in dataclasses.fields(Conf)]


def test_every_setting_is_documented_with_its_default() -> None:
    from django_pgjobs.conf import Conf

    page = read("settings.md")
    for field in dataclasses.fields(Conf):
        assert mentions(page, field.name), f"docs/settings.md does not explain {field.name}"
        lines = [line for line in page.splitlines() if mentions(line, field.name)]
        default = default_in_words(getattr(Conf(), field.name))
        assert any(without_marks(default) in without_marks(line) for line in lines), (
            f"docs/settings.md: no line names {field.name} with its default {default}"
        )


def default_in_words(value: object) -> str:
    """Return a default as the page writes it: 60 for 60.0, [] for ()."""
    if isinstance(value, float):
        return f"{value:.10g}"
    return json.dumps(value) if isinstance(value, tuple) else str(value)


def without_marks(text: str) -> str:
    """Return a text without what groups the digits of numbers."""
    return text.replace("_", "").replace(",", "")


def test_no_setting_is_documented_that_does_not_exist() -> None:
    named = set(re.findall(r"^- `([A-Z][A-Z_]+)`: ", read("settings.md"), re.MULTILINE))
    assert named, "docs/settings.md: a list of `NAME`: ... is expected"
    assert named <= {*setting_names()}


def lists_of(page: str, heading: str) -> list[dict[str, str]]:
    """Return the lists of a section, which say `this`, `and this`: what they mean."""
    _, found, rest = read(page).partition(f"# {heading}\n")
    lists = re.findall(r"(?:^- .*\n)+", re.split("^#+ ", rest, flags=re.MULTILINE)[0], re.MULTILINE)
    assert found and lists, f"docs/{page}: a list below {heading!r} is expected"
    rows = ([line[2:].partition(": ") for line in each.splitlines()] for each in lists)
    return [{name: meaning for name, _, meaning in each} for each in rows]


def names_explained(page: str, heading: str) -> list[str]:
    """Return the names that the first list of a section explains."""
    return re.findall(r"`(\w+)`", "\n".join(lists_of(page, heading)[0]))


def test_every_column_of_jobs_and_workers_is_documented_and_no_other() -> None:
    from django_pgjobs.models import Job, Worker

    columns = [{field.column for field in model._meta.local_fields} for model in (Job, Worker)]
    columns[0].add("lane")  # the engine's own, as tests/test_sql.py has it
    lists = lists_of("job-lifecycle.md", "Columns")
    named = [re.findall(r"`(\w+)`", "\n".join(each)) for each in lists]
    assert [sorted(names) for names in named] == [sorted(names) for names in columns]


def public_names() -> list[str]:
    """Return module.name for every public name."""
    return [
        f"{module}.{name}"
        for module in PUBLIC_MODULES
        for name in getattr(importlib.import_module(module), "__all__", [])
    ]


def test_every_public_name_is_documented() -> None:
    page = read("api.md")
    names = public_names()
    assert "django_pgjobs.task" in names
    missing = [name for name in names if not mentions(page, name.rsplit(".", 1)[1])]
    assert not missing, f"docs/api.md does not explain {missing}"


def test_the_signature_of_task_is_documented_as_it_is() -> None:
    from django_pgjobs import Exponential, task

    [documented] = re.findall(r"`task\((\*, .+?)\)` ", read("api.md"))
    defaults = ast.parse(f"def task({documented}): ...").body[0].args  # type: ignore[attr-defined]
    known = {"Exponential": Exponential, "Exception": Exception}
    found = {
        argument.arg: eval(ast.unparse(default), known)
        for argument, default in zip(defaults.kwonlyargs, defaults.kw_defaults, strict=True)
    }
    declared = inspect.signature(typing.get_overloads(task)[1]).parameters
    assert found == {name: parameter.default for name, parameter in declared.items()}


def test_every_option_of_a_task_is_explained() -> None:
    from django_pgjobs import Task

    pages = ("tasks.md", "coalescing.md")
    explained = {name for page in pages for name in names_explained(page, "Options")}
    of_jobs = {"run_after", "after", "after_failure", "subject"}
    options = {field.name for field in dataclasses.fields(Task)} - {"func", "is_ours"}
    assert options - of_jobs - explained == set()


def test_every_reason_of_an_explanation_is_documented_and_no_other() -> None:
    control = ROOT / "django_pgjobs/control"
    source = "".join((control / f"{name}.py").read_text() for name in ("explain", "takers"))
    told = {
        *re.findall(r'Reason\(\s*"(\w+)"', source),
        *re.findall(r'return "(\w+)", _?', source),
        *re.findall(r'^        "(\w+)": _\(', source, re.MULTILINE),
        *(f"{kind}_paused" for kind in PauseKind.values),
        *re.findall(r'append\(\("(\w+)"', (ROOT / "django_pgjobs/control/stuck.py").read_text()),
    }
    assert told == {*names_explained("why-not-running.md", "Reasons")}


def test_settings_of_two_pages_can_be_copied() -> None:
    """The second whole PGJOBS would replace the first: only the pages to begin with show one."""
    whole = {page.stem for page in PAGES if re.search(r"\bPGJOBS = ", page.read_text())}
    assert whole == {"quick-start", "settings"}


def test_every_check_says_what_to_do_and_no_other_is_named() -> None:
    ids = check_ids()
    checks = [
        given
        for path in modules()
        for node in calls(path)
        if "id" in (given := {word.arg: ast.unparse(word.value) for word in node.keywords})
        and given["id"].strip("'") in ids
    ]
    assert len(checks) == len(ids)
    assert [given for given in checks if given.get("hint", "None") == "None"] == []
    named = {name for page in PAGES for name in re.findall(r"pgjobs\.[EW]\d{3}", page.read_text())}
    assert named <= set(ids)


def flags() -> list[str]:
    """Return every flag of `runjobs` that other commands do not have."""
    common = BaseCommand().create_parser("manage.py", "any")
    ours = load_command_class("django_pgjobs", "runjobs").create_parser("manage.py", "runjobs")
    known = {text for action in common._actions for text in action.option_strings}
    public = [action for action in ours._actions if action.help != argparse.SUPPRESS]
    own = [text for action in public for text in action.option_strings]
    return [text for text in own if text not in known]


def bounds_of(flag: argparse.Action) -> str:
    """Return "A to B" as the flag says it when it refuses what is below all bounds."""
    if not callable(flag.type):
        return ""
    try:
        flag.type("-1")
    except argparse.ArgumentTypeError as error:
        return " ".join(re.findall(r"\S+ to [^\s,]+", str(error)))
    return ""


def help_of_flags() -> dict[str, tuple[str, str]]:
    """Return the bounds of each flag of `runjobs`, and its help as it is printed."""
    parser = load_command_class("django_pgjobs", "runjobs").create_parser("manage.py", "runjobs")
    return {
        action.option_strings[-1]: (bounds_of(action), (action.help or "") % vars(action))
        for action in parser._actions
        if {*action.option_strings} & {*flags()}
    }


def test_the_help_explains_every_flag_with_its_bounds() -> None:
    """The page says only what to know before."""
    found = help_of_flags()
    bounded = {name for name, (bounds, _) in found.items() if bounds}
    assert {"--concurrency", "--max-jobs", "--max-time", "--lease-seconds"} <= bounded
    assert [name for name, (bounds, told) in found.items() if not told or bounds not in told] == []


def test_the_help_says_the_bounds_of_names() -> None:
    told = " ".join(text for _, text in help_of_flags().values())
    for bound in (MAX_SLOTS, MAX_QUEUE_NAME_BYTES, MAX_WORKER_NAME_BYTES):
        assert re.search(rf"(to|most) {bound}\b", told), bound


def test_no_flag_is_documented_that_does_not_exist() -> None:
    everywhere = set(flags()) | {"--help"}
    section = read("workers.md").partition("\n## Flags\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", section))
    assert named and named <= everywhere


@in_a_loop("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(without_code(page.read_text())):
        if re.match(r"(https?|mailto):", target):
            continue
        name, _, fragment = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{target} is not there"
        if fragment and file.suffix == ".md":
            assert fragment in anchors(file), f"{target}: no such heading"


@in_a_loop("page", PAGES)
def test_python_in_the_docs_compiles(page: Path) -> None:
    for language, code in CODE_BLOCK.findall(page.read_text()):
        if language in ("python", "py"):
            compile(code, f"{page.name}: {code.splitlines()[0]}", "exec", dont_inherit=True)


def test_every_page_is_linked_from_the_readme_or_another_page() -> None:
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in PAGES
        for target in LINK.findall(page.read_text())
        if not target.startswith(("http:", "https:", "#"))
    }
    lost = [page.name for page in DOCS.glob("**/*.md") if page.resolve() not in linked]
    assert not lost, f"no page links to {lost}"


def test_the_readme_opens_with_fifteen_lines_of_code() -> None:
    text = (ROOT / "README.md").read_text()
    language, code = CODE_BLOCK.findall(text)[0]
    assert language == "python"
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    assert text[: text.index("```python")].count("\n") < 25


def test_the_readme_has_its_two_commands_on_one_line_each() -> None:
    commands = dict(COMMAND.findall((ROOT / "README.md").read_text()))
    assert set(commands) == {"demo", "tests"}
    for name, command in commands.items():
        assert "\n" not in command.strip(), f"the command {name!r} is not a single line"


def test_the_changelog_knows_this_version() -> None:
    from django_pgjobs import __version__

    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## .*({re.escape(__version__)}|Unreleased)", text, re.MULTILINE)
