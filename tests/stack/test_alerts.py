"""Every alert fires on what should set it off, and on nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from daskscope import names
from grafana.alerts import Rule
from grafana.rules import RULES
from tests.stack.alerting import MINUTE, firing
from tests.stack.influxdb import DATABASE, InfluxDB, Major
from tests.stack.run import Run

every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.uid)

STEP = 15
INFO, WARN, ERROR = 9, 13, 17

Value = Callable[[float], float | None]
#: When it was told, minutes ago; of what; how serious; and what else it says.
Log = tuple[float, names.LogEvent, int, dict[str, str]]


def always(value: float) -> Value:
    return lambda _: value


@dataclass(frozen=True, kw_only=True)
class Story:
    """What a cluster told in the last minutes; ages are in minutes.

    The values are of their age: ``lambda age: 4 - age``, None where there is none.
    """

    sets_off: tuple[str, ...] = ()
    began: float = 50
    heard: float = 0
    stopped: float | None = None
    threads: float = 4
    idle: Value = lambda _: 0
    processing: Value = lambda age: 5 + age % 3
    computations: float = 1
    managed: float = 300
    unmanaged: float = 300
    limit: float = 1_000
    spilled: float = 0
    dropped: Value = lambda _: None
    logs: tuple[Log, ...] = ()


def ended(age: float, status: str) -> Log:
    return (age, names.LOG_COMPUTATION_FINISHED, INFO, {names.COMPUTATION_STATUS: status})


def left(age: float, reason: str, severity: int) -> Log:
    return (age, names.LOG_WORKER_LOST, severity, {names.WORKER_LOSS_REASON: reason})


STORIES = {
    "works": Story(logs=(ended(5, "finished"), ended(4, "cancelled"))),
    "rests": Story(idle=lambda age: max(0, 20 - age) * 60, processing=always(0)),
    "stopped": Story(heard=12, stopped=12, processing=always(0)),
    "stopped with work": Story(heard=12, stopped=12),
    "failed": Story(logs=(ended(3, "erred"),), sets_off=("computation-failed",)),
    "failed before": Story(logs=(ended(30, "erred"),)),
    "gone with work": Story(
        heard=9, processing=always(5), sets_off=("computation-lost", "cluster-silent")
    ),
    # Its workers went before it, and what they held was to be computed again.
    "gone with the results of what had ended": Story(heard=9, processing=always(5), computations=0),
    # At work without tasks, as in a call of client.run.
    "gone": Story(heard=9, processing=always(0), computations=0, sets_off=("cluster-silent",)),
    "ended without a word": Story(
        heard=9,
        processing=always(0),
        computations=0,
        idle=lambda age: max(0, 20 - age) * 60,
    ),
    "late": Story(heard=1.5),
    "burns": Story(
        idle=lambda age: (120 - age) * 60, processing=always(0), sets_off=("idle-and-burning",)
    ),
    "idle without workers": Story(
        idle=lambda age: (120 - age) * 60, processing=always(0), threads=0
    ),
    "full": Story(managed=700, unmanaged=250, sets_off=("memory-near-its-limit",)),
    "without a limit": Story(limit=0),
    "spills": Story(managed=500, unmanaged=300, spilled=5_000),
    "loses workers": Story(
        logs=tuple(left(age, "process died", ERROR) for age in (12, 5, 4)),
        sets_off=("workers-being-lost",),
    ),
    "lost one": Story(logs=(left(5, "out of memory", ERROR),)),
    "scales down": Story(logs=tuple(left(age, "retired", INFO) for age in range(1, 9))),
    "stuck": Story(processing=always(3), sets_off=("progress-stuck",)),
    "one long task": Story(began=12, processing=always(1)),
    "has a cause": Story(logs=((3, names.LOG_FINDING, WARN, {}),), sets_off=("cause-found",)),
    "had a cause": Story(logs=((30, names.LOG_FINDING, WARN, {}),)),
    "drops": Story(
        dropped=lambda age: 8 - age if age < 8 else None, sets_off=("telemetry-dropped",)
    ),
    "dropped once": Story(
        dropped=lambda age: 4 if age < 12 else None, sets_off=("telemetry-dropped",)
    ),
    "dropped long ago": Story(dropped=always(7)),
    "dropped, then stopped": Story(dropped=always(7), heard=12, stopped=12),
}


@pytest.fixture(scope="module")
def now() -> float:
    return time.time()


@pytest.fixture(scope="module")
def told(
    major: Major, influxd: Path, tmp_path_factory: pytest.TempPathFactory, now: float
) -> Iterator[InfluxDB]:
    """A database in which all stories are told."""
    with InfluxDB(major, influxd, tmp_path_factory.mktemp("alerts")) as database:
        for name, story in STORIES.items():
            answer = requests.post(
                f"{database.url}/write",
                params={"db": DATABASE, "precision": "ms"},
                data="\n".join(_lines(name, story, now)).encode(),
                headers={"Authorization": f"Token {database.token}"},
                timeout=30,
            )
            assert answer.ok, answer.text
        yield database


@every_rule
def test_an_alert_fires_on_what_should_set_it_off_and_not_on_the_rest(
    rule: Rule, told: InfluxDB, now: float
) -> None:
    expected = {name for name, story in STORIES.items() if rule.uid in story.sets_off}
    assert expected, "no story sets it off"

    assert firing(rule, told, now) == expected


def test_a_real_cluster_that_has_stopped_sets_off_only_what_happened(run: Run) -> None:
    """Its failures while they are fresh; a quarter of an hour after its end no more of them."""

    def set_off(at: float) -> set[str]:
        found = {rule.uid for rule in RULES if run.cluster in firing(rule, run.database, at)}
        # A worker of a busy machine may close before it has given its profile, which is counted.
        return found - {"telemetry-dropped"}

    # It loses one worker; on a busy machine others may be ended before they have said goodbye.
    lost = run.database.rows(
        f"""SELECT "body" FROM "logs" WHERE "dask.cluster.id" = '{run.cluster}'
        AND "event.name" = '{names.LOG_WORKER_LOST.name}' AND "severity_number" >= {ERROR}"""
    )
    expected = {"computation-failed"} | ({"workers-being-lost"} if len(lost) > 1 else set())
    assert lost
    assert set_off(run.until) == expected
    assert set_off(run.until + 16 * MINUTE) == set()


def _lines(name: str, story: Story, now: float) -> Iterator[str]:
    """Yield a story in InfluxDB's line protocol, as the collector's exporter writes it."""
    since, until = now - story.began * MINUTE, now - story.heard * MINUTE
    moment = since
    while moment <= until:
        age = (now - moment) / MINUTE
        states = {"processing": story.processing(age), "memory": 2.0, "waiting": 0.0}
        memory = {"managed": story.managed, "unmanaged": story.unmanaged, "spilled": story.spilled}
        points = [
            (names.WORKER_THREADS, {}, story.threads),
            (names.CLUSTER_IDLE, {}, story.idle(age)),
            (names.COMPUTATION_COUNT, {}, story.computations),
            (names.MEMORY_LIMIT, {}, story.limit),
            (names.DROPPED, {names.DROPPED_WHAT: "unsent span"}, story.dropped(age)),
            *((names.TASK_COUNT, {names.TASK_STATE: key}, value) for key, value in states.items()),
            *(
                (names.MEMORY_USED, {names.MEMORY_KIND: key}, value)
                for key, value in memory.items()
            ),
        ]
        for metric, tags, value in points:
            if value is not None:
                measured = "counter" if metric.instrument == "counter" else "gauge"
                yield _line(metric.name, name, tags, f"{measured}={float(value)}", moment)
        moment += STEP
    logs = [*story.logs, (story.began, names.LOG_CLUSTER_STARTED, INFO, {})]
    if story.stopped is not None:
        logs.append((story.stopped, names.LOG_CLUSTER_STOPPED, INFO, {}))
    for age, event, severity, tags in logs:
        tags = {names.EVENT_NAME: event.name, **tags}
        fields = f'severity_number={severity}i,body="told"'
        yield _line("logs", name, tags, fields, now - age * MINUTE)


def _line(measurement: str, cluster: str, tags: dict[str, str], fields: str, at: float) -> str:
    all_tags = {
        names.CLUSTER_ID: cluster,
        names.CLUSTER_NAME: "a cluster",
        names.SERVICE_NAMESPACE: "default",
        **tags,
    }
    written = ",".join(f"{_escaped(key)}={_escaped(value)}" for key, value in all_tags.items())
    return f"{measurement},{written} {fields} {at * 1000:.0f}"


def _escaped(text: str) -> str:
    return text.replace(" ", r"\ ").replace(",", r"\,").replace("=", r"\=")
