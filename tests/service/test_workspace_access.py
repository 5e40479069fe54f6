"""Whose a cluster is, of those that call themselves alike in a database that workspaces share."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from daskscope import names
from daskscope_service.telemetry.influx_rows import InfluxDatabase, Own, own_clusters
from daskscope_service.telemetry.influxql import InfluxQL
from tests.seed_writer import SeedWriter

NOW = 1_800_000_000.0


@pytest.fixture
def own(engine: Engine) -> Own:
    """Clusters ``mine`` and ``both`` of ``one``, ``both`` and ``theirs`` of ``two``."""
    for workspace, clusters in (("one", ("mine", "both")), ("two", ("both", "theirs"))):
        writer = SeedWriter(workspace, NOW)
        for cluster in clusters:
            writer.cluster(cluster, name="c", user="li", started=-9000, workers=1)
        writer.write(engine)
    return own_clusters(engine)


def test_a_cluster_is_of_the_one_workspace_that_heard_of_it(own: Own) -> None:
    asked = ["mine", "both", "theirs", "unheard of"]
    assert own("one", asked) == {"mine"}
    assert own("two", asked) == {"theirs"}
    assert own("default", asked) == frozenset()
    assert own("one", []) == frozenset()


@pytest.fixture
def database(own: Own) -> InfluxDatabase:
    return InfluxDatabase(InfluxQL("http://127.0.0.1:1", ""), "daskscope", own)


def test_rows_that_name_a_workspace_are_read_there_and_nowhere_else(
    database: InfluxDatabase,
) -> None:
    assert database.names_of("one", ["unheard of"]) == {"one"}
    assert database.names_of("one", ["theirs"]) == {"one"}
    rows = [row("one", "theirs"), row("two", "mine"), row("one", "unheard of")]
    assert [*database.readable("one", rows)] == [rows[0], rows[2]]
    assert [*database.readable("default", rows)] == []


def test_rows_that_name_none_are_read_where_their_heartbeats_went(database: InfluxDatabase) -> None:
    assert database.names_of("one", ["mine"]) == {"one", "default"}
    assert database.names_of("one", ["both"]) == {"one"}
    assert database.names_of("default", ["mine"]) == set()
    rows = [row("default", cluster) for cluster in ("mine", "both", "theirs", "unheard of", "")]
    assert [*database.readable("one", rows)] == rows[:1]
    assert [*database.readable("default", rows)] == []


def row(workspace: str, cluster: str) -> dict[str, Any]:
    return {names.SERVICE_NAMESPACE: workspace, names.CLUSTER_ID: cluster}
