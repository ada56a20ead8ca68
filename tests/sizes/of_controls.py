"""The pages Queues and Limits, and that of a queue, against plain SQL."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from django.test import Client
from django.urls import reverse

from django_pgjobs.values.moments import duration
from tests.sizes.compared import between, cells, facts, plain, query, steady
from tests.sizes.rows import TOKENS

# Classes of time double from a millisecond on: what half of the attempts took at most is shown as
# the end of its class.
QUEUES = """
WITH ended AS (
    SELECT
        queue_name, count(*) FILTER (WHERE finished_at >= since) AS jobs,
        count(*) FILTER (WHERE finished_at >= since AND status = 'failed') AS failed,
        count(*) FILTER (WHERE finished_at >= since AND status = 'successful') AS successful,
        percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (
            ORDER BY last_attempted_at - enqueued_at
        ) FILTER (WHERE date_trunc('minute', finished_at) >= now() - interval '1 hour') AS waited,
        percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY finished_at - last_attempted_at)
        FILTER (WHERE date_trunc('minute', finished_at) >= now() - interval '1 hour') AS ran
    FROM pgjobs_job_finished
    CROSS JOIN (SELECT date_trunc('minute', now()) - interval '59 minutes' AS since) AS hour
    WHERE finished_at >= now() - interval '2 hours'
    GROUP BY queue_name
),
waiting AS (
    SELECT
        queue_name, count(*) FILTER (WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL)
        AS ready,
        count(*) FILTER (WHERE status = 'running') AS running,
        count(*) FILTER (WHERE due_at IS NOT NULL AND attempts > 0) AS retrying,
        count(*) FILTER (WHERE due_at IS NOT NULL AND attempts = 0) AS scheduled,
        count(*) FILTER (WHERE hold IS NOT NULL) AS blocked,
        min(enqueued_at) FILTER (WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL)
        AS oldest
    FROM pgjobs_job_live
    GROUP BY queue_name
)
SELECT
    waiting.*, COALESCE(ended.jobs, 0), COALESCE(ended.failed, 0), COALESCE(ended.successful, 0),
    {waited}, {ran},
    (
        SELECT count(*) FROM pgjobs_worker AS worker
        WHERE ended_at IS NULL AND lease_expires_at > now() AND quiet_requested_at IS NULL
            AND (queues IS NULL OR waiting.queue_name = ANY (queues))
            AND waiting.queue_name <> ALL (excluded_queues)
    ),
    (SELECT max(ready) FROM pgjobs_queue_sample WHERE queue_name = waiting.queue_name)
FROM waiting LEFT JOIN ended ON ended.queue_name = waiting.queue_name
ORDER BY waiting.queue_name
"""
ENDS = """ARRAY(
    SELECT
        CASE
            WHEN took < interval '1 millisecond' THEN 0.001
            ELSE 2 ^ (floor(log(2, EXTRACT(EPOCH FROM took) * 1000)) + 1) / 1000
        END::double precision
    FROM unnest({name}) WITH ORDINALITY AS each (took, place) ORDER BY place
)"""
RUNNING = """
SELECT id FROM pgjobs_job WHERE status = 'running' AND queue_name = %s
ORDER BY last_attempted_at, id LIMIT 20
"""
RATE_KEYS = """
SELECT
    COALESCE(waiting.key, state.key), COALESCE(waiting.jobs, 0),
    GREATEST(0, %s - COALESCE(state.taken_since[1], 0)), state.key IS NOT NULL
FROM (
    SELECT rate_limit_keys AS key, count(*) AS jobs FROM pgjobs_job
    WHERE status = 'ready' AND rate_limit_keys LIKE 'mail:%%'
    GROUP BY rate_limit_keys
) AS waiting
FULL JOIN pgjobs_rate_state AS state ON state.key = waiting.key
ORDER BY 2 DESC, 4 DESC, 1
"""
IN_VAIN = "SELECT count(*) FROM pgjobs_job WHERE status = 'ready' AND rate_limit_keys LIKE 'gone:%'"
FULL_IN = (
    "SELECT EXTRACT(EPOCH FROM next_free - clock_timestamp()) FROM pgjobs_rate_state WHERE key = %s"
)
KEYS = """
SELECT
    concurrency_key, count(*) FILTER (WHERE status = 'ready'),
    count(*) FILTER (WHERE status = 'running'),
    CASE WHEN concurrency_key LIKE 'shop:1%' THEN 3 ELSE 5 END, concurrency_key = 'shop:7'
FROM pgjobs_job_live WHERE concurrency_key IS NOT NULL
GROUP BY concurrency_key ORDER BY 2 DESC, 3 DESC, concurrency_key COLLATE "C" LIMIT 20
"""
SETTINGS = {"queue-1": 5, "queue-2": 100_000}


class Queue(NamedTuple):
    """What plain SQL finds of a queue."""

    name: str
    ready: int
    running: int
    retrying: int
    scheduled: int
    blocked: int
    oldest: Any
    finished: int
    failed: int
    successful: int
    waited: list[float]
    ran: list[float]
    workers: int
    most_ready: int

    @property
    def failed_percent(self) -> str:
        """The share of those that ran."""
        ran = self.failed + self.successful
        share = 100 * self.failed / ran if ran else None
        if share is None:
            return "–"
        return "<1 %" if 0 < share < 1 else f"{round(share)} %"


def check(client: Client) -> None:
    """Check these pages."""
    check_queues(client)
    check_limits(client)


def find_queues() -> list[Queue]:
    text = QUEUES.format(waited=ENDS.format(name="waited"), ran=ENDS.format(name="ran"))
    return [Queue._make(row) for row in query(text)]


def check_queues(client: Client) -> None:
    address = reverse("admin:pgjobs_queuesettings_changelist")
    wanted, response = steady(find_queues, lambda: client.get(address))
    text = response.content.decode()
    rows = [each for each in cells(text) if each and each[0].startswith("queue-")]
    sparks = re.findall(r"Ready jobs in the last 3 hours: at most ([\d,]+)", text)
    assert [f"{queue.most_ready:,}" for queue in wanted] == sparks
    for queue, row, shown in zip(wanted, rows, response.context["queues"], strict=True):
        later = {"retrying": queue.retrying, "scheduled": queue.scheduled, "blocked": queue.blocked}
        full = queue.running >= SETTINGS.get(queue.name, queue.running + 1)
        most = f" / {SETTINGS[queue.name]:,}" if queue.name in SETTINGS else ""
        said = [
            queue.name,
            f"{queue.ready:,}",
            f"{queue.running:,}{most}{' full' if full else ''}",
            " ".join(f"{number:,} {name}" for name, number in later.items() if number) or "0",
            f"{queue.finished:,}",
            queue.failed_percent,
            " ".join(map(duration, queue.waited)) or "–",
            " ".join(map(duration, queue.ran)) or "–",
        ]
        assert [row[0].split(" ")[0], *row[2:5], *row[6:10]] == said
        assert shown.row.waiting_since == queue.oldest
        titles = re.findall(rf'queue={queue.name}&amp;[^"]*" title="([\d,]+)"', text)
        assert titles == [f"{queue.failed:,}"][: queue.failed]
    check_queue(client, wanted[1].name)


def check_queue(client: Client, name: str) -> None:
    """Check the page of one."""
    wanted, text = steady(
        lambda: next(queue for queue in find_queues() if queue.name == name),
        lambda: client.get(reverse("admin:pgjobs_queue"), {"name": name}).content.decode(),
    )
    shown = facts(text)
    for label, number in {
        "Ready": wanted.ready,
        "Blocked": wanted.blocked,
        "Running": wanted.running,
        "Retrying": wanted.retrying,
        "Scheduled": wanted.scheduled,
        "Finished in 1 h": wanted.finished,
    }.items():
        assert shown[label].split(" ")[0] == f"{number:,}", label
    failed = f"{wanted.failed:,} , " if wanted.failed else ""
    assert shown["Failed"] == f"{failed}{wanted.failed_percent}"
    for label, times in (("Waited", wanted.waited), ("Ran", wanted.ran)):
        said = "half at most {}, 95 % at most {}".format(*map(duration, times)) if times else "–"
        assert shown[f"{label}, in the last hour"] == said
    running = [row[0] for row in query(RUNNING, name)]
    assert [int(each) for each in re.findall(r"#(\d+)</a>", text)] == running
    assert len(re.findall(r"\d+ slots?</span></li>", text)) == wanted.workers


def check_limits(client: Client) -> None:
    def read() -> Any:
        return client.get(reverse("admin:pgjobs_ratelimit_changelist"))

    response = read()
    text = response.content.decode()
    rows = cells(text.partition("<h2>Concurrency limits")[0])
    keys = query(RATE_KEYS, TOKENS)
    [total] = [row for row in rows if row[:1] == ["mail"]]
    assert total[4] == f"{sum(jobs for _, jobs, *_ in keys):,}"
    shown = [row for row in rows if row and row[0].startswith("mail:")]
    for row, (key, jobs, tokens, _) in zip(shown, keys[:20], strict=True):
        used_up = " used up" if tokens < 1 else ""
        assert (row[0], row[2], row[4]) == (key, f"{tokens} / {TOKENS}{used_up}", f"{jobs:,}")
    assert f"and {len(keys) - 20} more keys" in text or len(keys) <= 21
    # Of more of them these are lower bounds.
    assert plain(text).count("counted among the first 20,000 ready jobs with keys") == 2
    [(in_vain,)] = query(IN_VAIN)
    assert re.search(rf"\b{in_vain} jobs? waits? for the rate limit of", text)
    between(
        lambda: -float(query(FULL_IN, "mail:0")[0][0]),
        lambda: (
            -next(
                key.row.full_in
                for key in read().context["rates"][0].keys
                if key.row.key == "mail:0"
            )
        ),
    )
    check_keys(text.partition("<h2>Concurrency keys")[2])


def check_keys(text: str) -> None:
    rows = cells(text)[1:]
    for row, (key, waiting, running, most, is_paused) in zip(rows, query(KEYS), strict=True):
        assert row[0] == f"{key}{' ‖ Paused' * is_paused}"
        assert row[1] == f"{running:,} / {most}{' full' * (running >= most)}"
        assert row[2] == f"{waiting:,}"
