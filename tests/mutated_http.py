"""What `tests.mutations` takes out of the HTTP API's doors: tokens, bodies, what is refused."""

from __future__ import annotations

HTTP = "django_pgjobs/http/"
SQL = "django_pgjobs/sql/"
TOKENS = ("tests/http/test_tokens.py",)
BODIES = ("tests/http/test_bodies.py",)
ROUTING = ("tests/http/test_routing.py",)

# Name, file, what is replaced and by what, and the tests of which one must fail.
DOORS = (
    (
        "http: end of a revoked token",
        f"{SQL}get_token.sql",
        "    AND token.revoked_at IS NULL\n",
        "",
        TOKENS,
    ),
    (
        "http: end of a token",
        f"{SQL}get_token.sql",
        "    AND (token.expires_at IS NULL OR token.expires_at > statement_timestamp())\n",
        "",
        TOKENS,
    ),
    (
        "http: verb of a token",
        f"{HTTP}routing.py",
        "        access.require(handler.verb)\n",
        "        pass\n",
        ROUTING,
    ),
    (
        "http: verb of a twin",
        f"{HTTP}routing.py",
        "given = _admitted(request, handler, access)",
        "given = ApiRequest(request, access)",
        ROUTING,
    ),
    (
        "http: rate of a token",
        f"{HTTP}routing.py",
        "    rates.spend(access)\n",
        "",
        ROUTING,
    ),
    (
        "http: good tokens that stay known",
        f"{HTTP}access.py",
        "{key: each for key, each in self._found.items() if each[0]}",
        "{}",
        ("tests/http/test_access.py",),
    ),
    (
        "http: tasks of a token",
        f"{HTTP}access.py",
        "return is_queue and (self.tasks is None or task_path in self.tasks)",
        "return is_queue",
        ("tests/http/test_access.py",),
    ),
    (
        "http: transaction of a request",
        f"{HTTP}routing.py",
        "        transaction.non_atomic_requests(using=alias)(view)\n",
        "        pass\n",
        ROUTING,
    ),
    (
        "http: log in",
        f"{HTTP}routing.py",
        "    view.login_required = False\n",
        "",
        ROUTING,
    ),
    (
        "http: size that is told",
        f"{HTTP}bodies.py",
        "    if length > max_bytes:\n",
        "    if False:\n",
        BODIES,
    ),
    (
        "http: body that is cut off",
        f"{HTTP}bodies.py",
        "    if size < length:\n",
        "    if False:\n",
        BODIES,
    ),
    (
        "http: levels of a body",
        f"{HTTP}bodies.py",
        "> MAX_DEPTH and _is_deep(value):",
        "> MAX_DEPTH and False:",
        BODIES,
    ),
    (
        "http: fields that nobody knows",
        f"{HTTP}fields.py",
        "            if name not in self._known:\n",
        "            if False:\n",
        BODIES,
    ),
    (
        "http: what an exception tells",
        f"{HTTP}routing.py",
        'detail="See the server\'s log."',
        "detail=str(error)",
        ROUTING,
    ),
    (
        "http: connections of a forked process",
        f"{HTTP}pool.py",
        "os.register_at_fork(after_in_child=pool.begin_anew)\n",
        "",
        ROUTING,
    ),
    (
        "http: connections that the server ended",
        f"{HTTP}pool.py",
        "            connection.close_if_dead()\n",
        "",
        ROUTING,
    ),
)
