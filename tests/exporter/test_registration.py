"""How the plugin gets into a scheduler, and what its user is told."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import pkgutil
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from inspect import currentframe
from pathlib import Path
from typing import Any

import dask.config
import pytest
from distributed import Client, LocalCluster

import daskscope
from daskscope import admission, plugin
from daskscope.config import Settings, path_of
from daskscope.defaults import leaves
from daskscope.observe.cluster import environment
from tests import forked
from tests.exporter import counted_preload
from tests.exporter.conftest import TOKEN, Register, close_plugin, wait_for_worker_logs
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.patience import START_PATIENCE, wait_until

pytestmark = pytest.mark.contract


def inc(x: int) -> int:
    return x + 1


def fail(text: str) -> None:
    raise ValueError(text)


def test_every_public_name_is_there() -> None:
    assert all(getattr(daskscope, name) is not None for name in daskscope.__all__)
    assert daskscope.__all__ == sorted(daskscope.__all__, key=lambda name: (name.islower(), name))
    # Python would put a module in the place of the function of that name, once it is imported.
    modules = {module.name for module in pkgutil.iter_modules(daskscope.__path__)}
    assert not modules & set(daskscope.__all__)


def test_the_result_has_a_type() -> None:
    assert inspect.signature(daskscope.register).return_annotation == "Registration"


def test_the_result_shows_the_page(register: Register, recorder: Recorder) -> None:
    registration = register()
    url = f"{recorder.url}/clusters/{registration.cluster_id}"
    assert repr(registration) == f"<daskscope: {url}>"
    assert f'<a href="{url}"' in registration._repr_html_()


def test_settings_come_from_dasks_configuration(client: Client, recorder: Recorder) -> None:
    with dask.config.set(
        {
            "daskscope.endpoint": recorder.url,
            "daskscope.token": TOKEN,
            "daskscope.tags": {"a": "b"},
        }
    ):
        daskscope.register(client)
    beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
    assert beat.cluster.tags == {"a": "b"}
    assert {request.headers["Authorization"] for request in recorder.requests} == {
        f"Bearer {TOKEN}"
    }


def test_without_a_token_one_warning_and_no_plugin(client: Client) -> None:
    with pytest.warns(UserWarning, match="daskscope token create") as warnings:
        registration = daskscope.register(client)
    assert len(warnings) == 1
    assert "no token" in repr(registration)
    assert client.submit(inc, 1).result() == 2


def test_what_it_warns_of_is_at_the_users_line(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    lines = []

    async def in_an_asynchronous_program() -> None:
        async with Client(cluster.scheduler_address, asynchronous=True) as other:
            lines.append(currentframe().f_lineno + 1)  # type: ignore[union-attr]
            registering = daskscope.register(other)
            await registering

    def three_times() -> None:
        lines.append(currentframe().f_lineno + 1)  # type: ignore[union-attr]
        daskscope.register(client)
        asyncio.run(in_an_asynchronous_program())
        register(tags={"one": "tag"})
        endpoint = client.sync(_endpoint, client)
        lines.append(currentframe().f_lineno + 1)  # type: ignore[union-attr]
        daskscope.register(client, token=TOKEN, endpoint=endpoint, interval="1h")

    with pytest.warns(UserWarning, match="daskscope:") as warned:
        three_times()
    assert [(warning.filename, warning.lineno) for warning in warned] == [
        (__file__, line) for line in lines
    ]


async def _endpoint(client: Client) -> Any:
    def endpoint(dask_scheduler: Any) -> str:
        return str(dask_scheduler.plugins[plugin.NAME].settings.endpoint)

    return await client._run_on_scheduler(endpoint)


def test_disabled_does_nothing(register: Register, recorder: Recorder) -> None:
    assert "disabled" in repr(register(disabled=True))
    assert not recorder.requests


def test_an_asynchronous_program_may_await_it_where_it_is_off() -> None:
    async def program() -> tuple[daskscope.Registration, daskscope.Registration]:
        with pytest.warns(UserWarning, match="daskscope token create"):
            without_token = await daskscope.register()
        return await daskscope.register(disabled=True), without_token

    assert ["disabled" in repr(one) for one in asyncio.run(program())] == [True, False]


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("endpoint", "localhost:8690", "daskscope.endpoint is 'localhost:8690'; it must be"),
        ("interval", "often", "daskscope.interval is 'often'; it must be a duration"),
        ("tags", ["a"], "daskscope.tags"),
        ("computation__code__transmit", "no", "daskscope.computation.code.transmit"),
        ("scrub", ["("], "daskscope.scrub"),
        ("tokn", "x", "no setting 'tokn'; the settings are: endpoint, token"),
    ],
)
def test_a_wrong_setting_is_named(
    register: Register, setting: str, value: object, message: str
) -> None:
    with pytest.raises(daskscope.ConfigurationError) as error:
        register(**{setting: value})
    assert message in str(error.value)


def test_a_token_of_the_wrong_type_is_not_shown(register: Register) -> None:
    with pytest.raises(daskscope.ConfigurationError) as error:
        register(token=["dsk_secret"])
    assert "dsk_secret" not in str(error.value)


def test_without_a_client_the_error_says_so() -> None:
    with pytest.raises(daskscope.ConfigurationError, match="no Dask client"):
        daskscope.register(token=TOKEN)


@pytest.mark.parametrize("ask", [daskscope.register, daskscope.explain])
def test_what_is_no_client_is_an_error_that_says_what_to_pass(
    cluster: LocalCluster, ask: Callable[[Any], object]
) -> None:
    for given, told in (
        (cluster, "is a LocalCluster; it must be a Dask client"),
        (cluster.scheduler_address, "is a str; it must be a Dask client"),
        ("dsk_a_token", "token=…"),
    ):
        with pytest.raises(daskscope.ConfigurationError) as error:
            ask(given)
        assert told in str(error.value)
        assert "dsk_a_token" not in str(error.value)


@pytest.mark.parametrize("ask", [daskscope.register, daskscope.explain])
def test_a_client_that_is_closed_is_an_error_that_says_so(
    cluster: LocalCluster, ask: Callable[[Any], object]
) -> None:
    with Client(cluster) as closed:
        pass
    with pytest.raises(daskscope.ConfigurationError, match="client is closed"):
        ask(closed)


def test_registering_twice_gives_one_plugin_and_tells_nothing_new(
    client: Client, register: Register, recorder: Recorder
) -> None:
    assert repr(register()) == repr(register())
    assert len({beat.seq for beat in recorder.beats}) == len(recorder.beats)
    assert [beat.phase for beat in recorder.beats].count("start") == 1


def test_the_second_one_hears_whose_settings_are_in_force(
    cluster: LocalCluster, register: Register, recorder: Recorder
) -> None:
    register()
    with Client(cluster) as second:
        registration = daskscope.register(
            second, endpoint=recorder.url, token=TOKEN, computation__code__transmit=False
        )
    user = recorder.beats[0].cluster.user
    assert f"settings of {user}@" in repr(registration)


def test_a_second_client_with_another_token_hears_that_it_is_not_in_force(
    cluster: LocalCluster, register: Register, recorder: Recorder
) -> None:
    register()
    with Client(cluster) as second:
        registration = daskscope.register(
            second, endpoint=recorder.url, token="dsk_of_another_workspace", interval="100ms"
        )
    assert registration.not_in_force == ("token",)
    assert f"the settings of {recorder.beats[0].cluster.user}@" in repr(registration)
    assert "apply; this call's token ignored" in repr(registration)
    assert "dsk_of" not in repr(registration)
    assert b"dsk_of_another_workspace" not in recorder.bytes


@pytest.mark.uncounted("its first plugin reports nothing")
def test_a_token_and_an_endpoint_that_were_wrong_can_be_put_right(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    with Recorder() as wrong:
        wrong.misbehave = lambda path: 401
        first = register(endpoint=wrong.url, token="dsk_with_a_typo", name="wrong")
        assert "refuses the token" in repr(first)
        with Client(cluster) as second:
            daskscope.register(
                second,
                endpoint=wrong.url,
                token="dsk_with_a_typo",
                computation__exceptions__transmit=False,
            )
            client.submit(inc, 1).result()
            registration = register(name="right")
            assert repr(registration) == f"<daskscope: {registration.url}>"
            assert client.submit(inc, 2).result() == 3
            assert recorder.computation().status == "finished"
            second.submit(fail, "a_refused_text").exception()
            recorder.wait_for(recorder.failures, "the failure")
            wait_for_worker_logs(client)
            close_plugin(client)
    phases = [beat.phase for beat in recorder.beats]
    assert (phases[0], phases.count("start"), phases.count("stop")) == ("start", 1, 1)
    assert {beat.cluster.name for beat in recorder.beats} == {"right"}
    tokens = {request.headers["Authorization"] for request in recorder.arrived}
    assert tokens == {f"Bearer {TOKEN}"}
    # What the second one refused, it refused of whatever service.
    assert recorder.failures()[0].message is None
    # The first plugin has not said that the cluster stopped.
    assert b'"phase":"stop"' not in wrong.bytes


def test_a_plugin_that_was_removed_ends_at_once_and_takes_its_hooks_along(
    cluster: LocalCluster, client: Client, recorder: Recorder
) -> None:
    scheduler: Any = cluster.scheduler

    def hooks() -> dict[str, Any]:
        handlers = {**scheduler.handlers, **scheduler.stream_handlers}
        # What workers may still send afterwards is ignored.
        found = {name: one for name, one in handlers.items() if not name.startswith("daskscope")}
        return {**found, "tick": scheduler.periodic_callbacks["tick"].callback}

    before, sessions = hooks(), []
    for _ in range(3):
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="1h")
        sessions.append(scheduler.plugins[plugin.NAME].session)
        client.unregister_scheduler_plugin(plugin.NAME)
    wait_until(lambda: all(session._done() for session in sessions), what="their threads")
    assert hooks() == before


def test_the_same_client_hears_which_settings_are_not_in_force_and_its_refusals_are(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    with pytest.warns(UserWarning, match=r"were ignored: tags, spool\.max-bytes\.") as warned:
        registration = register(
            tags={"a": "b"}, spool__max_bytes="1 MiB", computation__exceptions__transmit=False
        )
    assert len(warned) == 1
    assert registration.not_in_force == ("tags", "spool.max-bytes")
    assert "ignored: this call's tags, spool.max-bytes" in repr(registration)
    client.submit(fail, "a_refused_text").exception()
    recorder.wait_for(recorder.failures, "the failure")
    assert recorder.failures()[0].message is None
    assert [beat.phase for beat in recorder.beats].count("start") == 1


def test_every_setting_can_be_named() -> None:
    paths = {path for path, _ in leaves()}
    assert {path_of(field.name) for field in fields(Settings)} == paths


def test_a_service_that_does_not_answer_is_not_taken_for_one_that_does(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The scheduler is in this process.
    monkeypatch.setattr(admission, "ANSWER_DEADLINE", 0.1)
    recorder.misbehave = lambda path: "hang"
    registration = register()
    told = f"no answer yet from {recorder.url}; the scheduler keeps trying"
    assert registration.problem == told
    assert f"not delivering yet: {told}" in repr(registration)


def test_two_that_register_at_once_get_one_plugin(
    cluster: LocalCluster, recorder: Recorder
) -> None:
    async def both() -> None:
        settings: dict[str, Any] = {
            "endpoint": recorder.url,
            "token": TOKEN,
            "interval": "100ms",
        }
        async with (
            Client(cluster.scheduler_address, asynchronous=True) as one,
            Client(cluster.scheduler_address, asynchronous=True) as other,
        ):
            first, second = await asyncio.gather(
                daskscope.register(one, **settings), daskscope.register(other, **settings)
            )
        assert first.url == second.url

    # In a thread: another test's browser may have left a loop running in this one.
    with ThreadPoolExecutor() as threads:
        threads.submit(asyncio.run, both()).result()
    recorder.wait_for(lambda: len(recorder.beats) > 5, "some beats")
    assert [beat.phase for beat in recorder.beats].count("start") == 1
    seqs = [beat.seq for beat in recorder.beats]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


# --- schedulers of their own ----------------------------------------------------------------------


def test_a_preloaded_scheduler_reports_without_a_client_that_registers(recorder: Recorder) -> None:
    options = [
        "--preload", "daskscope",
        "--daskscope-endpoint", recorder.url,
        "--daskscope-interval", "100ms",
        "--daskscope-name", "by-preload",
        "--daskscope-events-allow", "mine",
        "--daskscope-computation-code-transmit", "false",
    ]  # fmt: skip
    with (
        scheduler_process(*options, DASK_DASKSCOPE__TOKEN=TOKEN) as scheduler,
        worker_process(scheduler.address),
        Client(scheduler.address, timeout=START_PATIENCE) as client,
    ):
        assert client.submit(inc, 1).result(timeout=START_PATIENCE) == 2
        client.log_event("mine", "hello")
        assert recorder.computation().frames is None
        recorder.wait_for(recorder.events, "the event")
        client.close()
        scheduler.stop()
        assert scheduler.process.returncode == 0

    first, last = recorder.beats[0], max(recorder.beats, key=lambda beat: beat.seq)
    assert (first.phase, last.phase) == ("start", "stop")
    assert first.cluster.name == "by-preload"
    assert first.cluster.kind == "dask scheduler"
    assert [beat.phase for beat in recorder.beats].count("start") == 1


def test_a_client_without_a_token_joins_a_preloaded_scheduler(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "user", lambda: "ada")
    options = ["--preload", "daskscope", "--daskscope-endpoint", recorder.url]
    with (
        scheduler_process(*options, DASK_DASKSCOPE__TOKEN=TOKEN) as scheduler,
        worker_process(scheduler.address),
        Client(scheduler.address, timeout=START_PATIENCE) as client,
    ):
        # No warning: pytest makes errors of them.
        registration = daskscope.register(
            client, interval="100ms", computation__exceptions__transmit=False
        )
        assert registration.url == f"{recorder.url}/clusters/{registration.cluster_id}"
        assert registration.not_in_force == ("interval",)
        client.submit(fail, "a_refused_text").exception(timeout=START_PATIENCE)
        client.close()
        scheduler.stop()
    assert recorder.computation().user == "ada"
    assert recorder.failures()[0].message is None


def test_a_preload_with_wrong_settings_leaves_a_scheduler_that_runs() -> None:
    with scheduler_process(
        *("--preload", "daskscope", "--daskscope-interval", "often"),
        no_plugin="its settings are wrong",
        DASK_DASKSCOPE__TOKEN=TOKEN,
    ) as scheduler:
        with Client(scheduler.address, timeout=START_PATIENCE) as client:
            assert client.scheduler_info()["id"]
        output = scheduler.stop()
    assert "daskscope.interval is 'often'" in output
    assert TOKEN not in output


def test_a_scheduler_without_the_package_gives_three_ways_out_and_logs_no_token(
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import sys

            class Hide:
                def find_spec(self, name, path=None, target=None):
                    if name.split(".")[0] == "daskscope":
                        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

            sys.meta_path.insert(0, Hide())
            """
        )
    )
    with scheduler_process(no_plugin="it is not there", PYTHONPATH=str(tmp_path)) as scheduler:
        with Client(scheduler.address, timeout=START_PATIENCE) as client:
            with pytest.raises(daskscope.NotOnScheduler) as error:
                daskscope.register(client, token=TOKEN)
        output = scheduler.stop()
    message = str(error.value)
    assert scheduler.address in message
    here = f"install daskscope {daskscope.__version__} in the scheduler's environment"
    for way in (here, "register(install=True)", "--preload daskscope"):
        assert way in message
    assert TOKEN not in output


def test_a_script_that_just_ends_still_tells_that_its_cluster_stopped(
    recorder: Recorder, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            from distributed import Client
            import daskscope

            if __name__ == "__main__":
                client = Client(
                    n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50
                )
                print(daskscope.register(endpoint={recorder.url!r}, token={TOKEN!r}, interval="1h"))
                print(client.submit(sum, [1, 2]).result())
            """
        )
    )
    done = forked.run(
        [str(script)],
        os.environ | counted_preload.beside(tmp_path / "differs"),
        timeout=START_PATIENCE,
        program="python",
    )
    assert done.returncode == 0, done.stderr
    assert recorder.url in done.stdout
    counted_preload.assert_equal(tmp_path / "differs")
    last = max(recorder.beats, key=lambda beat: beat.seq)
    assert last.phase == "stop"
    assert [row.status for row in recorder.computations().values()] == ["finished"]


@pytest.mark.uncounted("what was not noted is missing")
@pytest.mark.parametrize("what", ["note", "count"])
def test_hooks_that_fail_are_counted_and_never_logged(
    client: Client,
    register: Register,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
    what: str,
) -> None:
    register()
    caplog.set_level(logging.INFO, logger="distributed")
    client.run_on_scheduler(_break_the_observer, what)
    assert client.gather(client.map(inc, range(10))) == list(range(1, 11))

    recorder.wait_for(
        lambda: next((b for b in recorder.beats if b.drops.get("internal error")), None),
        "a beat that counts the errors",
    )
    assert "Plugin failed" not in caplog.text


def _break_the_observer(what: str, dask_scheduler: object) -> None:
    plugin = dask_scheduler.plugins["daskscope"]  # type: ignore[attr-defined]
    observer = plugin.session.observer

    def broken(*args: object) -> None:
        raise RuntimeError("broken")

    # Snapshots go on: they are what tells of it.
    if what == "note":
        observer._workers.look = broken
    else:
        observer._computations._begins = broken
