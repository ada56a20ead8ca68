"""The second language: complete, true to the English, and on every page of the admin."""

from __future__ import annotations

import ast
import gettext
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import django
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.test.utils import modify_settings
from django.urls import reverse
from django.utils.translation import override

from django_pgjobs.admin.system import facts
from tests import helpers
from tests.admin.demo_data import fill
from tests.browser.pages import PAGES

PACKAGE = helpers.ROOT / "django_pgjobs"
CATALOG = PACKAGE / "locale/de/LC_MESSAGES/django.po"
TEMPLATES = sorted((PACKAGE / "templates").rglob("*.html"))
# As CONTRIBUTING.md says it.
MAKE = "makemessages -l de --no-obsolete --no-location --no-wrap"
TOOLS = ("xgettext", "msgmerge", "msguniq", "msgattrib")

PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[-+ #0]*\d*(?:\.\d+)?[a-zA-Z%]")
# What a text ends with, if that is no letter, number or quotation.
SIGNS = re.compile(r"[\s.:;,…]*$")
LINE = re.compile(r'(?:(msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?) )?(".*")')
# What no language changes: names of settings of PostgreSQL and of ours.
NAMES = {
    "PGJOBS",
    "autovacuum",
    "default_transaction_isolation",
    "idle_in_transaction_session_timeout",
    "synchronous_commit",
}
# Words of our English that are no German.
ENGLISH = re.compile(
    r"\b(the|of|and|are|is|not|no|that|this|with|which|jobs? (?:wait|that|of)|queues?|"
    r"ready|running|retry|retrying|scheduled|blocked|failed|cancelled|successful|finished|"
    r"enqueued|oldest|newest|reason|search|filter by|delete|discard|postpone|paused|"
    r"resume|settings|attempts?|priority|from|by|day|days|hours?|minutes|seconds|ago)\b(?!:)",
    re.IGNORECASE,
)
# What is in English on a German page: rows of the demo, and what Django has not translated.
NOT_OURS = re.compile(
    r"default|.*\bqueue reports\b.*|Are you sure you want to delete the .*|"
    r"No worker was there\.|.*It is not planned: .*"
)
# The page of an order has the words of the example project around our section.
OTHERS_PAGES = {"row with jobs"}


class Message(NamedTuple):
    """An entry of the catalog; *texts* has two forms if *plural* is not empty."""

    context: str
    text: str
    plural: str
    texts: list[str]
    flags: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What the code names."""
        return self.context, self.text, self.plural


def read_catalog(path: Path) -> list[Message]:
    """Return the entries of a .po file, the header first."""
    return [_read_entry(entry) for entry in path.read_text().split("\n\n") if "msgid " in entry]


def _read_entry(entry: str) -> Message:
    fields: dict[str, str] = {}
    name = flags = ""
    for line in entry.strip().splitlines():
        if line.startswith("#"):
            flags += line if line.startswith("#,") else ""
            continue
        found = LINE.fullmatch(line)
        assert found, line
        name = found[1] or name
        fields[name] = fields.get(name, "") + ast.literal_eval(found[2])
    texts = [text for field, text in sorted(fields.items()) if field.startswith("msgstr")]
    return Message(
        fields.get("msgctxt", ""), fields["msgid"], fields.get("msgid_plural", ""), texts, flags
    )


HEADER, *MESSAGES = read_catalog(CATALOG)


def test_the_catalog_is_complete() -> None:
    assert "Language: de\n" in HEADER.texts[0]
    unfinished = [
        message.text
        for message in MESSAGES
        if "fuzzy" in message.flags
        or not all(message.texts)
        or len(message.texts) != (2 if message.plural else 1)
    ]
    assert len(MESSAGES) > 700
    assert unfinished == []


def test_what_django_loads_is_what_the_catalog_says() -> None:
    with CATALOG.with_suffix(".mo").open("rb") as file:
        loaded = gettext.GNUTranslations(file)
    for message in MESSAGES:
        head = [message.context] if message.context else []
        if message.plural:
            find = loaded.npgettext if head else loaded.ngettext
            found = [find(*head, message.text, message.plural, number) for number in (1, 2)]
        else:
            found = [(loaded.pgettext if head else loaded.gettext)(*head, message.text)]
        assert found == message.texts


def test_a_translation_says_as_much_as_the_text() -> None:
    """Placeholders, the space and the sign at the end are those of the English."""
    for message in MESSAGES:
        for english, text in zip((message.text, message.plural), message.texts, strict=False):
            assert set(PLACEHOLDER.findall(text)) == set(PLACEHOLDER.findall(english)), text
            assert SIGNS.search(text)[0] == SIGNS.search(english)[0], text
            assert text[0].isspace() == english[0].isspace(), text


@pytest.mark.slow
def test_the_words_of_django_stay_those_of_django() -> None:
    """All catalogs are one: another word here would appear in the project's own pages."""
    theirs: dict[object, str] = {}
    for path in Path(django.__file__).parent.rglob("locale/de/LC_MESSAGES/django.mo"):
        with path.open("rb") as file:
            theirs |= gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    for message in MESSAGES:
        name = f"{message.context}\x04{message.text}" if message.context else message.text
        known = theirs.get((name, 0) if message.plural else name)
        assert known in (None, message.texts[0])


@pytest.mark.slow
def test_making_messages_of_what_is_translated_changes_only_the_date(tmp_path: Path) -> None:
    assert f"`django-admin {MAKE}`" in (helpers.ROOT / "CONTRIBUTING.md").read_text()
    made = make_messages(tmp_path).read_text().splitlines()
    lines = zip(CATALOG.read_text().splitlines(), made, strict=True)
    changed = [pair for pair in lines if pair[0] != pair[1]]
    assert all("POT-Creation-Date" in line for pair in changed for line in pair), changed


def make_messages(tmp_path: Path) -> Path:
    """Make the messages of a copy of the package; return its catalog."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        helpers.skip(f"{', '.join(missing)} of GNU gettext is not installed")
    copy = tmp_path / "django_pgjobs"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    # Without the folder of the package on the path, where `http` would stand for Python's own.
    subprocess.run(
        [sys.executable, "-P", "-m", "django", *MAKE.split()],
        cwd=copy,
        env={name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
        check=True,
        capture_output=True,
    )
    return copy / CATALOG.relative_to(PACKAGE)


@pytest.mark.slow
def test_every_marked_text_is_in_the_catalog(tmp_path: Path) -> None:
    found = {message.key: message for message in read_catalog(make_messages(tmp_path))}
    ours = {message.key: message for message in MESSAGES} | {HEADER.key: found[HEADER.key]}
    assert [key for key in found if key not in ours] == [], "texts that are not translated"
    assert [key for key in ours if key not in found] == [], "translations of texts that are gone"
    assert found == ours


@helpers.in_a_loop("path", TEMPLATES)
def test_no_text_of_a_template_stands_outside_of_translation(path: Path) -> None:
    text = path.read_text()
    for block in ("comment", "blocktranslate"):
        text = re.sub(rf"{{% {block}.*?{{% end{block} %}}", "", text, flags=re.DOTALL)
    text = re.sub(r"{% block (bodyclass|coltype) %}.*?{% endblock %}", "", text)
    text = re.sub(r"{%.*?%}|{{.*?}}", " ", text, flags=re.DOTALL)
    spoken = re.findall(r'\b(?:aria-label|title|alt|placeholder)="([^"]*)"', text)
    words = re.sub(r"<[^>]*>|&\w+;", "\n", text).split("\n") + spoken
    said = {word.strip() for word in words if re.search("[A-Za-z]", word)}
    assert said <= NAMES


class Said(HTMLParser):
    """What a page says to people: its texts, and the attributes that are read out or shown."""

    ATTRIBUTES = ("aria-label", "title", "placeholder", "alt")
    # Code, values and what is to be copied are in no language.
    SILENT = ("script", "style", "textarea", "pre", "code", "datalist")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.silent = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what the element says by itself."""
        self.silent += tag in self.SILENT
        given = dict(attributes)
        self.texts += [given[name] or "" for name in self.ATTRIBUTES if name in given]
        if tag == "input" and given.get("type") == "submit":
            self.texts.append(given.get("value") or "")

    def handle_endtag(self, tag: str) -> None:
        """Leave what is silent."""
        self.silent -= tag in self.SILENT

    def handle_data(self, data: str) -> None:
        """Note a text."""
        if not self.silent:
            self.texts.append(" ".join(data.split()))


def english_texts() -> re.Pattern[str]:
    """Return what matches the English of everything that has another German."""
    german = {text for message in MESSAGES for text in message.texts}
    texts = {text for message in MESSAGES for text in message[1:3]} - german - {""}
    return re.compile("|".join(".+?".join(map(re.escape, PLACEHOLDER.split(t))) for t in texts))


@pytest.fixture
def german() -> Iterator[Client]:
    """A client whose browser asks for German, in a filled installation."""
    fill()
    client = Client(headers={"accept-language": "de"})
    client.force_login(User.objects.get(username="admin"))
    locale = "django.middleware.locale.LocaleMiddleware"
    with override("en"), modify_settings(MIDDLEWARE={"append": locale}):
        yield client


@pytest.mark.slow
@pytest.mark.django_db
def test_every_page_is_in_german(german: Client) -> None:
    english = english_texts()
    left: dict[str, set[str]] = {}
    for name, make in PAGES.items():
        response = german.get(make())
        assert response.status_code in (200, 404), name
        assert response.headers["Content-Language"] == "de"
        # A name that may break is one text.
        said = Said(response.content.decode().replace("<wbr>", ""))
        assert "Hintergrundjobs" in said.texts, name
        found = {t for t in said.texts if english.fullmatch(t) or ENGLISH.search(t)}
        found = {text for text in found if not NOT_OURS.fullmatch(text)}
        if found and name not in OTHERS_PAGES:
            left[name] = found
    assert left == {}


@pytest.mark.django_db
def test_diagnostics_for_a_report_stay_english(
    german: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "SESSION_SHARE", 0.0)
    text = german.get(reverse("admin:pgjobs_job_system")).content.decode()
    assert "Fast alle Verbindungen des Servers sind belegt." in text
    assert "WARNING Nearly all connections of the server are in use." in text
