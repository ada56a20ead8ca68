"""Callbacks: a program on the web hears of the end of jobs and workflows, and nobody else does."""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_pgjobs import cancel, task, workflow
from django_pgjobs.http import destinations, posting
from django_pgjobs.http.calling import call_back, call_back_after, send_call_back
from django_pgjobs.http.signatures import verify
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from tests.http.receivers import SECRET, Receiver, misbehaving, receiving
from tests.tasks import add, fail_once

pytestmark = pytest.mark.django_db(transaction=True)


def allow(settings: Any, url: str, **others: Any) -> None:
    """Let callbacks go to a server of the test."""
    given = {
        "CALLBACK_HOSTS": [url],
        "CALLBACK_SECRET": SECRET,
        "CALLBACK_ALLOW_PRIVATE": True,
    }
    settings.PGJOBS = given | others


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    """A server that callbacks may go to."""
    with receiving() as found:
        allow(settings, found.url)
        yield found


def call_of() -> Job:
    """Return the job of the only callback."""
    return Job.objects.get(task_path=send_call_back.module_path)


def test_the_end_of_a_workflow_is_told(receiver: Receiver) -> None:
    """S2.1, S2.28: who asked for the work hears of its end."""
    with workflow("sums", metadata={"month": 5}) as flow:
        flow.add(add.s(1, 2), add.s(3, 4))
        flow.on_complete(call_back(f"{receiver.url}/hook?a=b"))
    run_jobs()
    [(path, headers, body)] = receiver.got
    assert (path, headers["Content-Type"]) == ("/hook?a=b", "application/json")
    told = verify(body, dict(headers), SECRET)
    assert (told["id"], told["event"]) == (str(call_of().pk), "batch.complete")
    batch = told["batch"]
    assert (batch["id"], batch["workflow"]) == (str(flow.pk), str(flow.pk))
    assert (batch["name"], batch["state"], batch["metadata"]) == (
        "sums",
        "successful",
        {"month": 5},
    )
    assert batch["counts"] == {
        "jobs": 2,
        "successful": 2,
        "failed": 0,
        "cancelled": 0,
        "unfinished": 0,
    }
    assert call_of().result == 204


def test_a_workflow_that_fails_tells_who_wants_to_know(receiver: Receiver) -> None:
    with workflow("sums") as flow:
        flow.add(fail_once.s())
        flow.on_failure(call_back(f"{receiver.url}/failed"))
        flow.on_success(call_back(f"{receiver.url}/succeeded"))
    run_jobs()
    assert [path for path, _, _ in receiver.got] == ["/failed"]
    assert verify(receiver.body, dict(receiver.headers), SECRET)["batch"]["state"] == "failed"


def test_a_job_that_fails_is_told(receiver: Receiver) -> None:
    """S2.1: in the transaction in which it fails."""
    job = fail_once.using(on_failure=call_back(receiver.url, queue_name="hooks")).enqueue("no luck")
    run_jobs()
    told = verify(receiver.body, dict(receiver.headers), SECRET)
    assert told["event"] == "job.complete"
    assert (told["job"]["id"], told["job"]["status"]) == (job.id, "failed")
    assert told["job"]["error"] == {"type": "tests.tasks.Mishap", "message": "no luck"}
    assert call_of().queue_name == "hooks"


@pytest.mark.parametrize(
    ("on", "paths"),
    [("complete", ["good", "bad"]), ("success", ["good"]), ("failure", ["bad"])],
)
def test_the_end_of_a_job_is_told(receiver: Receiver, on: Any, paths: list[str]) -> None:
    call_back_after(add.enqueue(1, 2), f"{receiver.url}/good", on=on)
    call_back_after(fail_once.enqueue(), f"{receiver.url}/bad", on=on)
    run_jobs()
    assert sorted(path for path, _, _ in receiver.got) == sorted(f"/{path}" for path in paths)


def test_a_cancel_is_told_as_a_failure(receiver: Receiver) -> None:
    job = add.enqueue(1, 2)
    call_back_after(job, receiver.url, on="failure")
    assert cancel(job.id)
    run_jobs()
    told = verify(receiver.body, dict(receiver.headers), SECRET)
    assert told["job"]["status"] == "cancelled"


def test_what_is_gone_is_told_as_deleted(receiver: Receiver) -> None:
    with workflow("sums") as flow:
        flow.on_complete(call_back(receiver.url))
    Batch.objects.get(pk=flow.pk).delete()
    run_jobs()
    told = verify(receiver.body, dict(receiver.headers), SECRET)
    assert told["batch"] == {"id": str(flow.pk), "state": "deleted"}


def test_it_is_called_again_until_it_says_yes(receiver: Receiver) -> None:
    """Each time with the same id, by which a receiver knows what it had before."""
    receiver.answers = [(500, {}), (404, {}), (302, {"Location": "http://127.0.0.1:1/"})]
    call_back_after(add.enqueue(1, 2), receiver.url)
    run_jobs()
    told = [verify(body, dict(headers), SECRET) for _, headers, body in receiver.got]
    assert [each["id"] for each in told] == [str(call_of().pk)] * 4
    assert [error["message"].rpartition(" answered ")[2] for error in call_of().errors] == [
        "500.",
        "404.",
        "302; redirects are not followed.",
    ]


def test_it_is_not_called_again_where_nobody_wants_to_hear(receiver: Receiver) -> None:
    receiver.answers = [(410, {})]
    call_back_after(add.enqueue(1, 2), receiver.url)
    run_jobs()
    assert (len(receiver.got), call_of().status) == (1, "failed")


@pytest.mark.parametrize("status", [429, 503])
def test_a_receiver_says_when_to_come_again(receiver: Receiver, status: int) -> None:
    """Up to an hour; the first delay of the backoff is two seconds."""
    receiver.answers = [(status, {"Retry-After": "999999"})]
    send_call_back.enqueue(1, "", url=receiver.url)
    run_jobs(at_once=False)
    job = call_of()
    assert (job.status, len(receiver.got)) == ("ready", 1)
    assert timedelta(minutes=59) < job.due_at - job.enqueued_at < timedelta(minutes=61)


def test_what_is_no_number_of_seconds_is_passed_over(receiver: Receiver) -> None:
    receiver.answers = [(503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})]
    send_call_back.enqueue(1, "", url=receiver.url)
    run_jobs(at_once=False)
    job = call_of()
    assert job.due_at - job.enqueued_at < timedelta(minutes=1)


def test_a_receiver_that_never_says_yes_is_left(receiver: Receiver) -> None:
    receiver.answers = [(500, {})] * 2
    call_back_after(add.enqueue(1, 2), receiver.url, max_attempts=2)
    run_jobs()
    assert (len(receiver.got), call_of().status) == (2, "failed")


def test_only_hosts_of_the_setting_are_taken(settings: Any) -> None:
    allow(settings, "hooks.example.com")
    with pytest.raises(ValueError, match="CALLBACK_HOSTS"):
        call_back("https://elsewhere.example.com/")
    with pytest.raises(ValueError, match="CALLBACK_HOSTS"):
        call_back_after(add.enqueue(1, 2), "http://hooks.example.com/")


def test_without_a_secret_nobody_is_called(settings: Any) -> None:
    settings.PGJOBS = {"CALLBACK_HOSTS": ["hooks.example.com"]}
    with pytest.raises(ImproperlyConfigured, match="CALLBACK_SECRET"):
        call_back("https://hooks.example.com/")


def test_an_unknown_event_is_refused(receiver: Receiver) -> None:
    with pytest.raises(ValueError, match="expected on to be one of"):
        call_back_after(add.enqueue(1, 2), receiver.url, on="begin")  # type: ignore[arg-type]


def test_a_host_that_left_the_setting_is_not_called(receiver: Receiver, settings: Any) -> None:
    call_back_after(add.enqueue(1, 2), receiver.url)
    allow(settings, "hooks.example.com")
    run_jobs()
    assert (receiver.got, call_of().status) == ([], "failed")
    assert "CALLBACK_HOSTS" in call_of().errors[-1]["message"]


def test_a_private_address_is_not_called(receiver: Receiver, settings: Any) -> None:
    allow(settings, receiver.url, CALLBACK_ALLOW_PRIVATE=False)
    call_back_after(add.enqueue(1, 2), receiver.url, max_attempts=1)
    run_jobs()
    assert (receiver.got, call_of().status) == ([], "failed")
    message = call_of().errors[-1]["message"]
    assert "leads to 127.0.0.1" in message and "unless PGJOBS['CALLBACK_ALLOW_PRIVATE']" in message


def test_the_address_that_was_checked_is_connected_to(
    receiver: Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is looked up once: its second answer might be another one."""
    port = receiver.url.rpartition(":")[2]
    asked = []

    def look_up(host: str, port: int, **options: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(destinations.socket, "getaddrinfo", look_up)
    url = f"http://hooks.example.com:{port}"
    allow(settings, url)
    send_call_back.using(max_attempts=1).enqueue(1, url=url)
    # The database's own host may be a name, too: of that Python is not asked.
    run_jobs()
    assert receiver.headers["Host"] == f"hooks.example.com:{port}"
    assert asked == ["hooks.example.com"]


def drip(connection: socket.socket) -> None:
    """Answer a byte at a time, and never to the end."""
    while True:
        connection.sendall(b"H")
        time.sleep(0.02)


def pour(head: bytes, text: bytes) -> Any:
    """Return what answers without an end."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(text)

    return behave


def test_bytes_that_come_one_by_one_do_not_put_the_deadline_off() -> None:
    ours, theirs = socket.socketpair()
    taken: list[int] = []

    def take_one_by_one() -> None:
        reader = posting.TimedReader(ours, time.monotonic() + 0.2)
        for _ in range(1_000):
            theirs.sendall(b"H")
            taken.append(reader.readinto(bytearray(1)))
            time.sleep(0.01)

    with ours, theirs, pytest.raises(TimeoutError):
        take_one_by_one()
    assert 0 < len(taken) < 1_000


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(lambda connection: None, id="closes"),
        pytest.param(lambda connection: connection.sendall(b"SSH-2.0-x\r\n\r\n"), id="babbles"),
        pytest.param(lambda connection: connection.recv(1), id="silent"),
        pytest.param(drip, id="drips"),
        pytest.param(pour(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), id="headers"),
        pytest.param(pour(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 1_000), id="long header"),
        pytest.param(pour(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), id="continues"),
    ],
)
def test_a_hostile_receiver_fails_in_bounded_time(
    behave: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "SECONDS", 0.3)
    with misbehaving(behave) as url:
        allow(settings, url)
        call_back_after(add.enqueue(1, 2), url, max_attempts=1, timeout=30)
        run_jobs()
    job = call_of()
    assert job.status == "failed"
    # The worker had not to end it.
    assert not job.errors[-1]["exception_class"].endswith("JobTimeout")


def test_an_answer_without_an_end_is_read_for_a_while(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with misbehaving(pour(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 10_000)) as url:
        allow(settings, url)
        call_back_after(add.enqueue(1, 2), url)
        run_jobs()
    assert (call_of().status, call_of().result) == ("successful", 200)


def test_a_chunk_of_a_negative_size_is_not_read_to_its_end(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes it for: all that there is."""
    received = []
    receive = posting.TimedReader.readinto

    def readinto(self: posting.TimedReader, buffer: Any) -> int:
        received.append(receive(self, buffer))
        return received[-1]

    monkeypatch.setattr(posting.TimedReader, "readinto", readinto)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"
    with misbehaving(pour(head, b"x" * 100_000)) as url:
        allow(settings, url)
        call_back_after(add.enqueue(1, 2), url)
        run_jobs()
    assert call_of().status == "successful"
    assert sum(received) <= posting.MAX_ANSWER_BYTES


def test_a_closed_port_is_tried_again(settings: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    allow(settings, url)
    call_back_after(add.enqueue(1, 2), url, max_attempts=2)
    run_jobs()
    assert [error["exception_class"] for error in call_of().errors] == [
        "builtins.ConnectionRefusedError"
    ] * 2


def test_a_proxy_of_the_environment_is_not_asked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would look the name up by itself."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    call_back_after(add.enqueue(1, 2), receiver.url)
    run_jobs()
    assert len(receiver.got) == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of 127.0.0.1 that nobody has signed."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    names = [
        "-subj",
        "/CN=x",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(path),
        "-out",
        f"{path}.crt",
    ]
    subprocess.run([*command, *names], check=True, capture_output=True)
    with path.open("a") as file:
        file.write(Path(f"{path}.crt").read_text())
    return path


@pytest.mark.slow
def test_a_certificate_has_to_be_good(
    certificate: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    with receiving(server) as receiver:
        allow(settings, receiver.url)
        call_back_after(add.enqueue(1, 2), receiver.url, max_attempts=1)
        run_jobs()
        assert (receiver.got, call_of().status) == ([], "failed")
        assert call_of().errors[-1]["exception_class"] == "ssl.SSLCertVerificationError"
        trusting = ssl.create_default_context(cafile=f"{certificate}.crt")
        monkeypatch.setattr(posting, "ssl_context", lambda: trusting)
        call_of().requeue()
        run_jobs()
        assert len(receiver.got) == 1


@task
def told_of(job_id: int, error: str, *, channel: str) -> None:
    """Take an argument beside what is told."""


def test_a_task_that_is_told_of_a_failure_has_arguments_of_its_own() -> None:
    job = fail_once.using(on_failure=told_of.s(channel="ops")).enqueue()
    run_jobs()
    handler = Job.objects.get(task_path=told_of.module_path)
    assert (handler.args[0], handler.kwargs) == (int(job.id), {"channel": "ops"})
    assert handler.status == "successful"
