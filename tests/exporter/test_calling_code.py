"""The code around a call is read once per place, and is the same as Dask's client reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import dask.config
import pytest
from distributed import Client, LocalCluster, wait
from distributed.client import SourceCode
from hypothesis import given
from hypothesis import strategies as st

import daskscope
from daskscope import calling_code
from daskscope.config import settings
from daskscope.observe.code import cut
from tests.exporter.conftest import TOKEN, Register
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
    register(computation__code__frames=1)
    ignored = "distributed.diagnostics.computations.ignore-modules"

    def read(frames: int) -> Any:
        return client._get_computation_code(nframes=frames)

    counts = []
    for chosen in ({}, {ignored: [*dask.config.get(ignored), r"tests(\.|$)"]}):
        with dask.config.set(chosen):
            counts.append([len(read(frames)) for frames in (0, 1, 2)])
            files = {frame.filename for frame in read(2)}
    # As many as our settings say, or more where Dask's do.
    assert counts[0] == [1, 1, 2]
    assert __file__ not in files


def test_a_frame_that_is_asked_for_by_its_level_is_that_one(
    client: Client, register: Register
) -> None:
    register(computation__code__frames=1)
    (frame,) = client._get_computation_code(1, nframes=1)
    assert frame.code == inspect.getsource(test_a_frame_that_is_asked_for_by_its_level_is_that_one)


def test_what_is_remembered_is_bounded(
    client: Client, register: Register, reads: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling_code, "MAX_PLACES", 2)
    register(computation__code__frames=1)

    def three_places() -> None:
        client._get_computation_code(nframes=1)
        client._get_computation_code(nframes=1)
        client._get_computation_code(nframes=1)

    for _ in range(2):
        three_places()
    assert len(reads) == 6


def test_a_client_that_registers_again_has_its_source_looked_for_once_too(
    client: Client, register: Register, reads: list[object]
) -> None:
    for _ in range(2):
        register(computation__code__frames=1)
        reads.clear()
        client._get_computation_code(nframes=1)
        assert len(reads) == 1


def submit_theirs(client: Client) -> None:
    # What is around a call of ours is told: this is not.
    client.submit(lambda: "of another client").result()


# Whoever has set it may look at it on Dask's dashboard, which keeps it on the cluster.
@pytest.mark.parametrize("dasks_own_setting", [0, 2])
def test_no_code_is_told_of_clients_that_did_not_register_or_refuse_it(
    client: Client,
    cluster: LocalCluster,
    register: Register,
    recorder: Recorder,
    dasks_own_setting: int,
) -> None:
    register()
    with (
        dask.config.set({"distributed.diagnostics.computations.nframes": dasks_own_setting}),
        Client(cluster) as other,
        Client(cluster) as refusing,
    ):
        daskscope.register(refusing, token=TOKEN, computation__code__transmit=False)
        for one in (other, refusing):
            submit_theirs(one)
    client.submit(str, "of the one that registered").result()

    theirs, them, ours = recorder.wait_for(
        lambda: (rows := list(recorder.computations().values()))[2:] and rows, "all three"
    )
    # What was refused is told as such.
    assert [theirs.frames, them.frames] == [(), None]
    assert ours.frames
    recorder.wait_for(lambda: b"of the one that registered" in recorder.bytes, "our code")
    assert b"of another " + b"client" not in recorder.bytes


def test_a_client_that_registers_again_can_refuse(client: Client, register: Register) -> None:
    register()
    register(computation__code__transmit=False)
    assert client._get_computation_code is Client._get_computation_code


def read_here(client: Client) -> Any:
    # far before
    # three before
    # two before
    # one before
    (source,) = client._get_computation_code(nframes=1)
    # one after
    # two after
    # three after
    # far after
    return source


def test_a_client_sends_the_lines_around_its_call_and_one_more_that_shows_that_there_are_more(
    client: Client, register: Register
) -> None:
    register(computation__code__context_lines=2, computation__code__frames=1)
    source = read_here(client)
    text = source.code.removesuffix("\n").split("\n")
    assert (text[0].strip(), text[-1].strip()) == ("# three before", "# three after")
    assert "client._get_computation_code" in text[source.lineno_relative]
    assert source.lineno_frame == read_here.__code__.co_firstlineno + 5


def test_it_sends_all_where_the_settings_of_others_may_ask_for_more(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(computation__code__context_lines=30)
    with Client(cluster) as other:
        daskscope.register(
            other, token=TOKEN, computation__code__context_lines=2, computation__code__frames=1
        )
        assert read_here(other).code == inspect.getsource(read_here)


def test_and_nothing_where_they_refuse_it(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(computation__code__transmit=False)
    with Client(cluster) as other:
        daskscope.register(other, token=TOKEN)
        assert other._get_computation_code is Client._get_computation_code


@given(
    st.lists(st.text("ab\x0c\r", max_size=3), min_size=1, max_size=12),
    st.integers(0, 12),
    st.integers(0, 5),
    st.integers(1, 20),
    st.booleans(),
)
def test_of_what_it_sends_the_same_is_kept_as_of_all(
    lines: list[str], called: int, context: int, max_bytes: int, ends: bool
) -> None:
    whole = SourceCode("\n".join(lines) + "\n" * ends, 100, called, "a.py")
    sent = calling_code._around(whole, context + 1)
    of_sent, of_whole = (
        cut(it.code, it.lineno_frame, it.lineno_relative, it.filename, context, max_bytes)
        for it in (sent, whole)
    )
    assert of_sent == of_whole
