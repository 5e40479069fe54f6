"""Whose a cluster is, of those that call themselves alike in a database that workspaces share."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from daskscope_service.telemetry.influx_rows import Own, may_read, own_clusters, said_by
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


def test_who_names_its_workspace_is_read_there_and_nowhere_else(own: Own) -> None:
    assert said_by(own, "one", "unheard of") == {"one"}
    assert said_by(own, "one", "theirs") == {"one"}
    told = {("one", "theirs"), ("two", "mine"), ("one", "unheard of")}
    assert may_read(own, "one", told) == {("one", "theirs"), ("one", "unheard of")}
    assert may_read(own, "default", told) == set()


def test_who_names_none_is_read_where_its_heartbeats_went(own: Own) -> None:
    assert said_by(own, "one", "mine") == {"one", "default"}
    assert said_by(own, "one", "both") == {"one"}
    assert said_by(own, "default", "mine") == set()
    told = {("default", cluster) for cluster in ("mine", "both", "theirs", "unheard of", "")}
    assert may_read(own, "one", told) == {("default", "mine")}
    assert may_read(own, "default", told) == set()
