"""What the service's log tells, and what it never does."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import text

from daskscope_service.db.engine import writing
from daskscope_service.server import logs
from daskscope_service.server.logs import BackgroundHandler, JsonFormatter, TextFormatter
from tests.patience import PATIENCE, wait_until
from tests.service.beats import make_beat, make_computation, post
from tests.service_process import ServiceProcess

PROXIED: dict[str, Any] = {
    "log_format": "json",
    "trusted_proxies": ("192.0.2.0/24", "127.0.0.1"),
    "public_url": "https://monitor.example",
}


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One that believes a proxy on this machine, for all tests that leave it as it was."""
    with ServiceProcess(tmp_path_factory.mktemp("proxied"), **PROXIED) as service:
        yield service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path, **PROXIED) as service:
        yield service


#: Bytes of the smallest pipe.
SMALL = 4096


class UnreadService(ServiceProcess):
    """One whose output nobody reads before :meth:`read`, in a pipe that is soon full."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, log_format="json")
        self._is_read = threading.Event()

    def read(self) -> None:
        self._is_read.set()

    def _read_output(self) -> None:
        assert self._process is not None
        fcntl.fcntl(self._process.stdout.fileno(), fcntl.F_SETPIPE_SZ, SMALL)
        self._is_read.wait()
        super()._read_output()


def line_of(service: ServiceProcess, answer: requests.Response) -> dict[str, Any]:
    """Return the access line of a request."""
    line = re.compile(rf'^{{.*\.access".*"{answer.headers["X-Request-ID"]}".*}}$', re.MULTILINE)
    service.wait_for(line)
    (found,) = line.findall(service.output)
    told: dict[str, Any] = json.loads(found)
    return told


def test_each_request_has_a_line_with_its_route_and_token(proxied: ServiceProcess) -> None:
    service = proxied
    token = service.token()
    answer = post(service.url, token, make_beat())
    line = line_of(service, answer)
    assert line["message"] == "POST /api/v1/heartbeats"
    assert line["level"] == "info"
    assert line["status"] == 200
    assert line["milliseconds"] > 0
    assert line["client"] == "127.0.0.1"
    assert line["token"] == token.split("_")[1]
    assert line["time"].endswith("Z")
    assert "T" in line["time"]
    nobody = line_of(service, requests.get(f"{service.url}/nothing/here", timeout=30))
    assert nobody["message"] == "GET none"
    assert "token" not in nobody


def test_no_secret_and_nothing_of_a_body_is_in_the_log(service: ServiceProcess) -> None:
    token = service.token()
    wrong = f"{token[:-1]}{'0' if token[-1] != '0' else '1'}"
    beat = make_beat(computations=(make_computation(user="body-of-ada"),))
    host = {"Host": "monitor.example"}
    answers = [
        post(service.url, token, beat),
        post(service.url, wrong, beat),
        post(service.url, token, b'{"body-of-ada": '),
        requests.get(
            service.sign_in_link.replace("https://monitor.example", service.url),
            headers=host,
            timeout=30,
        ),
        requests.get(f"{service.url}/api/v1/clusters?secret-question={token}", timeout=30),
        requests.get(f"{service.url}/{token}", headers=host, timeout=30),
    ]
    with writing(service.engine) as connection:
        connection.execute(text("ALTER TABLE computation RENAME TO hidden"))
    answers.append(post(service.url, token, beat))
    headers = {"Authorization": f"Bearer {token}"}
    asked = f"{service.url}/api/v1/computations?user=body-of-ada"
    answers.append(requests.get(asked, headers=headers, timeout=30))
    assert [answer.status_code for answer in answers] == [200, 401, 400, 200, 401, 404, 503, 500]
    for answer in answers:
        line_of(service, answer)
    log = "".join(line for line in service.output.splitlines() if line.startswith("{"))
    assert "Traceback" in log
    secret = token.split("_")[2]
    code = service.sign_in_link.partition("code=")[2]
    for text_ in (secret[:-1], code, "body-of-ada", "secret-question"):
        assert text_ not in log


def test_an_unexpected_error_is_logged_with_the_id_that_its_answer_has(
    service: ServiceProcess,
) -> None:
    with writing(service.engine) as connection:
        connection.execute(text("ALTER TABLE cluster RENAME TO hidden"))
    headers = {"Authorization": f"Bearer {service.token()}"}
    answer = requests.get(f"{service.url}/api/v1/clusters", headers=headers, timeout=30)
    assert answer.status_code == 500
    assert answer.json()["request_id"] == answer.headers["X-Request-ID"]
    line_of(service, answer)
    (line,) = [
        json.loads(line)
        for line in service.output.splitlines()
        if line.startswith("{") and '"exception"' in line
    ]
    assert line["request_id"] == answer.headers["X-Request-ID"]
    assert line["level"] == "error"
    assert line["exception"].startswith("Traceback")


def test_a_proxy_tells_who_asks_and_the_requests_id(proxied: ServiceProcess) -> None:
    service = proxied
    told = {
        "X-Request-ID": "7f3a-from:proxy_1.2",
        "X-Forwarded-For": "6.6.6.6, 203.0.113.9, 192.0.2.4",
    }
    answer = requests.get(f"{service.url}/api/v1/clusters", headers=told, timeout=30)
    assert answer.headers["X-Request-ID"] == told["X-Request-ID"]
    assert answer.json()["request_id"] == told["X-Request-ID"]
    assert line_of(service, answer)["client"] == "203.0.113.9"


@pytest.mark.parametrize("told", ["", "x" * 101, "a b", "<script>", '"', "ä"])
def test_an_id_that_is_not_sane_is_replaced(proxied: ServiceProcess, told: str) -> None:
    service = proxied
    answer = requests.get(
        f"{service.url}/healthz", headers={"X-Request-ID": told.encode()}, timeout=30
    )
    assert answer.headers["X-Request-ID"] != told
    assert len(answer.headers["X-Request-ID"]) == 16


def test_who_is_no_named_proxy_is_not_believed(tmp_path: Path) -> None:
    lies = {
        "X-Request-ID": "made-up",
        "X-Forwarded-For": "6.6.6.6",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Proto": "https",
        "Forwarded": "for=6.6.6.6",
    }
    with ServiceProcess(
        tmp_path,
        log_format="json",
        trusted_proxies=("192.0.2.1",),
        public_url="https://monitor.example",
    ) as service:
        answer = requests.get(f"{service.url}/healthz", headers=lies, timeout=30)
        assert answer.headers["X-Request-ID"] != "made-up"
        assert line_of(service, answer)["client"] == "127.0.0.1"
        # A page of evil.example must not pass for one of ours by saying what our host is.
        crossed = requests.post(
            f"{service.url}/sign-out",
            headers=lies | {"Host": "monitor.example", "Origin": "https://evil.example"},
            timeout=30,
        )
        assert crossed.status_code == 403


def test_a_quiet_log_has_no_requests(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, log_level="warning") as service:
        assert requests.get(f"{service.url}/healthz", timeout=30).ok
        service.stop()
        assert "GET" not in service.output


def test_lines_for_people(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as service:
        answer = requests.get(f"{service.url}/nothing", timeout=30)
        request_id = answer.headers["X-Request-ID"]
        service.wait_for(request_id)
        (line,) = [line for line in service.output.splitlines() if request_id in line]
        assert " INFO access: GET none status=404 milliseconds=" in line


def record(message: str, **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord("daskscope_service.x", logging.INFO, "", 0, message, None, None)
    made.fields = fields
    return made


def test_a_line_stays_one_line() -> None:
    nasty = record("a\nb\r\x1b[31m\u2028c", field="d\ne")
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(nasty)
        assert len(line.splitlines()) == 1
        assert "\x1b" not in line
    assert json.loads(JsonFormatter().format(nasty))["message"] == "a\nb\r\x1b[31m\u2028c"


def test_a_traceback_follows_the_line() -> None:
    failed = record("failed")
    try:
        raise ValueError(
            "why\n2026-05-01 12:00:00.000Z INFO access: GET / status=200\u2028\r\x1b[31m"
        )
    except ValueError:
        failed.exc_info = sys.exc_info()
    text = TextFormatter().format(failed)
    first, second, *rest = text.splitlines()
    assert first.endswith("failed")
    assert second == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") for line in rest)  # none looks like a line of the log
    assert "\x1b" not in text


def test_nobody_waits_for_who_reads_the_log(tmp_path: Path) -> None:
    with UnreadService(tmp_path) as service:
        try:
            token = service.token()
            headers = {"Authorization": f"Bearer {token}"}
            with requests.Session() as session:

                def ask(path: str) -> requests.Response:
                    return session.get(f"{service.url}{path}", headers=headers, timeout=PATIENCE)

                # Each kind alone is more than the pipe holds.
                for _ in range(SMALL // 100):
                    assert ask("/healthz").status_code == 200
                    assert ask("/api/v1/clusters").status_code == 200
                    beat = post(service.url, token, make_beat())
                    assert beat.status_code == 200
        finally:
            service.read()
        # It was not lost.
        assert line_of(service, beat)["status"] == 200


def test_lines_beyond_the_room_for_them_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "MOST_WAITING", 20_000)
    unread, log = os.pipe()
    fcntl.fcntl(log, fcntl.F_SETPIPE_SZ, SMALL)
    written: list[str] = []
    with open(unread, encoding="utf-8") as pipe:
        reader = threading.Thread(target=lambda: written.extend(pipe), daemon=True)
        with open(log, "w", encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stderr", file)
            drops: list[int] = []
            handler = BackgroundHandler()
            handler.setFormatter(TextFormatter())
            handler.count_drops(lambda: drops.append(1))
            logger = logging.Logger("daskscope_service.test")
            logger.addHandler(handler)
            for number in range(1_000):
                logger.info("line %d %s", number, "x" * 100)
            assert drops
            reader.start()
            wait_until(lambda: not handler._size, what="room for more")
            logger.info("at last")
            handler.close()
        reader.join()
    assert sum(": line " in line for line in written) == 1_000 - len(drops)
    said = re.findall(r"dropped (\d+) lines of the log", "".join(written))
    assert sum(map(int, said)) == len(drops)
    assert "at last" in written[-1]
