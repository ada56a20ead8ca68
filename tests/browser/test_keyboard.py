"""The admin without a mouse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_pgjobs.models import Pause
from tests.browser.pages import named
from tests.factories import get_job, make_job, make_jobs
from tests.test_admin import NOW

pytestmark = pytest.mark.django_db(transaction=True)

MAX_STEPS = 100
FOCUSED = """() => {
    const element = document.activeElement;
    const name = element.getAttribute("aria-label") || element.textContent || element.value || "";
    return [element.tagName, element.name || "", name.trim().replace(/\\s+/g, " ")];
}"""
# What tells the element with the focus from the others.
IS_MARKED = """() => {
    const element = document.activeElement;
    const looks = () => {
        document.getAnimations().forEach(each => each.finish());
        const style = getComputedStyle(element);
        return [style.outline, style.border, style.background, style.boxShadow, style.color,
            style.textDecoration].join();
    };
    const focused = looks();
    element.blur();
    const plain = looks();
    element.focus();
    return focused !== plain;
}"""


def tab_to(window: Any, tag: str, text: str) -> None:
    """Press Tab until what has the focus is such an element with that name or text."""
    seen = []
    for _step in range(MAX_STEPS):
        window.keyboard.press("Tab")
        found = window.evaluate(FOCUSED)
        seen.append(found)
        if found[0] == tag and text in found[1:]:
            assert window.evaluate(IS_MARKED), f"nobody sees that {found} has the focus"
            return
    raise AssertionError(f"Tab does not reach {tag} {text!r}: {seen}")


def skip_to_content(window: Any) -> None:
    """Follow the first link of a page, past the header and the sidebar."""
    window.keyboard.press("Tab")
    assert window.evaluate(FOCUSED)[2] == "Skip to main content"
    window.keyboard.press("Enter")


def enter(window: Any) -> None:
    """Press Enter, and wait for the page that it leads to."""
    with window.expect_navigation():
        window.keyboard.press("Enter")


def test_a_queue_is_paused_and_resumed_by_keyboard(open_window: Callable[..., Any]) -> None:
    make_jobs(2, queue_name="reports")
    window = open_window()
    window.goto(named("app_list", "pgjobs"))
    skip_to_content(window)
    tab_to(window, "A", "Queues")
    enter(window)
    skip_to_content(window)
    tab_to(window, "A", "Pause reports")
    enter(window)
    skip_to_content(window)
    tab_to(window, "INPUT", "reason")
    window.keyboard.type("the PDFs are empty")
    enter(window)
    assert Pause.objects.get().reason == "the PDFs are empty"
    tab_to(window, "A", "Resume reports")
    enter(window)
    skip_to_content(window)
    tab_to(window, "INPUT", "Yes, resume")
    enter(window)
    assert not Pause.objects.exists()


def test_a_job_is_retried_later_by_keyboard(open_window: Callable[..., Any]) -> None:
    job_id = make_job(status="failed", finished_at=NOW)
    window = open_window()
    window.goto(named("pgjobs_job_changelist", tab="failed"))
    skip_to_content(window)
    tab_to(window, "A", "tests.tasks.add")
    enter(window)
    skip_to_content(window)
    tab_to(window, "SUMMARY", "Requeue at…")
    window.keyboard.press("Enter")
    tab_to(window, "INPUT", "at")
    window.locator("[name=at]:focus").fill("2090-01-02T03:04")
    tab_to(window, "BUTTON", "Requeue then")
    enter(window)
    job = get_job(job_id)
    assert (job.status, job.due_at.year) == ("ready", 2090)


def test_jobs_are_chosen_and_cancelled_by_keyboard(open_window: Callable[..., Any]) -> None:
    job_id = make_job()
    window = open_window()
    window.goto(named("pgjobs_job_changelist"))
    skip_to_content(window)
    tab_to(window, "INPUT", "_selected_action")
    window.keyboard.press("Space")
    window.locator("select[name=action]").focus()
    window.keyboard.type("Cancel")
    tab_to(window, "BUTTON", "index")
    enter(window)
    # The address of a form keeps its fragment: the new page begins with its content, too.
    tab_to(window, "INPUT", "reason")
    enter(window)
    assert get_job(job_id).status == "cancelled"
