"""The code around a call is read once per place, and is the same as Dask's client reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import dask.config
import pytest
from distributed import Client, wait

from daskscope import calling_code
from daskscope.config import settings
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Whose source was looked for."""
    sources: list[object] = []
    look_for = inspect.getsource

    def noted(thing: Any) -> str:
        sources.append(thing)
        return look_for(thing)

    monkeypatch.setattr(inspect, "getsource", noted)
    return sources


def test_a_loop_has_its_source_looked_for_once(
    client: Client, register: Register, recorder: Recorder, reads: list[object]
) -> None:
    register()
    wait([client.submit(str, number, pure=False) for number in range(50)])

    frames = recorder.computation().frames
    assert frames is not None
    assert frames[-1].file == __file__
    assert len(reads) <= settings().code_frames


def test_each_line_has_its_own_whatever_calls_it(client: Client, register: Register) -> None:
    register()

    def here() -> Any:
        return client._get_computation_code(nframes=2)

    def of_dask() -> Any:
        return Client._get_computation_code(nframes=2)

    def lines(read: Callable[[], Any]) -> list[int]:
        found = []
        for _ in range(2):
            found.append(read()[-2].lineno_frame)
            found.append(read()[-2].lineno_frame)
        return found

    ours = lines(here)
    assert ours == lines(of_dask)
    assert len(set(ours)) == 2
    assert {frame.filename for frame in here()} == {__file__}


def test_how_many_frames_and_which_are_ignored_is_heeded_each_time(
    client: Client, register: Register
) -> None:
    register()
    ignored = "distributed.diagnostics.computations.ignore-modules"

    def read(frames: int) -> Any:
        return client._get_computation_code(nframes=frames)

    counts = []
    for chosen in ({}, {ignored: [*dask.config.get(ignored), r"tests(\.|$)"]}):
        with dask.config.set(chosen):
            counts.append([len(read(frames)) for frames in (0, 1, 2)])
            files = {frame.filename for frame in read(2)}
    assert counts[0] == [0, 1, 2]
    assert __file__ not in files


def test_a_frame_that_is_asked_for_by_its_level_is_that_one(
    client: Client, register: Register
) -> None:
    register()
    (frame,) = client._get_computation_code(1, nframes=1)
    assert frame.code == inspect.getsource(test_a_frame_that_is_asked_for_by_its_level_is_that_one)


def test_what_is_remembered_is_bounded(
    client: Client, register: Register, reads: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling_code, "MAX_PLACES", 2)
    register()

    def three_places() -> None:
        client._get_computation_code(nframes=1)
        client._get_computation_code(nframes=1)
        client._get_computation_code(nframes=1)

    for _ in range(2):
        three_places()
    assert len(reads) == 6


def test_a_client_that_registers_again_is_wrapped_once(client: Client, register: Register) -> None:
    register()
    ours = client._get_computation_code
    register()
    assert client._get_computation_code is ours
