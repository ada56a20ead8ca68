"""A worker for django-pgjobs in a program without Django: it claims jobs over HTTP and reports.

    worker = Worker("https://shop.example/pgjobs/api/", token, slots=4)

    @worker.task("shop.tasks.print_label")
    def print_label(job, order_id):
        ...  # what it returns is the result, what it raises the failure

    worker.run()  # until SIGTERM, SIGINT or worker.stop()

Copy this file: it needs Python 3.11 and its standard library. docs/http-workers.md explains it.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import platform
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

log = logging.getLogger("pgjobs_worker")

CALL_SECONDS = 30  # what a call may take
WAIT_SECONDS = 20  # of them a claim waits on the server for jobs
IDLE_SECONDS = 1  # after which a connection is made anew: the server may have closed it
MOST_JOBS = 100  # in one claim
MOST_ASTRAY = 7  # answers of somebody else, from the start on: the address is wrong
AGAIN_SECONDS = 1  # after which an outcome that was not written is said again


ADVICE = (
    "No pgjobs there. The address is what the project's urls.py gives to "
    'include("django_pgjobs.http.urls"), such as https://shop.example/pgjobs/api/, without v1/.'
)


class Retry(Exception):
    """Raise it in a task: this attempt has failed, begin another one after so many seconds.

    Raised from an exception it is reported as that.
    """

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Discard(Exception):
    """Raise it in a task: it has failed, and another attempt would not help."""


class Cancelled(Exception):
    """What job.check() and job.sleep() raise; let it through."""


class Job:
    """What a task is called with first: what the server tells of it, and what it may ask for."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields  # assignment, job, task, attempt, metadata, ...
        self.said: dict[str, Any] | None = None  # of its progress
        self.told: dict[str, Any] | None = None  # what of it the server knows
        self.outcome: dict[str, Any] | None = None  # what is to be reported, ...
        self.report_at = 0.0  # ... and when
        self.cancelled = ""  # why
        self._event = threading.Event()
        left = fields["seconds_left"]
        self._deadline = time.monotonic() + (float("inf") if left is None else left)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far it is; the next heartbeat, or its end, tells the server."""
        self.said = {"done": done, "total": total, "message": message}

    def check(self) -> None:
        """Raise Cancelled if the job is to end: cancelled, lost, or past its timeout."""
        self.sleep(0)

    def sleep(self, seconds: float) -> None:
        """Sleep; raise Cancelled as soon as check() would."""
        left = self._deadline - time.monotonic()
        if not self._event.wait(min(seconds, left)) and left <= seconds:
            self.cancel("timed_out")
        if self.cancelled:
            raise Cancelled(self.cancelled)

    def cancel(self, reason: str) -> None:
        """Let check() raise."""
        self.cancelled = self.cancelled or reason
        self._event.set()

    def run(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return what is to be reported."""
        try:
            return {"result": function(self, *self.fields["args"], **self.fields["kwargs"])}
        except BaseException as error:
            if isinstance(error, Cancelled) and self.cancelled in ("lost", "silence", "shutdown"):
                return {"release": True}
            told = traceback.TracebackException.from_exception(error)  # also without a text
            text = "".join(told.format())
            wrong: BaseException | None = error
            if isinstance(error, Retry) and told.__cause__ is not None:
                wrong, told = error.__cause__, told.__cause__
            about = {"type": type(wrong).__name__, "message": str(told), "traceback": text}
            if isinstance(error, Retry):
                return {"error": about, "retry": True, "retry_after": error.after}
            return {"error": about, "retry": False if isinstance(error, Discard) else None}


class Refused(Exception):
    """The server answered with a problem, a proxy with an error, or there was no answer (0)."""

    def __init__(self, status: int, said: dict[str, Any]) -> None:
        words = [f"{status or ''} {said.get('title')}", said.get("detail"), said.get("errors")]
        super().__init__(": ".join(str(word) for word in words if word).strip())
        kind = str(said.get("type"))
        self.is_gone = kind == "urn:pgjobs:problem:worker-gone"
        is_ours = kind.startswith("urn:pgjobs:problem:")
        # Else a proxy says so, perhaps of too many requests.
        self.is_of_token = is_ours and status in (401, 403)
        is_clear = is_ours or status == 413
        self.may_pass = status == 429 or status >= 500 or not is_clear
        # An outage of the server is told so by some proxies, too.
        self.is_astray = not is_clear and 0 < status < 500 and status != 429


class Api:
    """A connection to the server, for one thread."""

    def __init__(self, url: str, token: str, seconds: float = CALL_SECONDS) -> None:
        parts = urlsplit(url)
        is_secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
        self._connection, self._good_until = kind(parts.netloc, timeout=seconds), 0.0
        self._url, self._path = url, parts.path.rstrip("/") + "/v1/"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the object in the answer; raise Refused."""
        try:
            text = None if body is None else json.dumps(body, allow_nan=False)
        except Exception as error:
            problem = {"type": "urn:pgjobs:problem:invalid", "title": f"no JSON: {error}"}
            raise Refused(0, problem) from error
        if time.monotonic() > self._good_until:
            self._connection.close()
        try:
            self._connection.request(method, self._path + path, text, self._headers)
            answer = self._connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Refused(0, {"title": f"no answer from {self._url}: {error!r}"}) from error
        self._good_until = time.monotonic() + IDLE_SECONDS
        try:
            said = json.loads(data or "{}")
        except ValueError:
            said = None
        if not isinstance(said, dict):
            said = {}
        elif answer.status < 300:
            return said
        if not said.get("title"):
            said["title"] = f"is no answer of pgjobs. Is {self._url} its address?"
        raise Refused(answer.status, said)


class Worker:
    """Claims jobs of its tasks and runs *slots* of them at a time, each in a thread.

    Once it is stopped, jobs have *grace* seconds to end. *about* may tell the server a `name`, and
    `queues` where they are not those of the tasks.
    """

    def __init__(
        self, url: str, token: str, *, slots: int = 1, grace: float = 30, **about: Any
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError(f"expected https://host/..., got {url!r}")
        self._address = url, token
        name = f"{platform.node() or 'python'}:{os.getpid()}"
        self._about = {"name": name, **about, "slots": slots}
        self._slots, self._grace = slots, grace
        self._functions: dict[str, Callable[..., Any]] = {}
        self._stopping, self._finished = threading.Event(), threading.Event()
        self._news = threading.Condition()  # guards what follows
        self._jobs: dict[str, Job] = {}  # by assignment, from the claim until it is reported
        self._worker, self._interval, self._heard = "", 60.0, 0.0  # its id and its heartbeats
        self._is_refused, self._astray = False, 0

    def task(self, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare what runs the jobs of a task: function(job, *args, **kwargs)."""
        return lambda function: self._functions.setdefault(path, function)

    def stop(self) -> None:
        """Claim no more; run() returns when the jobs have ended."""
        self._stopping.set()

    def _stop_at_signal(self, *_: Any) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # a second one ends the program at once
        self.stop()

    def run(self) -> None:
        """Work until stopped; log it and raise SystemExit if the server does not let it."""
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._stop_at_signal)
        start(self._repeat, self._claim, self._stopping)
        start(self._repeat, self._report, self._finished)
        start(self._repeat, self._beat, self._finished)
        self._stopping.wait()
        self._leave()
        if self._is_refused:
            raise SystemExit(1)

    def _repeat(self, step: Callable[[Api], float], until: threading.Event) -> None:
        """Take a step after the other, those that fail after a longer and longer rest."""
        api, failures = Api(*self._address), 0
        while not until.is_set():
            worker = self._worker
            try:
                rest, failures = step(api), 0
            except Exception as error:
                rest = min(self._interval / 4, 0.1 * 2 ** min(failures, 9)) * random.uniform(0.5, 1)
                failures += 1
                self._judge(error, worker, is_claim=step == self._claim)
            until.wait(rest)

    def _judge(self, error: Exception, worker: str, *, is_claim: bool) -> None:
        if not isinstance(error, Refused):
            error = Refused(0, {"title": f"no answer of pgjobs: {error!r}"})
        with self._news:
            if error.is_gone and self._worker == worker:  # else another thread has found it out
                self._worker = ""
                self._cancel_all("lost")
            elif time.monotonic() > self._heard + 2 * self._interval:
                # Two heartbeats have failed. After a third the server gives the jobs to others.
                self._cancel_all("silence")
            # A refused report or heartbeat is not final: what a job said is to blame.
            is_final = is_claim and not (error.may_pass or error.is_gone)
            if is_claim and not self._heard:  # it has never registered
                self._astray = self._astray + 1 if error.is_astray else 0
            is_lost = self._astray >= MOST_ASTRAY
            self._is_refused |= is_final or error.is_of_token or is_lost
            self._news.notify_all()
        log.log(logging.ERROR if self._is_refused else logging.WARNING, "%s", error)
        if is_lost:
            log.error(ADVICE)
        if self._is_refused:
            self.stop()

    def _cancel_all(self, reason: str) -> None:
        for job in self._jobs.values():
            job.cancel(reason)

    def _claim(self, api: Api) -> float:
        """Take jobs when there is room, and return for how long to rest."""
        with self._news:
            if not self._news.wait_for(lambda: self._room() > 0, 1):
                return 0
            # Running jobs that it does not name are given again: that answer was lost.
            room, held = self._room(), list(self._jobs)
        worker = self._worker or self._register(api)
        body = {"max_jobs": min(MOST_JOBS, room), "wait": WAIT_SECONDS, "held": held}
        answer = api.call("POST", f"workers/{worker}/claim", body)
        with self._news:
            for fields in answer["assignments"]:
                if fields["assignment"] not in self._jobs and not self._stopping.is_set():
                    job = Job(fields)
                    start(self._run, job)  # where there is room for no thread it is given again
                    self._jobs[fields["assignment"]] = job
        return float(answer.get("retry_after") or 0)

    def _room(self) -> int:
        """Return for how many jobs there are slots. What is only to be said again takes none."""
        again = sum(job.report_at > 0 for job in self._jobs.values())
        return self._slots - len(self._jobs) + min(again, MOST_JOBS)

    def _register(self, api: Api) -> str:
        answer = api.call("POST", "workers", {**self._about, "tasks": sorted(self._functions)})
        worker = str(answer["worker"])
        counts = self._slots, len(self._functions)
        log.info("Registered as worker %s: slots=%d tasks=%d", worker, *counts)
        with self._news:
            self._interval, self._heard = answer["heartbeat_seconds"], time.monotonic()
            self._worker = worker
            self._news.notify_all()
        return worker

    def _run(self, job: Job) -> None:
        log.debug("Job %s begins: %s", job.fields["job"], job.fields["task"])
        outcome = job.run(self._functions[job.fields["task"]])
        log.debug("Job %s ends", job.fields["job"])
        with self._news:
            job.outcome = {"assignment": job.fields["assignment"], **outcome}
            if job.said is not job.told:
                job.outcome["progress"] = job.said
            self._news.notify_all()

    def _report(self, api: Api) -> float:
        """Tell the server of jobs that have ended."""
        with self._news:
            self._news.wait_for(self._outcomes, 1)
            outcomes = self._outcomes()
        said = self._send(api, outcomes) if outcomes else []
        unwritten = {each["assignment"] for each in said if each["status"] == "later"}
        with self._news:
            for name in {each["assignment"] for each in outcomes} - unwritten:
                del self._jobs[name]
            for name in unwritten:
                self._jobs[name].report_at = time.monotonic() + AGAIN_SECONDS
            self._news.notify_all()
        return 0

    def _outcomes(self) -> list[dict[str, Any]]:
        now, jobs = time.monotonic(), self._jobs.values()
        return [job.outcome for job in jobs if job.outcome is not None and job.report_at <= now]

    def _send(self, api: Api, outcomes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        try:
            return list(api.call("POST", "results", {"results": outcomes})["results"])
        except Refused as error:
            if error.may_pass or error.is_of_token:
                raise
            if len(outcomes) > 1:  # it does not want one of them
                return [said for each in outcomes for said in self._send(api, [each])]
            [outcome] = outcomes
            if outcome.pop("progress", None):
                log.warning("What a job says at its end is refused: %s", error)
                return self._send(api, [outcome])  # without it
            if outcome.get("error", {}).get("type") == "Refused":
                log.error("The outcome of a job is refused: %s", error)
                return []
            about = {"type": "Refused", "message": str(error)}
            failure = {"error": about, "retry": outcome.get("retry", False)}
            return self._send(api, [{"assignment": outcome["assignment"], **failure}])

    def _beat(self, api: Api) -> float:
        """Tell the server what runs, hear what is to end, and return for how long to rest."""
        with self._news:
            if not self._news.wait_for(lambda: self._worker, 1):
                return 0
            worker, jobs = self._worker, dict(self._jobs)
        progress = {name: job.said for name, job in jobs.items() if job.said is not job.told}
        body = {"assignments": list(jobs), "progress": progress}
        path = f"workers/{worker}/heartbeat"
        try:
            answer = api.call("POST", path, body)
        except Refused as error:
            if not progress or error.may_pass:
                raise
            # What a job says, again and again, may be wrong; the jobs are worked on all the same.
            log.warning("What jobs say of their progress is refused: %s", error)
            answer = api.call("POST", path, {**body, "progress": {}})
        self._heard = time.monotonic()
        for name, said in progress.items():
            jobs[name].told = said
        for each in answer["cancel"]:
            if each["assignment"] in jobs:
                jobs[each["assignment"]].cancel(each["reason"])
        if answer["stop"]:
            self.stop()
        return self._interval

    def _leave(self) -> None:
        """Let jobs end, report, and say goodbye: what is left goes to others at once."""
        grace = 0 if self._is_refused else self._grace
        log.info("Stopping: %d jobs have %s s to end", len(self._jobs), grace)
        with self._news:
            self._news.wait_for(lambda: self._is_refused or self._have_ended(), grace)
            if not self._have_ended():
                self._cancel_all("shutdown")
                self._news.wait_for(self._have_ended, 5)
        self._finished.set()
        try:
            if self._worker:
                Api(*self._address, seconds=5).call("DELETE", f"workers/{self._worker}")
        except Refused as error:
            log.warning("No goodbye: %s", error)
        log.info("Stopped")

    def _have_ended(self) -> bool:
        # With a token that is of no use nothing can be reported.
        return all(self._is_refused and job.outcome is not None for job in self._jobs.values())


def start(run: Callable[..., Any], *arguments: Any) -> None:
    """Run something in a thread that ends with the program."""
    threading.Thread(target=run, args=arguments, daemon=True).start()
