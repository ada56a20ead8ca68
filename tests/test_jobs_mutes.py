"""`manage.py jobs mute`, `unmute` and `mutes`: warnings that everybody knows of."""

from __future__ import annotations

import json
import re
import shlex
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone, translation

from django_pgjobs import checks
from django_pgjobs.models import Mute
from django_pgjobs.queries.rate_limits import MissingRate
from django_pgjobs.warnings import listing
from django_pgjobs.warnings.notices import OTHERS
from tests.admin.warning_support import no_dead_rows
from tests.factories import make_jobs, make_worker

__all__ = ["no_dead_rows"]

pytestmark = pytest.mark.django_db


def test_a_warning_is_muted_by_what_the_doctor_says_behind_it(run: Any, settings: Any) -> None:
    settings.SILENCED_SYSTEM_CHECKS = ["pgjobs.W005"]
    make_worker(queues=["mail"])
    make_jobs(1, queue_name="a queue")
    said = run("doctor").rstrip("]\n").rpartition(" [")[2]
    with translation.override("de"):
        told = run("mute", *shlex.split(said), "--for", "2h", "--reason", "known", "--by", "ann")
    assert told == "unserved 'a queue': muted for 2 h\n"
    row = Mute.objects.get()
    assert (row.kind, row.subject, row.reason, row.muted_by) == (
        "unserved",
        "a queue",
        "known",
        "ann",
    )
    assert timedelta(minutes=119) < row.until - timezone.now() <= timedelta(hours=2)
    muted, end = run("doctor", "--fail").splitlines()
    assert muted.startswith("muted by ann until ")
    assert end == "nothing else is wrong."


def test_the_mute_of_one_limit_without_a_row_leaves_the_others(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = [MissingRate(name, has_jobs=False) for name in ("shopify", "stripe")]
    monkeypatch.setattr(listing, "missing_rate_limits", lambda _: missing)
    about = re.compile(r"^(?!muted).*\[(settings 'pgjobs\.W005 .*')\]$", re.MULTILINE)
    said = about.findall(run("doctor"))
    assert said == ["settings 'pgjobs.W005 shopify'", "settings 'pgjobs.W005 stripe'"]
    run("mute", *shlex.split(said[0]), "--for", "1h", "--reason", "known")
    assert about.findall(run("doctor")) == said[1:]


def test_the_mute_of_one_wrong_setting_leaves_the_others(
    run: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the settings say of the limit of a task is not known then."""
    monkeypatch.setattr(checks, "named_limits", lambda: {"vans": 1})
    settings.PGJOBS = {"LEASE_SECOND": 5, "RATE_LIMITS": {"a": 1, "b": 2}, "REDACT": ["(", "pin("]}
    about = re.compile(r"^(?!muted).*\[(broken 'pgjobs\.E002 .*')\]$", re.MULTILINE)
    said = about.findall(run("doctor"))
    assert [shlex.split(each)[1] for each in said] == [
        "pgjobs.E002 LEASE_SECOND",
        "pgjobs.E002 RATE_LIMITS['a']",
        "pgjobs.E002 RATE_LIMITS['b']",
        "pgjobs.E002 REDACT[0]",
        "pgjobs.E002 REDACT[1]",
    ]
    run("mute", *shlex.split(said[0]), "--for", "1h", "--reason", "known")
    assert about.findall(run("doctor")) == said[1:]


def test_the_mute_of_one_module_that_cannot_be_imported_leaves_the_others(
    run: Any, settings: Any
) -> None:
    settings.PGJOBS = {"TASK_MODULES": ["nowhere.first", "nowhere.second"]}
    about = re.compile(r"^(?!muted).*\[(broken 'pgjobs\.E004 .*')\]$", re.MULTILINE)
    said = about.findall(run("doctor"))
    assert said == ["broken 'pgjobs.E004 nowhere.first'", "broken 'pgjobs.E004 nowhere.second'"]
    run("mute", *shlex.split(said[0]), "--for", "1h", "--reason", "known")
    assert about.findall(run("doctor")) == said[1:]


def test_whatever_is_wrong_in_the_settings_is_told_and_can_be_muted(
    run: Any, settings: Any
) -> None:
    """A number of too many digits has no repr, a lone surrogate is no UTF-8; names may be long."""
    settings.SILENCED_SYSTEM_CHECKS = ["pgjobs.W005"]
    names = "x" * 1_500
    odd: list[Any] = ["\ud800", "a\nb", "a\0b", 10**5_000, names + "a", names + "b"]
    settings.PGJOBS = {**dict.fromkeys(odd), "PROCESSES": 10**5_000}
    subjects = set()
    while (told := json.loads(run("doctor", "--json")))[0]["muted_until"] is None:
        subjects.add(told[0]["subject"])
        [line] = (each for each in run("doctor").splitlines() if told[0]["text"] in each)
        assert line.startswith("WARNING ")
        said = shlex.split(re.findall(r"\[(broken .*)\]$", line)[0])
        assert said == ["broken", told[0]["subject"]]
        run("mute", *said, "--for", "1h", "--reason", "known")
    assert len(subjects) == 7


def test_a_mute_of_what_is_not_wrong_now_is_told(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be mistyped; it is muted all the same, for it may be over, or be still to come."""

    def told(*words: str) -> str:
        call_command("jobs", "mute", *words, "--for", "1h", "--reason", "x")
        said = capsys.readouterr()
        assert said.out.startswith(f"{shlex.join(words)}: muted for 1 h\n")
        return said.err

    make_worker(queues=["mail"])
    make_jobs(1, queue_name="a queue")
    assert told("unserved", "a queue") == ""
    assert told("busy", "mail") == "WARNING nothing is wrong now that busy mail names.\n"
    assert told("unserved", "reports") == (
        "WARNING nothing is wrong now that unserved reports names. Of this kind there are: "
        "unserved 'a queue'.\n"
    )
    # Again: it is there, though it is muted.
    assert told("unserved", "a queue") == ""
    assert Mute.objects.count() == 3


def test_muting_again_says_what_held_before(run: Any) -> None:
    run("mute", "versions", "--for", "2h", "--reason", "rollout", "--by", "ann")
    said = run("mute", "versions", "--for", "1h", "--reason", "still").splitlines()
    assert said[0] == "versions: muted for 1 h"
    assert said[1].startswith("  before: by ann until ")
    assert said[1].endswith(": rollout")
    assert Mute.objects.values_list("reason", "muted_by").get() == ("still", "")


def test_mutes_are_listed_until_they_end(run: Any) -> None:
    assert run("mutes") == "no warning is muted.\n"
    assert json.loads(run("mutes", "--json")) == []
    run("mute", "unserved", "reports", "--for", "2h", "--reason", "new", "--by", "ann")
    over = timezone.now() - timedelta(minutes=1)
    Mute.objects.create(kind="busy", subject="mail", reason="x", muted_by="bob", until=over)
    head, line = run("mutes").splitlines()
    assert head.split() == ["kind", "subject", "until", "by", "reason"]
    assert line.split()[:2] == ["unserved", "reports"]
    assert line.endswith("ann  new")
    [told] = json.loads(run("mutes", "--json"))
    assert (told["kind"], told["subject"], told["muted_by"], told["mute_reason"]) == (
        "unserved",
        "reports",
        "ann",
        "new",
    )
    assert told["muted_at"] < told["muted_until"]


def test_a_warning_is_shown_again(run: Any) -> None:
    run("mute", "unserved", "reports", "--for", "2h", "--reason", "new")
    assert run("unmute", "unserved", "reports") == "unserved reports: shown again\n"
    assert not Mute.objects.exists()
    assert run("unmute", "unserved", "reports") == "unserved reports: was not muted\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("planet", "--for", "1h", "--reason", "x"), "invalid choice: 'planet'"),
        (("busy", "mail", "--reason", "x"), "one of the arguments --for --until is required"),
        (("busy", "mail", "--for", "1h"), "required: --reason"),
        (("busy", "mail", "--for", "1h", "--reason", ""), "--reason: This field is required"),
        (("busy", "mail", "--for", "400d", "--reason", "x"), "--for: Expected a time within"),
        (("busy", "mail", "--until", "2020-01-01T00:00", "--reason", "x"), "a time in the future"),
        (("busy", "x" * 1_001, "--for", "1h", "--reason", "x"), "at most 1000 characters"),
        (("busy", OTHERS, "--for", "1h", "--reason", "x"), "This warning is about several things"),
        (("busy", "mail", "--for", "1h", "--reason", "x", "--by", "b" * 501), "at most 500"),
    ],
)
def test_what_the_overview_refuses_is_refused(run: Any, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(CommandError) as refused:
        run("mute", *words)
    assert said in str(refused.value)
    assert not Mute.objects.exists()
