"""A person who may do everything, and a browser of theirs, at the cost of one statement.

What Django does when somebody logs in takes ten times as long, and a thousand tests need it. The
settings of the tests keep sessions in cookies, so that a request asks for the person only.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.test import Client


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


def session_of(user: User) -> str:
    """Return the session of somebody who has logged in, as their browser keeps it."""
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return str(session.session_key)


def open_client(user: User) -> Client:
    """Return a browser in which *user* has logged in."""
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = session_of(user)
    return client
