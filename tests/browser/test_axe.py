"""axe-core finds nothing on any page of the admin, light and dark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Installation
from tests.browser.pages import PAGES

pytestmark = pytest.mark.django_db

# What the colours decide; the rest is the same in both themes.
OF_COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}


def find_violations(window: Any) -> list[str]:
    """Return what axe-core has against the page, in the light and then in the dark."""
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()
    found = []
    for scheme, options in (("light", {}), ("dark", OF_COLOURS)):
        window.emulate_media(color_scheme=scheme)
        for violation in axe.run(window, options=options).response["violations"]:
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
    assert not find_violations(window)
