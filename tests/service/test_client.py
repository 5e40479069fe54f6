"""``daskscope.list_clusters()`` and the others, and ``daskscope list``, against a real service."""

from __future__ import annotations

import copy
import json
import math
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dask
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import daskscope
from daskscope import answers, api, api_types, service_client
from daskscope_service.accounts import tokens
from daskscope_service.cli.main import cli
from tests.ports import free_port
from tests.service.beats import (
    full_beat,
    make_beat,
    make_cluster,
    make_computation,
    make_event,
    make_failure,
    post,
)
from tests.service.test_command_line import daskscope as daskscope_command
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

WORKSPACE = "client"
CLUSTER = "Scheduler-client"
OTHER = "Scheduler-client-2"

LISTS: dict[str, tuple[Callable[..., list[Any]], Any]] = {
    "clusters": (daskscope.list_clusters, api_types.Cluster),
    "computations": (daskscope.list_computations, api_types.Computation),
    "exceptions": (daskscope.list_exceptions, api_types.ExceptionGroup),
    "events": (daskscope.list_events, api_types.Event),
}
#: Those that the command has, and those that the service makes of what clusters sent.
_ALL_LISTS = LISTS | {
    "findings": (daskscope.list_findings, api_types.Finding),
    "jobs": (daskscope.list_jobs, api_types.Job),
    "repeats": (daskscope.list_repeats, api_types.Repeat),
}


@pytest.fixture(scope="module")
def filled(shared_service: ServiceProcess) -> ServiceProcess:
    now = time.time()
    token = shared_service.token(workspace=WORKSPACE)
    cluster = make_cluster(CLUSTER, tags={"started_at": "long ago", "at": "home"})
    assert post(shared_service.url, token, full_beat(cluster)).ok
    beat = make_beat(
        make_cluster(OTHER, user="li", started_at=now - 9 * 86_400),
        computations=tuple(make_computation(f"c{n}", started_at=now - n) for n in range(7)),
        failures=tuple(make_failure(fingerprint=f"1:{n}") for n in range(5)),
        events=tuple(make_event(id=f"e{n}", at=now - n) for n in range(5)),
    )
    assert post(shared_service.url, token, beat).ok
    return shared_service


@pytest.fixture(autouse=True)
def configured(filled: ServiceProcess) -> Iterator[None]:
    settings = {
        "daskscope.endpoint": filled.url,
        "daskscope.token": filled.token(["read"], WORKSPACE),
    }
    with dask.config.set(settings):
        yield


@pytest.mark.parametrize("name", LISTS)
def test_items_have_the_fields_of_their_type_and_aware_times(name: str) -> None:
    ask, kind = LISTS[name]
    rows = ask()
    assert rows
    for row in rows:
        assert set(row) == kind.__required_keys__
        for field, value in row.items():
            if field == "at" or field.endswith("_at"):
                assert value is None or value.utcoffset() == timedelta(0)
    frame = pd.DataFrame(rows)
    assert len(frame) == len(rows)
    empty = pd.DataFrame([], columns=list(kind.__annotations__))
    assert set(empty.columns) >= set(frame.columns)
    time = next(field for field in rows[0] if field == "at" or field.endswith("_at"))
    assert str(frame[time].dtype).endswith("UTC]")


@pytest.mark.parametrize("name", _ALL_LISTS)
def test_a_table_of_nothing_has_the_columns_of_its_type(name: str, filled: ServiceProcess) -> None:
    empty = filled.token(scopes=["read"], workspace="a-workspace-without-data")
    ask, kind = _ALL_LISTS[name]
    with dask.config.set({"daskscope.token": empty}):
        rows = ask()

    frame = pd.DataFrame(rows, columns=list(kind.__annotations__))

    assert rows == []
    assert set(kind.__annotations__) >= kind.__required_keys__
    assert frame[next(iter(kind.__required_keys__))].empty


def test_tags_that_are_called_like_times_stay_as_they_are() -> None:
    (cluster,) = daskscope.list_clusters()
    assert cluster["tags"] == {"started_at": "long ago", "at": "home"}


def test_lists_are_chosen_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_client, "PAGE", 2)
    assert [row["id"] for row in daskscope.list_clusters()] == [CLUSTER]
    assert [row["id"] for row in daskscope.list_clusters(None)] == [CLUSTER, OTHER]
    assert [row["id"] for row in daskscope.list_clusters("9999999 days")] == [CLUSTER, OTHER]
    assert [row["id"] for row in daskscope.list_clusters(None, user="li")] == [OTHER]
    whole = daskscope.list_computations(OTHER)
    assert [row["id"] for row in whole] == [f"c{n}" for n in range(7)]
    assert daskscope.list_computations(OTHER, limit=5) == whole[:5]
    assert daskscope.list_computations(OTHER, limit=4) == whole[:4]
    assert len(daskscope.list_events(OTHER)) == 5
    assert {row["cluster"] for row in daskscope.list_events()} == {CLUSTER, OTHER}
    found = daskscope.list_exceptions(cluster_id=OTHER)
    assert {row["fingerprint"] for row in found} == {f"1:{n}" for n in range(5)}


def test_since_is_a_time_as_text_too() -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    for since in (yesterday, yesterday.isoformat(), yesterday.replace(tzinfo=None), "1 day"):
        assert [row["id"] for row in daskscope.list_clusters(since)] == [CLUSTER]
    for wrong in ("whenever", "", "7 fortnights"):
        with pytest.raises(daskscope.ConfigurationError, match='"7 days"'):
            daskscope.list_clusters(wrong)
    with pytest.raises(daskscope.ConfigurationError, match="limit"):
        daskscope.list_clusters(limit=0)


def test_a_token_that_does_not_open_it_is_told_apart(filled: ServiceProcess) -> None:
    revoked = filled.token(["read"], WORKSPACE)
    assert tokens.revoke(filled.engine, WORKSPACE, revoked.split("_")[1])
    for token, status, word in (
        ("dsk_wrong_token", 401, "There is no such token"),
        (revoked, 401, "revoked"),
        (filled.token(["ingest"], WORKSPACE), 403, "scope"),
    ):
        with dask.config.set({"daskscope.token": token}):
            with pytest.raises(daskscope.AccessDenied, match=word) as error:
                daskscope.list_clusters()
        assert error.value.status == status
    with dask.config.set({"daskscope.token": None}):
        with pytest.raises(daskscope.ConfigurationError, match="no token"):
            daskscope.list_events()


def test_computations_are_those_of_a_clusters_name_too(filled: ServiceProcess) -> None:
    with dask.config.set({"daskscope.token": filled.token(workspace="named")}):
        for id in ("named-1", "named-2"):
            beat = make_beat(
                make_cluster(id, name="nightly"),
                computations=(make_computation(f"c-{id}", started_at=time.time()),),
            )
            assert post(filled.url, filled.token(workspace="named"), beat).ok
        of_name = daskscope.list_computations("nightly")
        assert {row["id"] for row in of_name} == {"c-named-1", "c-named-2"}
        assert [row["id"] for row in daskscope.list_computations("named-1")] == ["c-named-1"]


def test_what_is_not_there_is_told_apart_from_what_a_service_does_not_know(
    filled: ServiceProcess,
) -> None:
    for cluster in ("no-such", "no/such", "..", "", "no%2Fsuch?x=1"):
        with pytest.raises(daskscope.NotFound):
            daskscope.list_computations(cluster)
    # What a later version asks for.
    with pytest.raises(daskscope.ServiceTooOld, match="upgrade"):
        api._items("budgets", None, since="1 day")
    with pytest.raises(daskscope.ServiceTooOld, match="budget is not a parameter"):
        api._items("clusters", None, since="1 day", budget="much")
    with dask.config.set({"daskscope.endpoint": f"{filled.url}/static"}):
        with pytest.raises(daskscope.ServiceError, match=r"daskscope\.endpoint") as error:
            daskscope.list_clusters()
    assert type(error.value) is daskscope.ServiceError


def test_no_answer_is_told_apart() -> None:
    for endpoint in (f"http://127.0.0.1:{free_port()}", "http://nowhere.invalid"):
        with dask.config.set({"daskscope.endpoint": endpoint}):
            with pytest.raises(daskscope.ServiceUnreachable, match="cannot reach") as error:
                daskscope.list_clusters()
        assert error.value.status is None


def test_a_password_in_netrc_does_not_take_the_token_s_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ada password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert daskscope.list_clusters()


def run(*arguments: str) -> Result:
    """Run the command here, with the settings of this process."""
    return CliRunner().invoke(cli, ["list", *arguments])


@pytest.mark.parametrize("name", LISTS)
def test_the_command_prints_a_table_for_people_and_lines_for_programs(name: str) -> None:
    table = run(name, "--since", "all")
    assert table.exit_code == 0, table.output
    head, *lines = table.stdout.splitlines()
    assert head.isupper()
    printed = run(name, "--since", "all", "--json")
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    assert len(rows) == len(lines) > 1
    assert set(rows[0]) == LISTS[name][1].__required_keys__


def test_the_command_says_that_there_is_more() -> None:
    some = run("computations", "--limit", "2")
    assert len(some.stdout.splitlines()) == 3
    assert "--limit" in some.stderr


def test_the_command_says_what_went_wrong_with_the_settings_of_its_environment() -> None:
    settings = {
        "DASK_DASKSCOPE__ENDPOINT": dask.config.get("daskscope.endpoint"),
        "DASK_DASKSCOPE__TOKEN": "dsk_wrong",
    }
    wrong = daskscope_command("list", "clusters", **settings)
    assert wrong.returncode == 1
    assert "There is no such token" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_lists_and_items_show_as_tables_and_lines_in_a_console_and_a_notebook() -> None:
    found: Any = daskscope.list_computations(OTHER)
    head, *rows = repr(found).splitlines()
    assert (head.split()[0], len(rows)) == ("STATUS", 7)
    assert found._repr_html_().count("<tr>") == 8
    assert f'<a href="{found[0]["url"]}"' in found._repr_html_()
    assert re.search(r"^status +running$", repr(found[0]), re.MULTILINE)
    for copied in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert (copied, repr(copied)) == (found, repr(found))
    many = type(found)(found * 4, found.columns)
    assert repr(many).splitlines()[-1].startswith("… 8 more of 28;")
    assert len(repr(many).splitlines()) == 22
    assert repr(daskscope.list_computations(OTHER, user="nobody")) == "[]"


def test_an_item_with_a_value_that_none_can_be_shows_all_the_same() -> None:
    for odd in (math.inf, math.nan, 1e300, datetime.max.replace(tzinfo=UTC)):
        item = answers.Answer(duration=odd, started_at=odd, name="nightly")
        found = answers.Answers([item], answers.CLUSTERS)
        for shown in (repr(item), repr(found), item._repr_html_(), found._repr_html_()):
            assert "nightly" in shown


def test_a_notebook_and_a_terminal_obey_nothing_in_an_item(filled: ServiceProcess) -> None:
    name = "<b>\x1b]0;mine\x07</b>"
    token = filled.token(workspace="client-html")
    assert post(filled.url, token, make_beat(make_cluster(name=name))).ok
    with dask.config.set({"daskscope.token": filled.token(["read"], "client-html")}):
        found = daskscope.list_clusters()
    shown: Any = [found, found[0]]
    for one in shown:
        assert "\x1b" not in repr(one) + one._repr_html_()
        assert "<b>" in repr(one)
        assert "<b>" not in one._repr_html_()
    address = answers.FindingAnswer(
        sentence="It ran.", url="javascript:alert(1)", evidence=[], cost=None, actions=[],
        saving=None, suppressed_by=None, muted=None,
    )  # fmt: skip
    assert "href" not in address._repr_html_()


@pytest.fixture
def hostile() -> Iterator[str]:
    """The address of a service whose every answer has escapes that set a terminal's title."""
    escape = "\x1b]0;mine\x07"
    finding: dict[str, Any] = {
        "rule": f"failed{escape}", "sentence": f"It failed.{escape}", "evidence": [],
        "cost": None, "actions": [], "saving": None, "suppressed_by": None, "muted": None,
    }  # fmt: skip
    explanation = {
        "headline": f"It failed.{escape}", "findings": [finding], "cluster": f"c{escape}",
        "computation": f"p{escape}", "url": f"https://monitor.example/{escape}",
    }  # fmt: skip
    begun = {
        "device_code": "x", "user_code": f"AB{escape}", "expires_in": 600, "interval": 0,
        "verification_uri": "https://monitor.example/",
    }  # fmt: skip
    granted = {
        "access_token": "dsk_x_y", "token_id": f"x{escape}", "workspace": f"w{escape}",
        "scope": f"read {escape}",
    }  # fmt: skip

    class Hostile(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if "/findings/" in self.path:
                self.answer(200, explanation)
            else:
                self.answer(500, {"detail": f"It is broken.{escape}"})

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"]))
            if b"device_code" in form:
                self.answer(200, granted)
            elif b"ingest" in form:
                self.answer(403, {"detail": f"It refuses.{escape}"})
            elif b"admin" in form:
                self.answer(200, begun | {"verification_uri": f"https://monitor.example/{escape}"})
            else:
                self.answer(200, begun)

        def answer(self, status: int, document: dict[str, Any]) -> None:
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("command", "says"),
    {
        "why c": "What to ask next",
        "compare a b": "It is broken",
        "login --no-browser --scope read": "is stored in",
        "login --no-browser": "It refuses",
        "login --no-browser --scope admin": "sent no address",
    }.items(),
)
def test_a_hostile_service_controls_no_terminal(
    hostile: str, command: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask.config, "PATH", str(tmp_path))
    monkeypatch.setattr(dask.config, "paths", [str(tmp_path)])
    with dask.config.set({"daskscope.endpoint": hostile, "daskscope.token": "dsk_a_b"}):
        found = CliRunner().invoke(cli, command)
    assert says in found.output + str(found.exception)
    assert "\x1b" not in found.output + str(found.exception)


def test_a_table_holds_nothing_that_a_terminal_would_obey(filled: ServiceProcess) -> None:
    name = "\x1b]0;mine\x07\nevil"
    token = filled.token(workspace="client-evil")
    assert post(filled.url, token, make_beat(make_cluster(name=name))).ok
    with dask.config.set({"daskscope.token": filled.token(["read"], "client-evil")}):
        found = run("clusters")
    assert len(found.stdout.splitlines()) == 2
    assert "\x1b" not in found.stdout
    assert "evil" in found.stdout


def test_a_task_stream_fits_a_data_frame() -> None:
    frame = pd.DataFrame(daskscope.task_stream(CLUSTER))
    assert list(frame.columns) == list(api_types.TaskRuns.__annotations__)
    assert frame["worker"].tolist() == ["tcp://10.0.0.1:4000", "tcp://10.0.0.2:4000"]
    assert frame["prefix"].tolist() == ["load", "sum"]
    assert frame["outcome"].tolist() == ["erred", "finished"]
    assert frame["count"].tolist() == [1, 3]
    assert frame["seconds"].tolist() == [0.5, 1.2]
    assert frame["longest"].tolist() == [0.5, 0.9]
    assert frame["transfer"].tolist() == [0.025, 0.0]
    assert frame["disk"].tolist() == [0.0, 0.004]
    took = (frame["stopped_at"] - frame["started_at"]).dt.total_seconds()
    assert took.tolist() == [0.5, 2.0]
    assert str(frame["started_at"].dtype).endswith("UTC]")


def test_a_task_stream_without_runs_has_its_columns() -> None:
    frame = pd.DataFrame(daskscope.task_stream(OTHER))
    assert list(frame.columns) == list(api_types.TaskRuns.__annotations__)
    assert frame.empty
    assert pd.DataFrame(daskscope.task_stream(CLUSTER, since=timedelta(0))).empty
    with pytest.raises(daskscope.NotFound):
        daskscope.task_stream("Scheduler-that-never-was")
