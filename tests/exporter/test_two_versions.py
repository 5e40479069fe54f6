"""A client and a scheduler with two versions of daskscope: a refusal stays what it is."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import daskscope
from daskscope import admission, config, plugin, registration
from daskscope.observe.cluster.users import Registrant
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.dask_process import SchedulerProcess, scheduler_process
from tests.exporter.recorder import Recorder
from tests.patience import START_PATIENCE

pytestmark = pytest.mark.contract

EXCEPTIONS, PROFILE = "    exceptions_transmit: bool\n", "    profile_transmit: bool\n"

Start = Callable[..., Any]


@pytest.fixture
def scheduler_of_other(tmp_path: Path) -> Start:
    """Start a scheduler with this daskscope, but for some texts in the module of its settings."""

    @contextmanager
    def start(*changes: tuple[str, str]) -> Iterator[SchedulerProcess]:
        there = tmp_path / "daskscope"
        shutil.copytree(Path(daskscope.__file__).parent, there)
        text = (there / "config.py").read_text()
        for this, that in changes:
            assert this in text
            text = text.replace(this, that)
        (there / "config.py").write_text(text)
        with scheduler_process(PYTHONPATH=str(tmp_path)) as scheduler:
            yield scheduler

    return start


def settings_there(client: Client) -> dict[str, Any]:
    def read(dask_scheduler: Any) -> dict[str, Any]:
        return dataclasses.asdict(dask_scheduler.plugins["daskscope"].settings)

    there: dict[str, Any] = client.run_on_scheduler(read)
    return there


def test_settings_in_another_order_are_not_exchanged(
    scheduler_of_other: Start, recorder: Recorder
) -> None:
    with (
        scheduler_of_other((EXCEPTIONS + PROFILE, PROFILE + EXCEPTIONS)) as scheduler,
        Client(scheduler.address, timeout=START_PATIENCE) as client,
    ):
        daskscope.register(
            client,
            endpoint=recorder.url,
            token=TOKEN,
            computation__exceptions__transmit=False,
            prices={"currency": "USD", "thread": 0.06},
        )
        there = settings_there(client)
        assert (there["exceptions_transmit"], there["profile_transmit"]) == (False, True)
        assert there["prices"] == {"currency": "USD", "per_hour": {"thread": 0.06}}
        assert recorder.beats[0].cluster.settings["computation.exceptions.transmit"] == "false"


def test_a_switch_that_the_client_does_not_know_is_off(
    scheduler_of_other: Start, recorder: Recorder
) -> None:
    taken = "        profile_transmit=_flag("
    with (
        scheduler_of_other(
            (PROFILE, "    new_transmit: bool\n    new_count: int\n" + PROFILE),
            (taken, "        new_transmit=True,\n        new_count=7,\n" + taken),
        ) as scheduler,
        Client(scheduler.address, timeout=START_PATIENCE) as client,
    ):
        registration = daskscope.register(client, endpoint=recorder.url, token=TOKEN)
        assert registration.url == recorder.url + f"/clusters/{registration.cluster_id}"
        there = settings_there(client)
        assert (there["new_transmit"], there["new_count"]) == (False, 7)
        assert there["profile_transmit"]


def test_a_setting_that_the_scheduler_does_not_know_is_refused_and_keeps_nobody_out(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scheduler_process() as scheduler:
        with Client(scheduler.address, timeout=START_PATIENCE) as client:
            with monkeypatch.context() as newer:
                newer.setattr(admission, "__version__", "9.9")
                newer.setattr(
                    admission,
                    "by_name",
                    lambda chosen: config.by_name(chosen) | {"new_transmit": 1},
                )
                with pytest.raises(daskscope.ConfigurationError) as refused:
                    daskscope.register(client, endpoint=recorder.url, token=TOKEN)
            for words in (daskscope.__version__, "new_transmit", "9.9", "same version"):
                assert words in str(refused.value)
            assert not recorder.arrived
            assert daskscope.register(client, endpoint=recorder.url, token=TOKEN).problem is None
        output = scheduler.stop()
    assert TOKEN not in output


def test_what_a_newer_client_says_of_itself_keeps_it_from_nothing(
    register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newer(*asked: Any) -> admission.Asked:
        request = admission.asked(*asked)
        return {**request, "registrant": request["registrant"] | {"new": "here"}}

    monkeypatch.setattr(registration, "asked", newer)
    assert register().problem is None
    assert recorder.beats


def test_an_older_scheduler_gets_no_empty_field_that_it_does_not_know() -> None:
    chosen = config.settings(token=TOKEN)
    plain = admission.asked(chosen, Registrant("ada", "laptop"))["registrant"]
    assert plain == {"user": "ada", "host": "laptop", "client": None, "program": ""}
    nightly = {"airflow.dag.id": "nightly"}
    scheduled = admission.asked(chosen, Registrant("ada", "laptop", pipeline=nightly))
    assert scheduled["registrant"] == plain | {"pipeline": nightly}


def test_a_plugin_that_cannot_start_says_why_and_keeps_nobody_out(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("broken there")

    with monkeypatch.context() as there:  # the scheduler is in this process
        there.setattr(plugin, "ObservationSession", broken)
        registration = register()
    assert "not registered" in repr(registration)
    assert "broken there" in repr(registration)
    assert "daskscope" not in client.run_on_scheduler(_plugins)
    assert register().problem is None
    assert recorder.beats


def _plugins(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.plugins)
