"""Who may do what in the admin; bulk changes ask the same where no admin is loaded."""

from __future__ import annotations

from django_pgjobs.permissions import Verb, may, narrow, require

__all__ = ["Verb", "may", "narrow", "require"]
