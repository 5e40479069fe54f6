"""A rolling restart of two processes behind a real nginx, configured as the docs say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import requests

from tests.patience import wait_until
from tests.ports import free_port
from tests.postgresql import PostgresServer
from tests.service.beats import make_beat, make_cluster, post
from tests.service_process import ServiceProcess

DOCS = Path(__file__).parents[2] / "docs" / "operations.md"

#: Requests of each kind that are answered between two steps of the restart.
ENOUGH = 20

pytestmark = [pytest.mark.slow, pytest.mark.sqlite]


@pytest.fixture
def nginx() -> str:
    """The path of an installed nginx."""
    found = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if found is None:
        why = "no nginx is installed (Debian's package nginx)"
        if "CI" in os.environ:
            pytest.fail(why)
        pytest.skip(why)
    return found


@contextmanager
def proxy(nginx: str, folder: Path, port: int, addresses: list[str]) -> Iterator[None]:
    """Run nginx with the configuration of the docs, for a port and addresses of the test's own."""
    blocks = re.findall(r"```nginx\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    (text,) = (block for block in blocks if "upstream" in block)
    text = re.sub(r"ssl_certificate.*;\n", "", text)
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    for documented, address in zip(("10.0.0.5:8690", "10.0.0.6:8690"), addresses, strict=True):
        assert documented in text
        text = text.replace(documented, address)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "\n".join(f"{kind}_temp_path {folder / kind};" for kind in kinds)
    file = folder / "nginx.conf"
    file.write_text(
        "daemon off; master_process off; "
        f"pid {folder / 'pid'}; events {{}}\nhttp {{\naccess_log off;\n{folders}\n{text}}}\n"
    )
    process = subprocess.Popen(
        [nginx, "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(file)]
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def test_a_rolling_restart_behind_nginx_fails_no_request(
    nginx: str, tmp_path: Path, postgresql: PostgresServer, template: str
) -> None:
    port, database = free_port(), postgresql.url(postgresql.create(template))
    url = f"http://127.0.0.1:{port}"
    services = [
        ServiceProcess(
            tmp_path / str(number),
            database_url=database,
            code_keys=("c0de" * 16,),
            public_url=url,
            trusted_proxies=("127.0.0.1",),
        )
        for number in range(2)
    ]
    answered, failed = {"read": 0, "beat": 0}, list[str]()
    over = threading.Event()

    def ask(kind: str) -> None:
        cluster, seq = make_cluster(), 0
        while not over.is_set():
            seq += 1
            try:
                if kind == "beat":
                    answer = post(url, token, make_beat(cluster, seq))
                else:
                    answer = requests.get(
                        f"{url}/api/v1/clusters",
                        headers={"Authorization": f"Bearer {token}"},
                        timeout=30,
                    )
                if not answer.ok:
                    failed.append(f"{kind}: {answer.status_code} {answer.text[:200]}")
            except requests.RequestException as error:
                failed.append(f"{kind}: {error!r}")
            answered[kind] += 1

    def some_more() -> None:
        before = dict(answered)
        wait_until(lambda: all(answered[kind] >= before[kind] + ENOUGH for kind in before))

    with ExitStack() as stack:
        for service in services:
            stack.enter_context(service)
        token = services[0].token()
        addresses = [service.url.removeprefix("http://") for service in services]
        stack.enter_context(proxy(nginx, tmp_path, port, addresses))
        threads = [threading.Thread(target=ask, args=(kind,)) for kind in ("read", "beat") * 2]
        wait_until(lambda: _answers(url))
        for thread in threads:
            thread.start()
        try:
            some_more()
            for service in services:
                service.stop()
                some_more()
                service.start()
            some_more()
        finally:
            over.set()
            for thread in threads:
                thread.join()
    assert failed == []


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/readyz", timeout=5).ok
    except requests.ConnectionError:
        return False
