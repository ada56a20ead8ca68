"""axe-core finds nothing on any page of the admin, light and dark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import django
import pytest

from tests.browser.conftest import Installation
from tests.browser.pages import PAGES
from tests.browser.test_cards import NARROW, WITH_CARDS

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(
        django.VERSION < (6, 1),
        reason="before Django 6.1 colour alone tells the admin's own links from text",
    ),
]

# Of a page of the project only what we add to it.
OURS = {"row with jobs": ".field-jobs_of_row"}
# What the colours decide; the rest is the same in both themes.
OF_COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}


def find_violations(window: Any, part: str) -> list[str]:
    """Return what axe-core has against *part* of the page, in the light and then in the dark."""
    from axe_playwright_python.sync_playwright import Axe

    window.evaluate(Axe().axe_script)
    found = []
    for scheme, options in (("light", {}), ("dark", OF_COLOURS)):
        window.emulate_media(color_scheme=scheme)
        # Colours that are still changing are those of neither theme.
        window.evaluate("document.getAnimations().forEach(each => each.finish())")
        chosen = {"resultTypes": ["violations"], **options}
        answer = window.evaluate("([part, options]) => axe.run(part, options)", [part, chosen])
        for violation in answer["violations"]:
            nodes = [node["html"][:200] for node in violation["nodes"][:3]]
            why = violation["nodes"][0]["failureSummary"]
            found.append(f"{scheme} {violation['id']}: {json.dumps(nodes)} {why}")
    return found


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible(
    installation: Installation, open_window: Callable[..., Any], name: str
) -> None:
    window = open_window()
    window.goto(installation.addresses[name])
    assert not find_violations(window, OURS.get(name, "html"))


@pytest.mark.parametrize("name", WITH_CARDS)
def test_a_page_with_cards_is_accessible(
    installation: Installation, open_window: Callable[..., Any], name: str
) -> None:
    window = open_window(width=NARROW)
    window.goto(installation.addresses[name])
    assert not find_violations(window, OURS.get(name, "html"))
