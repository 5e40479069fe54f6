"""Log records out of InfluxDB are those of the service's own table, to all who may read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from daskscope import names
from daskscope_service.telemetry.influx_logs import InfluxLogs
from daskscope_service.telemetry.influx_rows import InfluxDatabase, Own
from daskscope_service.telemetry.influxql import InfluxQL
from tests.service.pages import words
from tests.service_process import ServiceProcess
from tests.stack.influxdb import DATABASE
from tests.stack.run import Run, owned_by
from tests.stack.sessions import api, browser


def ask(service: ServiceProcess, **parameters: str) -> dict[str, Any]:
    answer = api(service).get(
        f"{service.url}/api/v1/logs", params={"limit": "1000", **parameters}, timeout=30
    )
    assert answer.ok, answer.text
    found: dict[str, Any] = answer.json()
    return found


def alike(item: dict[str, Any]) -> dict[str, Any]:
    """Return a record without its id, and without attributes that are empty: InfluxDB has none."""
    attributes = {key: value for key, value in item["attributes"].items() if value != ""}
    return {**item, "id": None, "attributes": attributes}


@pytest.mark.parametrize(
    "parameters",
    [{}, {"level": "error"}, {"text": "ODD"}, {"user": "nobody"}, {"cluster": "none"}],
    ids=str,
)
def test_both_stores_answer_alike(
    run: Run, reader: ServiceProcess, parameters: dict[str, str]
) -> None:
    own, read = (ask(service, **parameters) for service in (run.service, reader))
    assert own["next"] is read["next"] is None
    assert bool(own["items"]) == (parameters.keys() <= {"level", "text"})
    by_text = [
        sorted(map(alike, answer["items"]), key=lambda item: (item["at"], repr(item)))
        for answer in (own, read)
    ]
    assert by_text[0] == by_text[1]
    times = [item["at"] for item in read["items"]]
    assert times == sorted(times, reverse=True)


def test_a_time_and_a_cluster_choose_the_same(run: Run, reader: ServiceProcess) -> None:
    whole = ask(run.service, cluster=run.cluster)["items"]
    # Each time that is told: floats tell fewer than there are.
    chosen = set()
    for bound in ("since", "until"):
        for at in (item["at"] for item in whole):
            own, read = (
                {item["at"] for item in ask(service, cluster=run.cluster, **{bound: at})["items"]}
                for service in (run.service, reader)
            )
            assert own == read
            chosen.add(len(own))
    assert len(chosen) > len(whole) / 2


def test_pages_join_to_the_whole(reader: ServiceProcess) -> None:
    whole = ask(reader)["items"]
    found: list[Any] = []
    page: dict[str, Any] = {"next": None}
    while not found or page["next"]:
        more = {"cursor": page["next"]} if page["next"] else {}
        page = ask(reader, limit="7", **more)
        found += page["items"]
    assert found == whole
    assert len({item["id"] for item in whole}) == len(whole)


def test_the_page_of_log_records_is_the_same(run: Run, reader: ServiceProcess) -> None:
    def shown(service: ServiceProcess) -> list[str]:
        which = {"cluster": run.cluster}
        page = browser(service).get(f"{service.url}/logs", params=which, timeout=30).text
        return sorted(re.findall('<td class="text">(.*?)</td>', words(page)))

    own, read = shown(run.service), shown(reader)
    assert any("is odd" in line for line in read)
    assert read == own


class OneRow:
    """An InfluxDB with one record."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row

    def rows(self, database: str, statement: str) -> list[dict[str, Any]]:
        return [self.row]


@pytest.mark.parametrize("form", ["attributes", "tags"])
def test_a_records_trace_is_read_as_this_collector_writes_it_and_as_older_ones_did(
    form: str,
) -> None:
    ids = {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"}
    row = {"time": 1, names.SERVICE_NAMESPACE: "team", "body": "x", "attributes": '{"a": 1}'}
    if form == "attributes":
        row["attributes"] = json.dumps({"a": 1, **ids})
    else:
        row |= ids
    influxdb: Any = OneRow(row)
    logs = InfluxLogs(InfluxDatabase(influxdb, DATABASE, lambda *_: frozenset()))
    ((record,), _) = logs.newest("team", None, None, None, None, 1)
    assert {"trace_id": record.trace_id, "span_id": record.span_id} == ids
    assert record.attributes == {"a": 1}


@pytest.fixture
def influxdb(run: Run) -> Iterator[InfluxQL]:
    influxdb = InfluxQL(run.database.url, run.database.token)
    yield influxdb
    influxdb.close()


def bodies(influxdb: InfluxQL, own: Own, workspace: str, cluster: str | None = None) -> list[str]:
    records, _ = InfluxLogs(InfluxDatabase(influxdb, DATABASE, own)).newest(
        workspace, None if cluster is None else [cluster], None, None, None, 1000
    )
    return [record.body for record in records]


def test_a_cluster_without_a_workspace_is_of_that_which_heard_its_heartbeats(
    run: Run, influxdb: InfluxQL
) -> None:
    """It calls itself ``default`` in InfluxDB, whatever its token's workspace."""
    for cluster in (None, run.cluster):
        assert "Cluster stopped: run (LocalCluster)" in bodies(
            influxdb, owned_by("team", run), "team", cluster
        )
        assert bodies(influxdb, owned_by("team", run), "default", cluster) == []
        assert bodies(influxdb, owned_by("team", run), "other", cluster) == []
    for no_workspace in ("team' OR '1'='1", "team\\", 'team" --'):
        assert bodies(influxdb, owned_by("team", run), no_workspace) == []


def test_pages_go_on_past_what_is_not_for_the_reader(run: Run, influxdb: InfluxQL) -> None:
    logs = InfluxLogs(InfluxDatabase(influxdb, DATABASE, owned_by("team", run)))
    records, end = logs.newest("other", None, None, None, None, 5)
    assert records == []
    assert end is not None
