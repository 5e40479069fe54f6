"""However the service ends, under load: what it acknowledged is there afterwards, and once."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import select

from daskscope.codec import encode
from daskscope_service.db import schema
from daskscope_service.server import process
from daskscope_service.settings import Settings
from tests import sqlite_template
from tests.patience import START_PATIENCE, wait_until
from tests.ports import free_port
from tests.postgresql import PostgresServer
from tests.service.beats import make_beat, make_cluster, make_event, post
from tests.service.conftest import NewDatabase, standstill
from tests.service_process import ServiceProcess

SENDERS = 6
SECRET = "a secret to read the metrics with"
WAIT_SECONDS = 60


@pytest.fixture
def service(tmp_path: Path, new_database: NewDatabase) -> Iterator[ServiceProcess]:
    settings: dict[str, Any] = {"log_level": "warning", "metrics_token": SECRET}
    with ServiceProcess(tmp_path, database_url=new_database(), **settings) as service:
        yield service


class Sender:
    """A cluster that reports as the plugin does: a beat until it is acknowledged, then the next."""

    def __init__(self, service: ServiceProcess, token: str) -> None:
        self._url = f"{service.url}/api/v1/heartbeats"
        self._token = token
        self.cluster = make_cluster(f"Scheduler-{uuid.uuid4()}")
        self.acknowledged: list[str] = []
        self.answers: set[int] = set()

    def run(self, ending: threading.Event, *, again: bool) -> None:
        """Send until ``ending``; where ``again`` is false, only until no one answers."""
        with requests.Session() as session:
            session.headers["Authorization"] = f"Bearer {self._token}"
            while not ending.is_set():
                number = len(self.acknowledged) + 1
                event = make_event(id=f"e{number}")
                body = encode(make_beat(self.cluster, number, events=(event,)))
                while not ending.is_set():
                    try:
                        answer = session.post(self._url, data=body, timeout=30)
                    except requests.RequestException:
                        if not again:
                            return
                        time.sleep(0.01)
                        continue
                    self.answers.add(answer.status_code)
                    if answer.status_code == 200:
                        self.acknowledged.append(event.id)
                        break
                    time.sleep(0.01)


@contextmanager
def load(service: ServiceProcess, *, again: bool) -> Iterator[list[Sender]]:
    """Let several clusters report meanwhile."""
    token = service.token()
    senders = [Sender(service, token) for _ in range(SENDERS)]
    ending = threading.Event()
    with ThreadPoolExecutor(SENDERS) as pool:
        running = [pool.submit(sender.run, ending, again=again) for sender in senders]
        try:
            yield senders
        finally:
            ending.set()
        for one in running:
            one.result(WAIT_SECONDS)


def until_more(senders: list[Sender]) -> None:
    """Return once each has had another beat acknowledged."""
    before = [len(sender.acknowledged) for sender in senders]
    wait_until(
        lambda: all(len(s.acknowledged) > n for s, n in zip(senders, before, strict=True)),
        what="another beat of each",
    )


def check_kept(service: ServiceProcess, senders: list[Sender]) -> None:
    with service.engine.connect() as connection:
        for sender in senders:
            stored = select(schema.event.c.id).where(schema.event.c.cluster == sender.cluster.id)
            events = sorted(connection.execute(stored).scalars(), key=lambda id: int(id[1:]))
            assert sender.acknowledged
            # One more may be there: stored, and its answer was lost on the way.
            assert events[: len(sender.acknowledged)] == sender.acknowledged
            assert len(events) <= len(sender.acknowledged) + 1


def test_told_to_stop_under_load_it_loses_nothing(service: ServiceProcess) -> None:
    with load(service, again=False) as senders:
        until_more(senders)
        assert service.stop("TERM") == 0
    assert set().union(*(sender.answers for sender in senders)) <= {200, 429, 503}
    check_kept(service, senders)
    assert "Traceback" not in service.output


@pytest.mark.sqlite
def test_it_ends_also_if_the_system_gives_the_signal_to_another_thread(
    service: ServiceProcess,
) -> None:
    threads = {int(name) for name in os.listdir(f"/proc/{service.pid}/task")} - {service.pid}
    assert threads
    assert ctypes.CDLL(None).tgkill(service.pid, threads.pop(), signal.SIGTERM) == 0
    assert service.stop(None) == 0


def load_as_the_child_does(settings: Settings, to_parent: Connection) -> None:
    """Have the handler of the parent, as a copy of it has, and load the application."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    process._load(settings)
    to_parent.send(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
    to_parent.close()


def test_asked_to_stop_while_it_starts_it_stops(tmp_path: Path) -> None:
    sqlite_template.copy_to(tmp_path)
    ours, its = multiprocessing.Pipe(duplex=False)
    arguments = Settings(data_dir=tmp_path, port=free_port()), its
    child = multiprocessing.get_context("spawn").Process(
        target=load_as_the_child_does, args=arguments
    )
    child.start()
    its.close()
    assert ours.poll(START_PATIENCE)
    assert ours.recv()
    child.terminate()
    child.join(START_PATIENCE)


def test_a_request_under_way_is_answered_though_it_was_told_to_stop(
    service: ServiceProcess,
) -> None:
    token = service.token()
    beat = make_beat()
    assert post(service.url, token, make_beat()).ok
    answer: Future[requests.Response]
    with ThreadPoolExecutor() as pool:
        with standstill(service.engine):  # so it cannot be answered yet
            answer = pool.submit(post, service.url, token, beat)
            until_it_waits(service)
            os.kill(service.pid, signal.SIGTERM)
            until_refused(service.port)
            assert not answer.done()
        assert answer.result(WAIT_SECONDS).status_code == 200
    # Told a second time, just before its end, it may end by that signal.
    assert service.stop(None) == 0
    with service.engine.connect() as connection:
        stored = select(schema.cluster.c.id).where(schema.cluster.c.id == beat.cluster.id)
        assert connection.execute(stored).scalar() == beat.cluster.id


@pytest.mark.slow
def test_killed_at_random_moments_it_loses_nothing_and_keeps_nothing_twice(
    service: ServiceProcess, pytestconfig: pytest.Config
) -> None:
    chance = random.Random(5)
    with load(service, again=True) as senders:
        for _ in range(pytestconfig.getoption("kills")):
            until_more(senders)
            time.sleep(chance.random() * 0.05)  # somewhere in a beat
            kill(service)
            service.start()
        until_more(senders)
    check_kept(service, senders)


def test_killed_while_it_starts_it_leaves_no_process_behind(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "daskscope_service.cli",
        "serve",
        "--data-dir",
        str(tmp_path),
    ]
    service = subprocess.Popen(
        [*command, "--port", str(free_port())], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with service:
        while not (serving := children(service.pid)):
            assert service.poll() is None
            time.sleep(0.001)
        service.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in serving), what="its end")


@pytest.mark.slow
def test_with_the_database_server_killed_at_random_moments_it_loses_nothing_either(
    tmp_path: Path, postgresql_binaries: Path, pytestconfig: pytest.Config
) -> None:
    chance = random.Random(7)
    with PostgresServer(postgresql_binaries) as server:
        url = server.url(server.create())
        with ServiceProcess(tmp_path, database_url=url, log_level="error") as service:
            with load(service, again=True) as senders:
                for _ in range(pytestconfig.getoption("kills")):
                    until_more(senders)
                    time.sleep(chance.random() * 0.05)
                    both = chance.random() < 0.3
                    if both:
                        kill(service)
                    server.crash()
                    time.sleep(chance.random() * 0.2)  # meanwhile no one answers the service
                    server.start()
                    if both:
                        service.start()
                until_more(senders)
            assert set().union(*(sender.answers for sender in senders)) <= {200, 429, 503}
            check_kept(service, senders)


def kill(service: ServiceProcess) -> None:
    for pid in (*children(service.pid), service.pid):
        os.kill(pid, signal.SIGKILL)
    service.stop("KILL")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until_it_waits(service: ServiceProcess) -> None:
    """Return once a request has come to the writer."""
    headers = {"Authorization": f"Bearer {SECRET}"}

    def waits() -> bool:
        answer = requests.get(f"{service.url}/metrics", headers=headers, timeout=30)
        return "daskscope_service_queue_length 1.0" in answer.text

    wait_until(waits, what="the request")


def until_refused(port: int) -> None:
    def refused() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except ConnectionError:
            return True
        return False

    wait_until(refused, what="the port's end")
