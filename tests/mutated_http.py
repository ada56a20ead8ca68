"""What `tests.mutations` takes out of the HTTP API: its doors, and the rules for its workers."""

from __future__ import annotations

HTTP = "django_pgjobs/http/"
SQL = "django_pgjobs/sql/"
TOKENS = ("tests/http/test_tokens.py",)
BODIES = ("tests/http/test_bodies.py",)
ROUTING = ("tests/http/test_routing.py",)
GUARDS = ("tests/http/test_rules_guards.py",)
LIMITS = ("tests/http/test_rules_limits.py",)
RACES = ("tests/http/test_rules_races.py",)
REPEATS = ("tests/http/test_rules_repeats.py",)
WAITS = ("tests/http/test_rules_waiting.py",)

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
        "http: token of a worker that waits",
        f"{SQL}get_remote_worker.sql",
        "            AND token.revoked_at IS NULL\n",
        "",
        GUARDS,
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
        "http: tokens that the loop looks up",
        f"{HTTP}routing.py",
        "access = await in_thread(partial(find_access, request))",
        "access = find_access(request)",
        ("tests/http/test_asgi.py",),
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
        "django_pgjobs/queries/database.py",
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
        "if exceeds_depth(value, text, MAX_DEPTH):",
        "if False:",
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

# Of the workers: what they are given, kept from, and told.
RULES = (
    (
        "worker over http: boosts in the walk",
        "django_pgjobs/worker/claiming/plan.py",
        "group.urgency - self.boosts.get(group.queue_name, 0), group",
        "group.urgency, group",
        LIMITS,
    ),
    (
        "worker over http: boosts in the claim",
        f"{HTTP}taking.py",
        "boosts=listing.boosts,",
        "boosts={},",
        LIMITS,
    ),
    (
        "worker over http: queues with a limit",
        f"{HTTP}taking.py",
        "limited=frozenset(lane.queue_name for lane in listing.lanes) & listing.limited,",
        "limited=frozenset(),",
        LIMITS,
    ),
    (
        "worker over http: signature of an assignment",
        f"{HTTP}assignments.py",
        "not any(hmac.compare_digest(signature, _signature(text, key)) for key in _keys())",
        "False",
        ("tests/http/test_assignments.py",),
    ),
    (
        "http: two attempts of a job in one request",
        f"{HTTP}outcomes.py",
        " or claims_of_jobs[claim[0]] > 1",
        "",
        ("tests/http/test_memory.py",),
    ),
    (
        "http: losses that are counted",
        f"{HTTP}beating.py",
        "            station.note_rescued(rescued)\n",
        "",
        ("tests/http/test_heartbeats.py",),
    ),
    (
        "worker over http: failures by what is remembered",
        f"{HTTP}outcomes.py",
        "memory.take(*claim) if isinstance(report, Result) else None",
        "memory.take(*claim)",
        ("tests/http/test_memory.py",),
    ),
    (
        "worker over http: turn of one job",
        f"{HTTP}single.py",
        "for waits in (False, True):",
        "for waits in (False,):",
        RACES,
    ),
    (
        "worker over http: statements that are crossed",
        f"{HTTP}pool.py",
        "if trouble_of(error) is not Trouble.CROSSED:",
        "if True:",
        REPEATS,
    ),
    (
        "report of a row that nothing may change",
        f"{HTTP}reporting.py",
        "return self.locked | self._state.unwritable",
        "return self.locked",
        ("tests/http/test_rules_guards.py",),
    ),
    (
        "worker over http: outcomes that are crossed",
        f"{HTTP}reporting.py",
        "elif trouble is not Trouble.CROSSED:",
        "elif True:",
        REPEATS,
    ),
    (
        "worker over http: outcomes over a lost connection",
        f"{HTTP}reporting.py",
        "            if self._losses > 1:\n",
        "            if True:\n",
        REPEATS,
    ),
    (
        "worker over http: places of connections",
        f"{HTTP}pool.py",
        "        except BaseException:\n            self._note_given_back()\n            raise\n",
        "        except BaseException:\n            raise\n",
        REPEATS,
    ),
    (
        "worker over http: queues of a narrowed token",
        f"{HTTP}members.py",
        "access.queues_of(row.queues)",
        "row.queues",
        GUARDS,
    ),
    (
        "worker over http: tasks of a narrowed token",
        f"{HTTP}members.py",
        "access.tasks_of(row.task_paths)",
        "frozenset(row.task_paths)",
        GUARDS,
    ),
    (
        "worker over http: goodbye for others",
        f"{HTTP}views/workers.py",
        "    find_member(request.access, worker)\n    while",
        "    while",
        GUARDS,
    ),
    (
        "worker over http: assignments of others",
        f"{HTTP}views/workers.py",
        "if assignment is None or assignment.worker_id != worker_id:",
        "if assignment is None:",
        GUARDS,
    ),
    (
        "worker over http: goodbye of many",
        f"{HTTP}views/workers.py",
        "if len(held) < MAX_NAMED or delivery.unwritten:",
        "if True:",
        GUARDS,
    ),
    (
        "worker over http: first of two reports",
        f"{HTTP}outcomes.py",
        "attempts.pop((assignment.job_id, assignment.claim), None)",
        "attempts.get((assignment.job_id, assignment.claim), None)",
        GUARDS,
    ),
    (
        "worker over http: quiet while it waits",
        f"{HTTP}asking.py",
        "        if row.is_quiet or row.is_stopping:\n            return []\n        return take",
        "        return take",
        GUARDS,
    ),
    (
        "worker over http: late and locked",
        f"{HTTP}beating.py",
        "return {attempt.id for attempt, _ in late} - delivery.locked",
        "return {attempt.id for attempt, _ in late}",
        GUARDS,
    ),
    (
        "worker over http: end of a token that is known",
        f"{HTTP}access.py",
        "min(CACHED_SECONDS, left)",
        "CACHED_SECONDS",
        GUARDS,
    ),
    (
        "worker over http: look after a subscription",
        f"{HTTP}waiting.py",
        "        # What came before is for the look of each.\n        self.tell()\n",
        "",
        WAITS,
    ),
    (
        "worker over http: wake-up that was in vain",
        f"{HTTP}waiting.py",
        "if passes_on or waiter.is_woken:",
        "if passes_on:",
        WAITS,
    ),
    (
        "worker over http: tokens that come",
        f"{HTTP}asking.py",
        "min(self._until, looks.last.due_at, self._tokens_at) - now",
        "min(self._until, looks.last.due_at) - now",
        WAITS,
    ),
    (
        "worker over http: flag that could not be set",
        f"{HTTP}asking.py",
        "waiting.pause if self._is_said else POLL_SECONDS",
        "waiting.pause",
        ("tests/http/test_waiting.py",),
    ),
    (
        "worker over http: client that goes as it is woken",
        f"{HTTP}asking.py",
        "async with asyncio.timeout(pause):\n                    await event.wait()",
        "await asyncio.wait_for(event.wait(), pause)",
        ("tests/http/test_waiting.py",),
    ),
    (
        "worker over http: client that goes while it waits",
        f"{HTTP}asgi.py",
        "    leaving.add_done_callback(lambda _: answering.cancel())\n",
        "",
        ("tests/http/test_asgi.py",),
    ),
)
