"""Targets of notifications that mean harm: slow ones, inner ones, and addresses that ask for more.

Each is tried against a real service, with the settings that it comes with, and an owner of one
workspace beside an innocent one of another.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest
import requests
from sqlalchemy import update

from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.notifications.addresses import (
    PARAMETERS,
    UnfitAddress,
    check,
    is_allowed,
    parameters,
    why_invalid,
)
from daskscope_service.notifications.delivery import Attempt, Message
from daskscope_service.notifications.sending import SECONDS, NotSent, Sender, reason
from tests.patience import START_PATIENCE, wait_until
from tests.service.people import browser_of, make_user
from tests.service.test_commands import Workspace
from tests.service.test_notifications import add, erred, shown
from tests.service.webhook import Webhook
from tests.service_process import ServiceProcess


class Tarpit:
    """A web server on loopback that answers a byte a second, for ever. In a with-statement."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ended = threading.Event()
        self.address = f"json://127.0.0.1:{self._listener.getsockname()[1]}/drip"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        with socket.create_connection(self._listener.getsockname()):
            self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            connection, _ = self._listener.accept()
            threading.Thread(target=self._drip, args=(connection,), daemon=True).start()

    def _drip(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                self.reached.set()
                while not self._ended.wait(1):
                    connection.sendall(b"x")
            except OSError:
                pass  # who waited has gone


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service of few threads whose operator allows the targets that listen in these tests."""
    folder = tmp_path_factory.mktemp("service")
    with ServiceProcess(folder, threads=4, notify_networks=("127.0.0.1",)) as service:
        yield service


def owner_of(workspace: Workspace) -> requests.Session:
    name = make_user(workspace.service, {workspace.name: "owner"}).name
    return browser_of(workspace.service, name)


@pytest.mark.slow
def test_a_target_that_drips_keeps_neither_others_waiting_nor_the_service(
    service: ServiceProcess,
) -> None:
    evil, good = Workspace(service, "evil"), Workspace(service, "good")
    attacker = owner_of(evil)
    with Tarpit() as tarpit, Webhook() as webhook:
        target = add(evil, attacker, tarpit.address)["id"]
        add(good, owner_of(good), webhook.address)
        evil.beat(computations=(erred("theirs"),))
        assert tarpit.reached.wait(60)
        # While it drips, others are told, and of many tests at once one is under way.
        statuses = list[int]()

        def test() -> None:
            url = f"{service.url}/api/v1/targets/{target}/test"
            statuses.append(attacker.post(url, timeout=120).status_code)

        testing = [threading.Thread(target=test) for _ in range(8)]
        for one in testing:
            one.start()
        wait_until(lambda: statuses.count(429) == 7)
        assert requests.get(f"{service.url}/healthz", timeout=30).ok
        good.beat(computations=(erred("ours"),))
        assert "computations/ours" in webhook.wait(1)["message"]
        assert statuses.count(429) == 7
        for one in testing:
            one.join()
        assert sorted(statuses) == [200] + [429] * 7
        failure = wait_until(lambda: shown(evil)["failure"])
    assert failure == "it took longer than 15 s"


@pytest.mark.parametrize(
    "address",
    [
        "workflows://10.1.1.1/{0}/x/?template=/etc/passwd",
        "workflows://h.example/{0}/x/?verify=no",
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ?template=/etc/passwd",
        "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js?TEMPLATE=/etc/passwd",
        "mailto://a:b@mail.example/?to=c@d.example&pgppub=/etc/passwd",
        "mailto://a:b@mail.example/?to=c@d.example;pgpprv=/etc/passwd",
        "jsons://hooks.example.org/?method=PUT",
        "jsons://hooks.example.org/?+X-Header=1",
        "jsons://hooks.example.org/?%2BX-Header=1",
        "jsons://hooks.example.org/?-query=1",
        "jsons://hooks.example.org/?:payload=1",
        "jsons://hooks.example.org/?redirect=yes",
        "jsons://hooks.example.org/?rto=3600",
        "ntfys://ntfy.example/topic?attach=/etc/passwd",
        "form://hooks.example.org/?attach-as=file",
    ],
)
def test_an_address_may_say_whom_a_message_is_for_and_nothing_else(address: str) -> None:
    assert "is not allowed in an address" in str(why_invalid(address.format("0" * 32)))


def test_a_long_address_is_refused_before_anything_looks_at_its_host() -> None:
    # What checks it takes ten seconds for these, in which no other thread goes on.
    above, grave = "\N{COMBINING COMMA ABOVE RIGHT}", "\N{COMBINING GRAVE ACCENT}"
    address = f"json://h{15_000 * above}{15_000 * grave}/"
    with pytest.raises(UnfitAddress, match="at most 2,000 characters"):
        check(address, ())


def test_parameters_are_read_as_the_library_that_sends_reads_them() -> None:
    from apprise.utils.parse import parse_url

    for address in (
        "jsons://h.example/a&b=c;d=e?x=1&Y=2;%7A=3",
        "jsons://h.example/?a=b?c=d",
        "jsons://h.example/?a&&b=;+c=1",
        "jsons://h.example/?a=b%26template=c",
        "jsons://h.example/%3Ftemplate=c",
        "jsons://h.example/?=x&%20template%20=c",
        "jsons://u:p?q@h.example/?x=y",
        "jsons://h.example/#?template=c",
    ):
        read = parse_url(  # type: ignore[no-untyped-call]
            address.replace("/#", "/%23")
        )  # as it does first
        found = {name.lstrip("+") for name in (read or {}).get("qsd", {})}
        assert found <= {name.lstrip("+") for name in parameters(address)} | {""}, address


def test_every_parameter_that_is_allowed_is_one_of_the_library() -> None:
    from apprise.manager_plugins import NotificationManager

    for scheme, allowed in PARAMETERS.items():
        plugin = NotificationManager()[scheme]  # type: ignore[no-untyped-call]
        known = set(plugin.template_args) | {"user", "pass", "id"}
        assert allowed <= known, scheme
        assert not allowed & {"template", "method", "verify", "redirect", "attach", "pgp"}


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "::1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
        *("169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fe80::1%eth0"),
        *("::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "224.0.0.1", "nonsense", ""),
        *("::10.0.0.1", "fec0::1"),
    ],
)
def test_inner_hosts_are_none_for_notifications(host: str) -> None:
    assert not is_allowed(host, [])
    assert not is_allowed(host, ["192.0.2.0/24", "2001:db8::/32"])


def test_public_hosts_and_those_of_named_networks_are_for_notifications() -> None:
    for host in ("93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"):
        assert is_allowed(host, [])
    assert is_allowed("10.1.2.3", ["10.1.0.0/16"])
    assert is_allowed("::ffff:10.1.2.3", ["10.1.0.0/16"])
    assert not is_allowed("10.2.2.3", ["10.1.0.0/16"])


@pytest.mark.slow
def test_nothing_connects_to_an_inner_host_whatever_its_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for host in ("127.0.0.1", "localhost", "[::1]"):
            with pytest.raises(UnfitAddress, match="is not a public address"):
                check(f"json://{host}:{port}/", [])
        # A name that leads inside is found out as it is connected to.
        for address in (
            f"json://2130706433:{port}/",
            f"mailto://a:b@mail.example.org:{port}?smtp=127.0.0.1&to=c@example.org",
        ):
            with pytest.raises(NotSent, match="DASKSCOPE_NOTIFY_NETWORKS"):
                Sender(["192.0.2.0/24"]).send(check(address, []), "title", "text")
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.slow
def test_a_redirect_is_not_followed() -> None:
    with Webhook() as inner, Webhook() as outer:
        outer.status, outer.location = 307, inner.address.replace("json://", "http://")
        with pytest.raises(NotSent):
            Sender(["127.0.0.1"]).send(outer.address, "title", "text")
        assert outer.refused == 1
        assert inner.told == []


@pytest.mark.slow
def test_an_answer_without_end_takes_little_memory() -> None:
    ended = threading.Event()

    def flood(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\n")
            while not ended.is_set():
                connection.sendall(b"x" * 2**20)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=flood, args=(listener,), daemon=True)
        thread.start()
        message = Message(
            address=f"json://127.0.0.1:{listener.getsockname()[1]}/",
            title="title",
            text="text",
            networks=["127.0.0.1"],
            seconds=SECONDS,
        )
        module = "daskscope_service.notifications.delivery"
        process = subprocess.Popen([sys.executable, "-m", module], stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(json.dumps(message).encode())
        process.stdin.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        thread.join()
    # What the process of the tests has counts, too: it is the one that was copied.
    nothing = subprocess.Popen([sys.executable, "-c", ""])
    _, status, before = os.wait4(nothing.pid, 0)
    nothing.returncode = os.waitstatus_to_exitcode(status)
    more = used.ru_maxrss - before.ru_maxrss
    kilobytes = more if sys.platform == "linux" else more // 1024
    assert kilobytes < 300_000


def test_the_process_that_sends_reads_no_files_and_starts_no_programs(
    tmp_path: Path,
) -> None:
    """Even if an address could ask for it."""
    (tmp_path / "secret").write_text("secret")
    tried = f"""
import os, subprocess, sys, urllib.request
from daskscope_service.notifications import delivery
guard = delivery._Guard([])
sys.addaudithook(guard)
def refused(what, *errors):
    try:
        what()
    except errors:
        return
    raise SystemExit(f"not refused: {{what}}")
refused(lambda: open({str(tmp_path / "secret")!r}), FileNotFoundError)
refused(lambda: open({str(tmp_path / "new")!r}, "w"), FileNotFoundError)
refused(lambda: open("/etc/passwd"), FileNotFoundError)
refused(lambda: subprocess.run(["true"]), PermissionError)
refused(lambda: os.system("true"), PermissionError)
import socket
refused(lambda: socket.create_connection(("127.0.0.1", 1), 5), ConnectionRefusedError)
refused(lambda: socket.socket().connect(("localhost", 1)), ConnectionRefusedError)
refused(lambda: socket.socket(socket.AF_UNIX).connect("/run/x"), ConnectionRefusedError)
assert guard.inner
"""
    subprocess.run([sys.executable, "-c", tried], check=True, timeout=START_PATIENCE)


def test_what_is_told_of_a_failure_is_no_scan_of_the_network() -> None:
    def told(**fields: object) -> str:
        base = {"result": "not sent", "status": None, "reached": False, "inner": False}
        return reason(Attempt(**(base | fields)))  # type: ignore[typeddict-item]

    assert told(status=403, reached=True) == "the host refused it (HTTP 403)"
    assert told().startswith("no connection")
    inner = {told(inner=True, status=status, reached=reached)
             for status in (None, 404, 500) for reached in (True, False)}  # fmt: skip
    assert len(inner) == 1


def test_a_target_that_is_kept_and_not_fit_any_more_says_so(
    service: ServiceProcess,
) -> None:
    workspace = Workspace(service, "older")
    owner = owner_of(workspace)
    with Webhook() as webhook:
        target = add(workspace, owner, webhook.address)["id"]
        with writing(service.engine) as connection:  # as an older version took it
            connection.execute(
                update(schema.notification_target)
                .where(schema.notification_target.c.id == target)
                .values(address=f"{webhook.address}?template=/etc/passwd")
            )
        failure = shown(workspace)["failure"]
        assert "The parameter 'template' is not allowed" in failure
        assert "add it again" in failure
        page = owner.get(f"{service.url}/settings/notifications", timeout=30).text
        assert "not sent: The parameter" in page
        workspace.beat(computations=(erred(),))
        wait_until(lambda: shown(workspace)["failed_at"])
        assert "add it again" in shown(workspace)["failure"]
        assert webhook.told == []
