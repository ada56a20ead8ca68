"""Draw pages of the admin as pictures, of a filled installation.

python -m tests.admin.look /admin/pgjobs/ overview.png --dark --width 390
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import django
import psycopg

DATABASE = "pgjobs_look"


def set_up() -> None:
    """Make the database of the pictures, migrate and fill it, unless that was done."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    # The browser's driver runs an event loop in this thread.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    django.setup()
    from django.conf import settings

    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    settings.MIDDLEWARE.append("django.middleware.locale.LocaleMiddleware")
    from django.core.management import call_command
    from django.db import connection
    from django.db.models import Max

    params = connection.get_connection_params() | {"dbname": "postgres"}
    known = {"host", "port", "user", "password", "dbname"}
    plain = {key: value for key, value in params.items() if key in known}
    with psycopg.connect(**plain, autocommit=True) as server:
        with contextlib.suppress(psycopg.errors.DuplicateDatabase):
            server.execute(f"CREATE DATABASE {DATABASE}")
    connection.settings_dict["NAME"] = DATABASE
    call_command("migrate", verbosity=0)

    from django_pgjobs.models import Job
    from tests.admin.demo_data import fill

    if Job.objects.aggregate(newest=Max("pk"))["newest"] is None:
        fill()


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Serve the project; yields its address."""
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.test.testcases import LiveServerThread

    thread = LiveServerThread("127.0.0.1", StaticFilesHandler)
    thread.daemon = True
    thread.start()
    thread.is_ready.wait()
    try:
        yield f"http://127.0.0.1:{thread.port}"
    finally:
        thread.terminate()


def main() -> None:
    """Draw one page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="such as /admin/pgjobs/")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1400)
    parser.add_argument("--user", default="admin", choices=["admin", "viewer"])
    parser.add_argument("--language")
    options = parser.parse_args()
    set_up()
    from django.contrib.auth.models import User

    from tests.admin.browser import open_browser, open_page

    user = User.objects.get(username=options.user)
    with serve() as address, open_browser() as browser:
        with open_page(
            browser,
            address,
            user,
            dark=options.dark,
            width=options.width,
            language=options.language,
        ) as window:
            response = window.goto(options.path)
            print(response.status, window.title())
            window.screenshot(path=options.picture, full_page=True)


if __name__ == "__main__":
    main()
