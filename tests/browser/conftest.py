"""The admin in headless Chromium, served as a project serves it, under a strict policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, connections
from django.test.utils import modify_settings, override_settings
from pytest_django.live_server_helper import LiveServer
from pytest_django.plugin import DjangoDbBlocker

from django_pgjobs.admin.job_list.page import JobList
from django_pgjobs.bulk import preview
from tests.admin.browser import find_browser, open_browser, open_page, session_cookie
from tests.admin.demo_data import fill, make_users
from tests.browser.pages import PAGES
from tests.browser.policy import MIDDLEWARE
from tests.browser.windows import Watch
from tests.helpers import skip, wait_until

HOST = "127.0.0.1"
# Live pages refresh themselves every five seconds.
WAIT_MS = 15_000


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is to be there at once takes its time: the machine may be busy."""
    monkeypatch.setattr(preview, "QUICK_SECONDS", 60)


@pytest.fixture(scope="session")
def site(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[LiveServer]:
    """What the fixture `live_server` is, but it empties no tables that a module shares.

    Middleware is read when the server starts. It stops before the test database is dropped, and so
    do its answers to a browser that has gone.
    """
    with override_settings(MIDDLEWARE=MIDDLEWARE):
        server = LiveServer(HOST)
    yield server
    server.stop()
    with django_db_blocker.unblock():
        wait_until(lambda: not other_sessions(), message=lambda: f"open: {other_sessions()}")


def other_sessions() -> list[Any]:
    """Return what other sessions of the database do."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT application_name, state, query FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return cursor.fetchall()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for the tests of a module: while it is there an event loop runs in this thread."""
    pytest.importorskip("playwright", reason="the extra `browser` is not installed")
    if find_browser() is None:
        skip("there is no Chromium")
    with pytest.MonkeyPatch.context() as patch, open_browser() as browser:
        # Django refuses its ORM in a thread with a running event loop.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield browser
        # Under the loop this thread has connections of its own.
        connections.close_all()


@pytest.fixture
def people(transactional_db: None, site: LiveServer) -> dict[str, dict[str, str]]:
    """The users `admin`, who may do everything, and `viewer`, who may look: their cookies."""
    make_users()
    return cookies(site)


class Installation(NamedTuple):
    """A filled installation: who is logged in, and where the pages are."""

    cookies: dict[str, dict[str, str]]
    addresses: dict[str, str]


@pytest.fixture(scope="module")
def installation(
    browser: Any, site: LiveServer, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Installation]:
    """An installation that the tests of a module share; what they read they only look at.

    They are marked with `django_db`, without `transaction=True`, which would empty the tables.
    """
    # A page of the list is the same with less rows, and looked at sooner.
    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock():
        patch.setattr(JobList, "list_per_page", 12)
        fill()
        made = Installation(cookies(site), {name: make() for name, make in PAGES.items()})
        yield made
        call_command("flush", verbosity=0, interactive=False)


@pytest.fixture(scope="module")
def shared_windows(
    browser: Any, site: LiveServer, installation: Installation
) -> Iterator[Callable[..., Any]]:
    """Open windows on `installation`; those with the same options share the browser's cache."""
    first: dict[str, Any] = {}
    with ExitStack() as stack:

        def opener(username: str, **options: Any) -> Any:
            key = repr((username, options))
            if key not in first:
                cookie = installation.cookies[username]
                opened = open_page(browser, site.url, cookie, **options)
                first[key] = stack.enter_context(opened)
            return first[key].context.new_page()

        yield opener


@pytest.fixture
def open_window(
    request: pytest.FixtureRequest, browser: Any, site: LiveServer
) -> Iterator[Callable[..., Any]]:
    """Open windows of a person: `open_window(username="admin", *, dark, width, language)`.

    When the test ends nothing may have gone wrong in them, see Watch.
    """
    watches = []
    is_shared = "installation" in request.fixturenames
    given = request.getfixturevalue("shared_windows" if is_shared else "people")
    with modify_settings(ALLOWED_HOSTS={"append": HOST}), ExitStack() as stack:

        def opener(username: str = "admin", **options: Any) -> Any:
            if is_shared:
                page = stack.enter_context(closing(given(username, **options)))
            else:
                opened = open_page(browser, site.url, given[username], **options)
                page = stack.enter_context(opened)
            page.set_default_timeout(WAIT_MS)
            watches.append(Watch(page, site.url))
            return page

        yield opener
    troubles = [trouble for watch in watches for trouble in watch.troubles]
    assert not troubles


def cookies(site: LiveServer) -> dict[str, dict[str, str]]:
    """Log everybody in."""
    return {user.username: session_cookie(user, site.url) for user in User.objects.all()}
