"""Programs that seed their random numbers get the same ones with daskscope as without."""

from __future__ import annotations

import random

import pytest
from distributed import Client, LocalCluster, wait

import daskscope
from daskscope import names
from daskscope.delivery.backoff import Backoff
from tests.exporter.conftest import TOKEN
from tests.exporter.recorder import Recorder
from tests.exporter.test_computations import inc
from tests.exporter.test_traces import span_of


@pytest.mark.own_cluster
def test_what_is_sent_of_a_computation_takes_none_of_them(recorder: Recorder) -> None:
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        random.seed(3)
        before = random.getstate()
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        # Not gathered: Dask draws the worker to ask for a result.
        wait(client.submit(inc, 1))
        span_of(recorder, names.SPAN_COMPUTATION)
    assert random.getstate() == before


def test_nor_do_pauses_between_two_tries() -> None:
    random.seed(3)
    before = random.getstate()
    assert Backoff(1.0).failed() != Backoff(1.0).failed()
    assert random.getstate() == before
