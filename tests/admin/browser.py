"""Headless Chromium for the tests of pages and for screenshots."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from tests.people import session_of

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """Return the path of the installed browser, None if there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def open_browser() -> Iterator[Any]:
    """Start Chromium; yields Playwright's Browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


def session_cookie(user: User, address: str) -> dict[str, str]:
    """Log *user* in; return the cookie for a site at *address*."""
    return {
        "name": settings.SESSION_COOKIE_NAME,
        "value": session_of(user),
        "url": address,
    }


@contextmanager
def open_page(
    browser: Any,
    address: str,
    user: User | dict[str, str],
    *,
    dark: bool = False,
    width: int = 1400,
    language: str | None = None,
) -> Iterator[Any]:
    """Open a window whose requests go to the site at *address* as *user*.

    Instead of the user it may be what `session_cookie` returned.
    """
    cookie = session_cookie(user, address) if isinstance(user, User) else user
    context = browser.new_context(
        viewport={"width": width, "height": 1000},
        color_scheme="dark" if dark else "light",
        base_url=address,
        locale=language or "en-US",
    )
    context.add_cookies([cookie])
    if language:
        context.add_cookies(
            [{"name": settings.LANGUAGE_COOKIE_NAME, "value": language, "url": address}]
        )
    try:
        yield context.new_page()
    finally:
        context.close()
