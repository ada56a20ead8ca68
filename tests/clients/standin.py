"""A stand-in for the server: the contract of the routes for workers, in memory."""

from __future__ import annotations

import itertools
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

TOKEN = "pgj_of-the-stand-in"


class Gone(Exception):
    """404 worker-gone."""


class StandIn:
    """Jobs in memory, and a server for them."""

    def __init__(self) -> None:
        self.heartbeat_seconds = 1.0
        self.jobs: dict[str, SimpleNamespace] = {}
        self.workers: dict[str, SimpleNamespace] = {}
        self._ids = itertools.count(1)
        self._news = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self._server.daemon_threads = True
        self.backend = f"127.0.0.1:{self._server.server_port}"
        self.token = TOKEN
        threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # What tests do.

    def enqueue(self, task: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> str:
        with self._news:
            job = SimpleNamespace(
                id=str(next(self._ids)), task=task, args=list(args), kwargs=kwargs,
                status="ready", attempts=0, assignment=None, worker=None, due=0.0, result=None,
                errors=[], progress=None, timeout=timeout, cancel=None,
            )  # fmt: skip
            self.jobs[job.id] = job
            self._news.notify_all()
        return job.id

    def row(self, job: str) -> SimpleNamespace:
        return self.jobs[job]

    def cancel(self, job: str) -> None:
        self.jobs[job].cancel = "cancelled"

    def forget_workers(self) -> None:
        """Give up all workers: their jobs go to others."""
        with self._news:
            self.workers.clear()
            for job in self.jobs.values():
                self._give_back(job)
            self._news.notify_all()

    def _give_back(self, job: SimpleNamespace) -> None:
        if job.status == "running":
            job.status, job.assignment, job.worker = "ready", None, None

    # What clients ask for.

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        match [method, *path.split("/v1/")[1].split("/")]:
            case ["POST", "workers"]:
                worker = str(next(self._ids))
                self.workers[worker] = SimpleNamespace(tasks=body["tasks"])
                return 201, {
                    "worker": worker, "heartbeat_seconds": self.heartbeat_seconds,
                    "lease_seconds": 3 * self.heartbeat_seconds,
                }  # fmt: skip
            case ["POST", "workers", worker, "claim"]:
                return 200, {"assignments": self._claim(worker, body)}
            case ["POST", "workers", worker, "heartbeat"]:
                return 200, self._heartbeat(worker, body)
            case ["DELETE", "workers", worker]:
                self.workers.pop(worker)
                with self._news:
                    for job in self.jobs.values():
                        if job.worker == worker:
                            self._give_back(job)
                return 204, None
            case ["POST", "results"]:
                with self._news:
                    return 200, {"results": [self._finish(item) for item in body["results"]]}
        return 404, {}

    def _claim(self, worker: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        until = time.monotonic() + body["wait"]
        with self._news:
            while True:
                if worker not in self.workers:
                    raise Gone
                found = [
                    job for job in self.jobs.values()
                    if job.status == "running" and job.worker == worker
                    and job.assignment not in body.get("held", [job.assignment])
                ]  # fmt: skip
                for job in self.jobs.values():
                    if len(found) < body["max_jobs"] and self._may_take(job, worker):
                        job.status, job.worker = "running", worker
                        job.attempts += 1
                        job.assignment = secrets.token_hex(8)
                        found.append(job)
                if found or time.monotonic() >= until:
                    return [self._told(job) for job in found]
                self._news.wait(0.1)

    def _may_take(self, job: SimpleNamespace, worker: str) -> bool:
        return (
            job.status == "ready"
            and job.due <= time.monotonic()
            and job.task in self.workers[worker].tasks
        )

    def _told(self, job: SimpleNamespace) -> dict[str, Any]:
        return {
            "assignment": job.assignment, "job": job.id, "task": job.task, "queue": "default",
            "attempt": job.attempts, "max_attempts": 5, "args": job.args, "kwargs": job.kwargs,
            "priority": 0, "timeout": job.timeout, "seconds_left": job.timeout, "batch": None,
            "correlation_id": None, "metadata": {},
        }  # fmt: skip

    def _heartbeat(self, worker: str, body: dict[str, Any]) -> dict[str, Any]:
        if worker not in self.workers:
            raise Gone
        cancel = []
        for job in self.jobs.values():
            if job.assignment in body["assignments"] and job.status == "running":
                job.progress = body.get("progress", {}).get(job.assignment, job.progress)
                if job.cancel:
                    cancel.append({"assignment": job.assignment, "reason": job.cancel})
        return {
            "cancel": cancel, "lease_seconds": 3 * self.heartbeat_seconds, "quiet": False,
            "stop": False,
        }  # fmt: skip

    def _finish(self, item: dict[str, Any]) -> dict[str, Any]:
        name = item["assignment"]
        job = next((job for job in self.jobs.values() if job.assignment == name), None)
        if job is None or job.status != "running":
            return {"assignment": name, "status": "lost"}
        if item.get("release"):
            self._give_back(job)
            job.attempts -= 1
            status = "released"
        elif "error" in item:
            job.errors.append(item["error"])
            final = item.get("retry") is False or job.attempts >= 5 or job.cancel
            job.status = ("cancelled" if job.cancel else "failed") if final else "ready"
            job.due = time.monotonic() + item.get("retry_after", 0.01)
            status = "failed" if final else "retry"
        else:
            job.status, job.result, status = "successful", item.get("result"), "stored"
        job.assignment = None
        self._news.notify_all()
        return {"assignment": name, "status": status}


def handler_of(server: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, answer = 401, {"title": "No such token", "type": "urn:pgjobs:problem:token"}
            elif len(body) > 100_000:
                status, answer = 413, {"title": "Too large", "type": "urn:pgjobs:problem:large"}
            else:
                try:
                    status, answer = server.answer(
                        self.command, self.path, json.loads(body or b"{}")
                    )
                except Gone:
                    status = 404
                    answer = {"type": "urn:pgjobs:problem:worker-gone", "title": "Gone"}
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None: ...

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                pass

    return Handler
