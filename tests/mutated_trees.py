"""What `tests.mutations` takes out of callbacks, and of jobs and workflows over HTTP."""

from __future__ import annotations

HTTP = "django_pgjobs/http/"
CALLING = ("tests/http/test_calling.py",)
PLACES = ("tests/http/test_destinations.py",)
SIGNATURES = ("tests/http/test_signatures.py",)
JOBS = ("tests/http/test_jobs.py",)
FLOWS = ("tests/http/test_workflows.py",)
TREES = ("tests/http/test_trees.py",)
SESSIONS = ("tests/http/test_sessions.py",)

# Name, file, what is replaced and by what, and the tests of which one must fail.
OVER_HTTP = (
    (
        "callbacks: hosts of the setting",
        f"{HTTP}destinations.py",
        "if not any(hosts.has(scheme, host, found.port) for hosts in known):",
        "if False:",
        PLACES,
    ),
    (
        "callbacks: names before a host",
        f"{HTTP}destinations.py",
        "or parts.username is not None or parts.fragment",
        "or parts.fragment",
        PLACES,
    ),
    (
        "callbacks: private addresses",
        f"{HTTP}destinations.py",
        "return not is_odd and (address.is_global or may_be_private)",
        "return not is_odd",
        PLACES,
    ),
    (
        "callbacks: addresses of a link",
        f"{HTTP}destinations.py",
        "        or address.is_link_local\n",
        "",
        PLACES,
    ),
    (
        "callbacks: addresses in others",
        f"{HTTP}destinations.py",
        "return address if inner is None else inner",
        "return address",
        PLACES,
    ),
    (
        "callbacks: one look at the name",
        f"{HTTP}posting.py",
        "    addresses = find_addresses(destination)\n",
        "    find_addresses(destination)\n    addresses = find_addresses(destination)\n",
        CALLING,
    ),
    (
        "callbacks: the deadline of each byte",
        f"{HTTP}posting.py",
        "self.connection.settimeout(_left(self.deadline))",
        "self.connection.settimeout(SECONDS)",
        CALLING,
    ),
    (
        "callbacks: what is not taken",
        f"{HTTP}calling.py",
        "if 200 <= answer.status < 300:",
        "if answer.status < 400:",
        CALLING,
    ),
    (
        "callbacks: only of failures",
        f"{HTTP}calling.py",
        'if only_failure and told["job"]["status"] == JobStatus.SUCCESSFUL:',
        "if False:",
        CALLING,
    ),
    (
        "signatures: the body",
        f"{HTTP}signatures.py",
        "if not any(matches):",
        "if not matches:",
        SIGNATURES,
    ),
    (
        "signatures: their age",
        f"{HTTP}signatures.py",
        "if abs(time.time() - int(at)) > max_age:",
        "if int(at) - time.time() > max_age:",
        SIGNATURES,
    ),
    (
        "jobs: scope of a token",
        f"{HTTP}calls.py",
        "    access.require_use(used.queue_name, used.module_path)\n",
        "",
        JOBS,
    ),
    (
        "jobs: what a token sees",
        f"{HTTP}owning.py",
        "job_database()).filter(_of_scope(access))",
        "job_database())",
        JOBS,
    ),
    (
        "jobs: tasks of our own",
        f"{HTTP}calls.py",
        "if not is_own(path):",
        "if path:",
        JOBS,
    ),
    (
        "trees: jobs of others",
        f"{HTTP}owning.py",
        "if not may_use or _jobs(batch).filter(~_of_scope(access)).exists():",
        "if False:",
        FLOWS,
    ),
    (
        "trees: followers before jobs",
        f"{HTTP}trees.py",
        "        self._open_followers(part, batch)\n",
        "        add_jobs(batch, part.jobs)\n        self._open_followers(part, batch)\n",
        TREES,
    ),
    (
        "trees: bound of jobs",
        f"{HTTP}trees.py",
        "if self._jobs > MAX_JOBS:",
        "if False:",
        TREES,
    ),
    (
        "trees: repeated requests",
        f"{HTTP}views/workflows.py",
        "if not is_replay_good or error.batch_id is None:",
        "if True:",
        TREES,
    ),
    (
        "workflows: deletion waits",
        f"{HTTP}removing.py",
        "    if found.tree_completed_at is None:\n",
        "    if False:\n",
        FLOWS,
    ),
    (
        "workflows: an assignment of another token",
        f"{HTTP}views/workflows.py",
        "given = opened_or_refused(assignment, token_id)",
        'given = opened_or_refused(assignment, int(assignment.split(".")[3].split("~")[0]))',
        FLOWS,
    ),
    (
        "sessions: what is crossed",
        f"{HTTP}sessions.py",
        "trouble_of(cause) is not Trouble.CROSSED",
        "trouble_of(cause) is Trouble.CROSSED",
        SESSIONS,
    ),
)
