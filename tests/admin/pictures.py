"""Draw the pictures of docs/: every page of the admin, light and dark.

python -m tests.admin.pictures            all
python -m tests.admin.pictures overview   some
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tests.admin.look import serve, set_up

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
WIDTH = 1280
# Taller pages are cut: a picture is looked at, not read.
MAX_HEIGHT = 1500
# Picture -> page of tests.browser.pages. Heartbeats are late soon, so workers come early.
PICTURES = {
    "overview": "overview",
    "workers": "workers",
    "jobs": "jobs, failed",
    "job": "job, failed",
    "waiting-job": "job, ready",
    "copy": "copy",
    "workflows": "workflows",
    "workflow": "workflow",
    "schedules": "schedules",
    "schedule": "schedule",
    "failures": "failures",
    "queues": "queues",
    "queue": "queue, paused",
    "limits": "limits",
    "system": "system",
    "bulk-change": "bulk, requeue",
    "bulk-progress": "bulk change",
    "row": "row with jobs",
}


def draw(browser: Any, address: str, user: Any, name: str, path: str) -> None:
    """Draw one page in both themes."""
    from tests.admin.browser import open_page

    for theme in ("light", "dark"):
        with open_page(browser, address, user, dark=theme == "dark", width=WIDTH) as window:
            window.goto(path)
            height = window.evaluate("document.documentElement.scrollHeight")
            window.set_viewport_size({"width": WIDTH, "height": min(height, MAX_HEIGHT)})
            window.screenshot(path=IMAGES / f"{name}-{theme}.png")


def main() -> None:
    """Draw the pictures that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(PICTURES))
    names = parser.parse_args().names or list(PICTURES)
    set_up()
    from django.contrib.auth.models import User
    from django.core.management import call_command

    from tests.admin.browser import open_browser
    from tests.admin.demo_data import fill
    from tests.browser.pages import PAGES

    # The rows say what happened a minute ago.
    call_command("flush", verbosity=0, interactive=False)
    fill()
    IMAGES.mkdir(exist_ok=True)
    user = User.objects.get(username="admin")
    with serve() as address, open_browser() as browser:
        for name in names:
            draw(browser, address, user, name, PAGES[PICTURES[name]]())


if __name__ == "__main__":
    main()
