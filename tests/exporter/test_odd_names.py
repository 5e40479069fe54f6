"""Keys, names and texts as odd as Dask and Python let them be: each costs itself at the most."""

from __future__ import annotations

from typing import Any

import pytest
from distributed import Client, LocalCluster

import daskscope
from daskscope import names
from daskscope.observe import naming
from daskscope.observe.errors import failures
from daskscope.observe.tasks import graph_intake
from daskscope.observe.tasks.code import CodeOfGraphs
from daskscope.observe.tasks.graph_matching import Loops
from daskscope.observe.tasks.groups import Group
from daskscope.observe.workers.workers import Workers
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.recorder import Recorder

pytestmark = pytest.mark.contract

#: What Python makes of the byte E9 in the name of a file: "é", but not in UTF-8.
ODD = "relev\udce9"


def same(*values: Any) -> int:
    return len(values)


def fail(*_: Any) -> int:
    raise ValueError("as it should")


def odd_keys(number: int) -> list[Any]:
    """One of each sort that Dask's clients let pass."""
    return [
        1_000 + number,
        number + 0.5,
        f"part-{number}" + 10_000 * "x",
        f"\0\x1b[31m\n{number}",
        (number, 7),
        (number + 0.25, 7),
        ((f"x-{number}", number), 0),
        ((("x", number), (number,)), 0),
        (f"part-{number}" + 10_000 * "x", 0),
        (f"\0\x1b[31m\n{number}", number),
    ]


def test_tasks_are_counted_whatever_their_keys_are(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    keys = [key for number in range(50) for key in odd_keys(number)]
    firsts = [("first", number) for number in range(len(keys))]
    graph: dict[Any, Any] = dict.fromkeys(firsts, (same, "x"))
    graph |= {key: (same, first) for key, first in zip(keys, firsts, strict=True)}
    assert client.get(graph, keys) == [1] * len(keys)

    computation = recorder.computation()
    assert computation.status == "finished"
    assert (computation.tasks, computation.completed) == (1_000, 1_000)
    groups = {row.name: row for beat in recorder.beats for row in beat.task_groups}
    assert sum(row.completed for row in groups.values()) == 1_000
    assert "internal error" not in recorder.beats[-1].drops


@pytest.mark.own_cluster
def test_what_fails_in_a_file_and_a_function_that_are_no_utf8_is_counted(
    recorder: Recorder,
) -> None:
    namespace: dict[str, Any] = {}
    text = "def fail(number):\n    raise ValueError(f'{number}: \\udce9')\n"
    exec(compile(text, f"{ODD}.py", "exec"), namespace)
    odd = namespace["fail"]
    odd.__name__ = odd.__qualname__ = ODD
    odd.__code__ = odd.__code__.replace(co_name=ODD)
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        futures = [client.submit(odd, number, pure=False) for number in range(2)]
        for future in futures:
            with pytest.raises(ValueError, match="\udce9"):
                future.result()

        computation = recorder.computation()
        assert (computation.status, computation.erred) == ("erred", 2)
        recorder.wait_for(lambda: sum(row.count for row in recorder.failures()) == 2, "both")
        failure = recorder.failures()[0]
        assert (failure.function, failure.type) == ("relev?", "ValueError")
        # As Python writes it; either may fail first.
        assert failure.message in (r"ValueError('0: \udce9')", r"ValueError('1: \udce9')")
        assert 'File "relev?.py"' in (failure.traceback or "")
        recorder.wait_for(lambda: recorder.log_records("dask.exception"), "its log record")
        recorder.wait_for(
            lambda: any(("relev?",) in told for told in recorder.points(names.TASK_OUTPUT)),
            "metrics of that function",
        )
        assert "internal error" not in recorder.beats[-1].drops


@pytest.mark.usefixtures("sends_soon")
def test_a_cluster_whose_name_is_no_utf8_sends_all_of_its_logs(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(name=ODD, tags={"team": ODD})
    recorder.wait_for(lambda: recorder.log_records("dask.cluster.started"), "log records")
    recorder.wait_for(lambda: recorder.points(names.WORKER_COUNT), "metrics")
    assert recorder.beats[-1].cluster.name == "relev?"
    assert recorder.beats[-1].cluster.tags == {"team": "relev?"}
    assert "internal error" not in recorder.beats[-1].drops


def _raise(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a fault of ours")


@pytest.mark.uncounted("what was not noted is missing")
@pytest.mark.parametrize(
    ("where", "what"),
    [
        (naming, "_name"),
        (naming, "_named_after"),
        (naming, "_called"),
        (graph_intake, "caller_of"),
        (graph_intake.GraphIntake, "_note_spans"),
        (CodeOfGraphs, "frames"),
        (Loops, "find"),
        (Loops, "remember"),
        (failures, "type_of_failed"),
        (failures, "fingerprint"),
        (failures, "causes_of"),
        (failures, "without_key"),
        (failures.Failures, "add"),
        (Workers, "vanished"),
        (Group, "finished"),
        (Group, "failed"),
    ],
    ids=lambda it: it if isinstance(it, str) else it.__name__,
)
def test_an_error_in_noting_one_thing_costs_that_thing(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    what: str,
) -> None:
    register()
    monkeypatch.setattr(where, what, _raise)
    futures = [client.submit(same, number, pure=False) for number in range(3)]
    futures.append(client.submit(fail, futures))
    assert client.gather(futures[:3]) == [1, 1, 1]
    with pytest.raises(ValueError, match="as it should"):
        futures[3].result()

    def all_told() -> bool:
        rows = recorder.computations().values()
        states = [row.states for row in rows]
        return (
            sum(told.get("memory", 0) for told in states) == 3
            and sum(told.get("erred", 0) for told in states) == 1
            and all(row.status in ("finished", "erred") for row in rows)
        )

    recorder.wait_for(all_told, "an end of each, as it ended")
    if (where, what) != (failures.Failures, "add"):
        recorder.wait_for(lambda: [row.count for row in recorder.failures()] == [1], "the failure")
    del futures
