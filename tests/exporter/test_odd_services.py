"""``daskscope.list_clusters()`` and the others: whatever answers, and whatever is asked, they end,
with a list or with an error of daskscope's own that says what is wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dask
import numpy as np
import pandas as pd
import pytest

import daskscope
from daskscope import ConfigurationError, ServiceError, ServiceUnreachable, service_client
from daskscope.api import make_report
from tests.exporter.conftest import TOKEN
from tests.ports import free_port

Answer = Callable[[BaseHTTPRequestHandler], None]


def answers(status: int, body: bytes = b"", **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


class OddService:
    """Answers all requests as it is told to, and keeps where they went and what stood above."""

    def __init__(self) -> None:
        self.answer: Answer = answers(200, b'{"items": [], "next": null}')
        self.asked: list[tuple[str, Message]] = []
        self.stopping = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.asked.append((self.path, self.headers))
                service.answer(self)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def since(self) -> datetime | None:
        """Return what the last request asked for."""
        asked = parse_qs(urlsplit(self.asked[-1][0]).query).get("since")
        return None if asked is None else datetime.fromisoformat(asked[0])


@pytest.fixture
def service() -> Iterator[OddService]:
    service = OddService()
    with dask.config.set({"daskscope.endpoint": service.url, "daskscope.token": TOKEN}):
        yield service
    service.stop()


# --- answers --------------------------------------------------------------------------------------

DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "body",
    [
        b'{"items": [], "next": "x"}',
        b'{"items": [{"id": "1"}], "next": "x"}',
        b'{"items": [], "next": 7}',
        b'{"items": null}',
        b'{"items": "abc"}',
        b'{"items": [1, 2]}',
        b'{"items": [{"started_at": "soon"}]}',
        b"[]",
        b"<html>",
        DEEP,
    ],
    ids=lambda body: body[:40].decode(),
)
def test_an_answer_of_another_shape_is_told_as_one(service: OddService, body: bytes) -> None:
    service.answer = answers(200, body)
    with pytest.raises(ServiceError, match="is not a daskscope service"):
        daskscope.list_clusters()
    assert len(service.asked) <= 2


def test_no_more_is_returned_than_was_asked_for(service: OddService) -> None:
    service.answer = answers(200, b'{"items": [{"id": "1"}, {"id": "2"}], "next": "x"}')
    assert [row["id"] for row in daskscope.list_clusters(limit=1)] == ["1"]


@pytest.mark.parametrize("status", [400, 500])
def test_a_refusal_that_cannot_be_decoded_is_a_refusal(service: OddService, status: int) -> None:
    service.answer = answers(status, DEEP)
    with pytest.raises(ServiceError) as error:
        daskscope.list_clusters()
    assert error.value.status == status


@pytest.mark.parametrize("with_length", [True, False])
def test_an_answer_that_drips_in_is_given_up(
    service: OddService, monkeypatch: pytest.MonkeyPatch, with_length: bool
) -> None:
    monkeypatch.setattr(service_client, "OVERDUE", 0.3)

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if with_length:
            handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        try:
            while not service.stopping.wait(0.05):
                handler.wfile.write(b" ")
        except OSError:
            pass

    service.answer = drip
    with pytest.raises(ServiceUnreachable, match="no answer in time"):
        daskscope.list_clusters()


def test_an_answer_without_end_is_given_up(
    service: OddService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_client, "MAX_ANSWER", 1 << 20)
    service.answer = answers(200, b" " * (2 << 20))
    with pytest.raises(ServiceUnreachable, match="cannot be read"):
        daskscope.list_clusters()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize(
    "ask",
    [daskscope.list_clusters, lambda: daskscope.close("c"), lambda: make_report("c")],
    ids=["list", "close", "report"],
)
def test_nothing_is_sent_elsewhere(
    service: OddService, ask: Callable[[], Any], status: int
) -> None:
    elsewhere = OddService()
    try:
        service.answer = answers(status, Location=f"{elsewhere.url}/api/v1/commands")
        with pytest.raises(
            ServiceError, match=r"another address; set daskscope\.endpoint"
        ) as error:
            ask()
        assert error.value.status == status
        assert not elsewhere.asked
    finally:
        elsewhere.stop()


# --- no answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["dsk_…", "dsk_\nx"])
def test_a_token_that_none_can_be_is_told_as_one(service: OddService, token: str) -> None:
    with dask.config.set({"daskscope.token": token}):
        with pytest.raises(ConfigurationError, match=r"check daskscope\.token") as error:
            daskscope.list_clusters()
    assert token not in str(error.value)
    assert not service.asked


def test_an_authority_that_is_not_there_is_told_as_one(
    service: OddService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such.pem")
    with dask.config.set({"daskscope.endpoint": "https://localhost:9"}):
        with pytest.raises(ConfigurationError, match=r"no/such\.pem; check REQUESTS_CA_BUNDLE"):
            daskscope.list_clusters()


def test_no_list_of_this_machine_is_asked_for_through_a_proxy(
    service: OddService, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = OddService()
    try:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert daskscope.list_clusters() == []
        assert not proxy.asked

        proxy.answer = answers(403)
        where = urlsplit(proxy.url).netloc
        monkeypatch.setenv("HTTP_PROXY", f"http://ada:secret@{where}")
        with dask.config.set({"daskscope.endpoint": "http://service.invalid:8690"}):
            with pytest.raises(daskscope.AccessDenied, match=f"or the proxy {where}") as error:
                daskscope.list_clusters()
        assert "secret" not in str(error.value)
    finally:
        proxy.stop()


def test_a_proxy_that_is_down_is_told_as_one(
    service: OddService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with dask.config.set({"daskscope.endpoint": "http://service.invalid:8690"}):
        with pytest.raises(ServiceUnreachable, match="check HTTP_PROXY"):
            daskscope.list_clusters()


# --- what is asked --------------------------------------------------------------------------------

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 1, 31).astimezone()


@pytest.mark.parametrize(
    ("since", "moment"),
    [
        (date(2026, 1, 31), MIDNIGHT),
        ("2026-01-31", MIDNIGHT),
        ("20260131", MIDNIGHT),
        (np.datetime64("2026-01-31"), MIDNIGHT),
        (np.datetime64("2026-01-31T00:00:00.000000000"), MIDNIGHT),
        (pd.Timestamp("2026-01-31"), MIDNIGHT),
        (pd.Timestamp("2026-01-31T12:00:00.000000001Z"), NOON),
        (NOON, NOON),
        (datetime.min, datetime.min.replace(tzinfo=UTC)),
        ("0001-01-01", datetime.min.replace(tzinfo=UTC)),
        (None, None),
        (timedelta.max, None),
    ],
    ids=repr,
)
def test_a_time_is_taken_in_each_of_its_ways(
    service: OddService, since: Any, moment: datetime | None
) -> None:
    daskscope.list_clusters(since)
    assert service.since() == moment


@pytest.mark.parametrize(
    "since",
    ["1 day", timedelta(days=1), pd.Timedelta("1D"), np.timedelta64(1, "D"), "24 hours"],
    ids=repr,
)
def test_a_duration_is_taken_in_each_of_its_ways(service: OddService, since: Any) -> None:
    before = datetime.now(UTC)
    daskscope.list_clusters(since)
    moment = service.since()
    assert moment is not None
    assert before <= moment + timedelta(days=1) <= datetime.now(UTC)


@pytest.mark.parametrize(
    "since",
    [
        7,
        7.0,
        True,
        b"7 days",
        [],
        np.array([1, 2]),
        pd.NaT,
        np.datetime64("NaT", "s"),
        np.timedelta64("NaT", "s"),
        np.int64(7),
        timedelta(days=-1),
        "7",
        "2026",
        "7.0",
        "1e5",
        "nan",
        "inf",
        "-1 day",
        "yesterday",
        "",
    ],
    ids=repr,
)
def test_what_says_no_time_is_told_as_that(service: OddService, since: Any) -> None:
    with pytest.raises(ConfigurationError, match='such as "7 days"'):
        daskscope.list_clusters(since)
    assert not service.asked


@pytest.mark.parametrize("limit", ["5", 2.5, True, 0, -1, float("nan")])
def test_a_limit_is_a_whole_number(service: OddService, limit: Any) -> None:
    with pytest.raises(ConfigurationError, match="limit"):
        daskscope.list_clusters(limit=limit)
    daskscope.list_clusters(limit=np.int64(5))  # type: ignore[arg-type]
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("cluster_id", lambda: daskscope.list_computations(5)),  # type: ignore[arg-type]
        ("cluster_id", lambda: daskscope.list_events(5)),  # type: ignore[arg-type]
        ("cluster_id", lambda: daskscope.close(None)),  # type: ignore[arg-type]
        ("cluster_id", lambda: make_report(5)),  # type: ignore[arg-type]
        ("computation_id", lambda: make_report("c", 5)),  # type: ignore[arg-type]
        ("user", lambda: daskscope.list_clusters(user=5)),  # type: ignore[arg-type]
        ("even_if_busy", lambda: daskscope.close("c", even_if_busy="no")),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_another_type_is_told_by_its_name(
    service: OddService, name: str, ask: Callable[[], Any]
) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is"):
        ask()
    assert not service.asked
