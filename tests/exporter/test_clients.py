"""Whose clients are connected, and what they hold; also after the end."""

from __future__ import annotations

import getpass

import pytest
from distributed import Client, LocalCluster, wait

from tests.exporter.conftest import Register, close_plugin
from tests.exporter.recorder import Recorder


def make_bytes(size: int) -> bytes:
    return bytes(size)


def test_who_holds_how_much_is_told_and_is_still_known_once_it_has_stopped(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    held = client.map(make_bytes, [100_000, 200_000], pure=False)
    wait(held)
    status = recorder.wait_for(
        lambda: next(
            (
                beat.status
                for beat in recorder.beats
                if any((one.bytes or 0) >= 300_000 for one in beat.status.connected)
            ),
            None,
        ),
        "a client that holds 300 kB",
    )
    one = max(status.connected, key=lambda one: one.bytes or 0)
    assert (one.user, one.host, one.results) == (getpass.getuser(), "127.0.0.1", 2)
    assert one.bytes is not None
    assert one.bytes < 310_000
    assert one.since <= status.at
    assert status.last_held_by == {}
    close_plugin(client)
    stopped = max(recorder.beats, key=lambda beat: beat.seq).status
    assert stopped.stopped_at is not None
    assert stopped.last_held_by["results"] == 2
    assert stopped.connected == status.connected


@pytest.mark.own_cluster
def test_who_was_connected_is_known_of_a_cluster_that_closes_before_its_second_beat(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    register(interval="1h")
    client.submit(make_bytes, 1).result()
    cluster.close()
    stop = recorder.wait_for(
        lambda: next((beat for beat in recorder.beats if beat.phase == "stop"), None), "the stop"
    )
    assert {one.user for one in stop.status.connected} == {getpass.getuser()}
