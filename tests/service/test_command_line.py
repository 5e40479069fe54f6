"""``daskscope serve``, ``token`` and ``user`` as a user types them."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
import requests

from tests import forked, sqlite_template
from tests.ports import free_port
from tests.service.beats import make_beat, post
from tests.service.people import follow
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


def daskscope(
    *arguments: object, input: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command. It has an interpreter of its own where that is what the test is about."""
    words = [*map(str, arguments)]
    if not any(name.startswith(("PYTHON", "DASK_")) for name in environment):
        return forked.run(words, os.environ | environment, input=input)
    return subprocess.run(
        [sys.executable, "-m", "daskscope_service.cli", *words],
        input=input,
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
        check=False,
    )


def test_serve_says_where_it_is_and_what_to_do_next(local_service: ServiceProcess) -> None:
    assert local_service.url in local_service.output
    assert f"{local_service.url}/sign-in?code=" in local_service.output
    assert str(local_service.data_dir) in local_service.output
    assert (
        f"daskscope token create --label NAME --data-dir {local_service.data_dir}"
        in local_service.output
    )


def test_the_database_is_for_its_owner_alone(local_service: ServiceProcess) -> None:
    post(local_service.url, local_service.token(), make_beat())
    files = list(local_service.data_dir.iterdir())
    assert len(files) == 5  # the keys of code, the address, and SQLite's three
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("how", ["TERM", "INT"])
def test_serve_ends_cleanly_with_a_request_under_way(
    service: ServiceProcess, how: Literal["TERM", "INT"]
) -> None:
    token = service.token()
    stop = threading.Event()

    def send() -> list[int]:
        codes: list[int] = []
        with requests.Session() as session:
            while not stop.is_set():
                try:
                    answer = session.post(
                        f"{service.url}/api/v1/heartbeats",
                        headers={"Authorization": f"Bearer {token}"},
                        data=b"{}",
                        timeout=10,
                    )
                except requests.ConnectionError:
                    return codes
                codes.append(answer.status_code)
        return codes

    with ThreadPoolExecutor() as pool:
        sending = pool.submit(send)
        try:
            while not sending.done() and not post(service.url, token, make_beat()).ok:
                pass
            assert service.stop(how) == 0
        finally:
            stop.set()
        assert set(sending.result(30)) <= {400, 503}
    assert "Traceback" not in service.output
    with pytest.raises(requests.ConnectionError):
        requests.get(service.url, timeout=5)


def test_a_taken_port_is_said_and_nothing_is_started(
    local_service: ServiceProcess, tmp_path: Path
) -> None:
    done = daskscope("serve", "--port", local_service.port, "--data-dir", tmp_path / "other")
    assert done.returncode == 1
    assert f"port {local_service.port}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = daskscope("serve", "--port", free_port(), "--data-dir", tmp_path / "file" / "data")
    assert done.returncode == 1
    assert "DASKSCOPE_DATA_DIR" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "daskscope.db").write_text("not a database at all" * 100)
    done = daskscope("serve", "--port", free_port(), "--data-dir", tmp_path)
    assert done.returncode == 1
    assert "not a database" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_token_is_made_listed_and_revoked(service: ServiceProcess) -> None:
    database = service.database_options
    where = (*database, "--workspace", "finance")
    made = daskscope("token", "create", "--label", "nightly", "--scope", "ingest", *where)
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    identifier = token.split("_")[1]
    assert post(service.url, token, make_beat()).ok

    listed = daskscope("token", "list", *where).stdout
    assert token not in listed
    (line,) = [line for line in listed.splitlines() if identifier in line]
    assert line.split()[1:3] == ["active", "ingest"]
    assert "nightly" in line
    assert identifier not in daskscope("token", "list", *database).stdout  # another workspace

    assert daskscope("token", "revoke", identifier, *where).returncode == 0
    assert post(service.url, token, make_beat()).status_code == 401
    assert "revoked" in daskscope("token", "list", *where).stdout
    unknown = daskscope("token", "revoke", "nosuch", *where)
    assert unknown.returncode == 1
    assert "daskscope token list" in unknown.stderr


def test_a_database_that_fails_is_said(tmp_path: Path) -> None:
    sqlite_template.copy_to(tmp_path)
    with closing(sqlite3.connect(tmp_path / "daskscope.db")) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON token BEGIN SELECT json('no'); END"
        )
    failed = daskscope("token", "create", "--data-dir", tmp_path)
    assert failed.returncode == 1
    assert failed.stderr == "Error: the database failed: malformed JSON\n"


def test_a_token_can_expire(local_service: ServiceProcess) -> None:
    where = local_service.database_options
    made = daskscope("token", "create", "--days", "0.0000001", *where)
    assert post(local_service.url, made.stdout.strip(), make_beat()).status_code == 401
    assert "expired" in daskscope("token", "list", *where).stdout


def test_a_fresh_sign_in_link_can_be_had(local_service: ServiceProcess) -> None:
    where = local_service.database_options
    done = daskscope("user", "sign-in", "--public-url", "https://monitor.example", *where)
    assert done.stdout.startswith("https://monitor.example/sign-in?code=")
    code = done.stdout.strip().partition("code=")[2]
    session = requests.Session()
    assert follow(f"{local_service.url}/sign-in?code={code}", session).ok
    assert session.get(f"{local_service.url}/api/v1/clusters", timeout=30).ok
    # Without one, it leads to where the service of the data folder listens.
    assert daskscope("user", "sign-in", *where).stdout.startswith(f"{local_service.url}/sign-in?")


def test_the_cookie_is_for_https_alone_where_users_come_by_https(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, public_url="https://monitor.example") as service:
        code = service.sign_in_link.partition("code=")[2]
        answer = requests.post(
            f"{service.url}/sign-in",
            data={"code": code},
            headers={"Host": "monitor.example"},
            allow_redirects=False,
            timeout=30,
        )
        assert "Secure" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize(
    "command",
    [
        "",
        "serve",
        "token",
        "token create",
        "token list",
        "token revoke",
        "audit",
        "user",
        "user create",
        "user list",
        "user role",
        "user password",
        "user disable",
        "user enable",
        "user remove",
        "user sign-out",
        "user sign-in",
        "database",
        "database status",
        "database upgrade",
    ],
)
def test_help_is_there(command: str) -> None:
    done = daskscope(*command.split(), "--help")
    assert done.returncode == 0
    assert "Usage: daskscope" in done.stdout


def test_the_version_is_told() -> None:
    assert daskscope("--version").stdout.startswith("daskscope, version ")


@pytest.mark.parametrize("module", ["flask", "sqlalchemy", "granian"])
def test_a_missing_extra_is_named(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(
        f"raise ModuleNotFoundError('no such module', name={module!r})"
    )
    done = daskscope(
        "serve", "--port", free_port(), "--data-dir", tmp_path / "data", PYTHONPATH=str(tmp_path)
    )
    assert done.returncode == 1
    assert "pip install '/path/to/daskscope[service]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_extras_help_works_and_commands_say_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in 'flask', 'msgspec', 'sqlalchemy': sys.modules[name] = None\n"
    )
    assert "demo" in daskscope("--help", PYTHONPATH=str(tmp_path)).stdout
    for command, extra in (("serve", "service"), ("demo", "demo")):
        done = daskscope(command, PYTHONPATH=str(tmp_path))
        assert done.returncode == 1
        assert f"pip install '/path/to/daskscope[{extra}]'" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_public_address_with_a_path_is_refused_in_words(tmp_path: Path) -> None:
    done = daskscope(
        "serve", "--data-dir", tmp_path, "--public-url", "https://host.example/monitor"
    )
    assert done.returncode == 1
    assert "pages cannot be below a path" in done.stderr
    assert "https://monitor.example" in done.stderr
