"""What the token of a request may do."""

from __future__ import annotations

from django_pgjobs.http.access import VERBS
from django_pgjobs.http.requests import ApiRequest, Reply
from django_pgjobs.http.routing import Handler, route
from django_pgjobs.values.moments import instant_text


def show_token(request: ApiRequest) -> Reply:
    """Show the token of the request."""
    access = request.access
    return Reply(
        200,
        {
            "id": str(access.token_id),
            "name": access.name,
            "verbs": [verb for verb in VERBS if verb in access.verbs],
            "queues": None if access.queues is None else sorted(access.queues),
            "tasks": None if access.tasks is None else sorted(access.tasks),
            "expires_at": instant_text(access.expires_at),
        },
    )


ROUTES = [route("token", {"GET": Handler(show_token, None)}, name="token")]
