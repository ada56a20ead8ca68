"""A person who may do everything, and a browser of theirs, at the cost of two statements.

What Django does when somebody logs in takes ten times as long, and a thousand tests need it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.test import Client

ENDS = datetime(2999, 1, 1, tzinfo=UTC)


@lru_cache
def _password() -> str:
    return make_password("password")


def make_admin() -> User:
    """Insert the user "admin"."""
    return User.objects.create(
        username="admin",
        email="admin@example.com",
        password=_password(),
        is_staff=True,
        is_superuser=True,
    )


def session_of(user: User) -> dict[str, str]:
    """Return what the session of somebody who has logged in holds."""
    return {
        SESSION_KEY: str(user.pk),
        BACKEND_SESSION_KEY: settings.AUTHENTICATION_BACKENDS[0],
        HASH_SESSION_KEY: user.get_session_auth_hash(),
    }


def open_client(user: User) -> Client:
    """Return a browser in which *user* has logged in."""
    key = f"session-of-{user.pk}"
    data = SessionStore().encode(session_of(user))
    Session.objects.create(session_key=key, session_data=data, expire_date=ENDS)
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = key
    return client
