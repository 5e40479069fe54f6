"""What daskscope costs a scheduler, against none and against a span per task.

Machines are noisy: for minutes they may be half as fast as before. So tasks come in short batches,
and all variants run the same one, each on a scheduler of its own, before any runs the next. And two
equal schedulers differ by some percent for as long as they live. So the variants move on: in a
round each of them has had each scheduler. It is put into it, settles, has its batches, and is taken
out again. A second one without plugin, the control, shows what is left of the noise.

Tasks come in large graphs, which the goals are for; and one by one, each a graph of its own: of
each there is as much to tell as of a large one. Memory is compared between schedulers of the same
work.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

from distributed import Client

import daskscope
from tests.bench.clusters import cluster, cpu, run_collection, run_futures, run_tasks, submit_tasks
from tests.bench.inside import (
    Goodbye,
    beat,
    close,
    has_our_plugins,
    rss,
    settle,
    weigh_beats,
)
from tests.bench.results import Figure, record
from tests.bench.span_per_task import SpanPerTask, close_spans
from tests.service_process import ServiceProcess

#: Rounds until the schedulers are made anew.
ROUNDS_PER_SITTING = 3
#: Batches of each kind while a variant has a scheduler.
BATCHES = 4
#: For each task of a large graph so many are submitted one by one: each costs twice as much.
SHARE_SUBMITTED = 0.125
#: How often memory is compared, and after how many times as many tasks as a batch has.
MEMORY_SITTINGS, MEMORY_BATCHES = 3, 8

_NONE, _CONTROL, _DASKSCOPE, _SPANS = _VARIANTS = (
    "no plugin",
    "no plugin again (noise)",
    "daskscope",
    "an SDK span per task",
)
MIB = 2**20
_PARTS = (
    ("loop", "event-loop CPU"),
    ("process", "process CPU"),
    ("worker", "worker CPU"),
    ("client", "client CPU"),
)
_GOALS = {(_DASKSCOPE, "loop"): 1.02, (_DASKSCOPE, "process"): 1.04}

Tell = Callable[[str], None]
Run = Callable[[Client, int, int], None]


class Used(NamedTuple):
    """Seconds of CPU time: of the scheduler's event loop and process, the worker, and the client.

    The client's is the thread that submits tasks and waits for them.
    """

    loop: float = 0.0
    process: float = 0.0
    worker: float = 0.0
    client: float = 0.0

    def and_(self, other: Used) -> Used:
        """Return both together."""
        return Used(*map(add, self, other))


@dataclass(slots=True)
class Round:
    """What each variant used: for large graphs, and for tasks that were submitted one by one.

    ``goodbyes`` tell how daskscope left each scheduler.
    """

    large: dict[str, Used] = field(default_factory=lambda: dict.fromkeys(_VARIANTS, Used()))
    submitted: dict[str, Used] = field(default_factory=lambda: dict.fromkeys(_VARIANTS, Used()))
    goodbyes: list[Goodbye] = field(default_factory=list)


class Seat(NamedTuple):
    """Where a variant sits: a scheduler's address, and the service that it may tell."""

    address: str
    service: ServiceProcess


def measure(rounds: int, tasks: int, tell: Tell) -> tuple[list[Figure], dict[str, Any]]:
    """Run ``rounds``, in graphs of ``tasks`` tasks. Return the figures and all that was measured.

    ``tell`` is called with a line for a person who waits.
    """
    submitted = max(round(tasks * SHARE_SUBMITTED), 1)
    taken: list[Round] = []
    for first in range(0, rounds, ROUNDS_PER_SITTING):
        tell("starting a service and four clusters …")
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as parts:
            service = parts.enter_context(ServiceProcess(Path(folder, "service")))
            seats = []
            for name in _VARIANTS:
                owner = parts.enter_context(cluster(Path(folder, name)))
                seats.append(Seat(owner.scheduler_info()["address"], service))
            for number in range(first, min(first + ROUNDS_PER_SITTING, rounds)):
                taken.append(_round(seats, tasks, submitted))
                tell(_line(number + 1, rounds, taken[-1].large))
    memory = _memory(min(rounds, MEMORY_SITTINGS), tasks, tell)
    more = {
        name: [one - base for one, base in zip(memory[name], memory[_NONE], strict=True)]
        for name in (_DASKSCOPE, _SPANS, _CONTROL)
    }
    used = {name: [one.large[name] for one in taken] for name in _VARIANTS}
    used_by_submit = {name: [one.submitted[name] for one in taken] for name in _VARIANTS}
    goodbyes = [goodbye for one in taken for goodbye in one.goodbyes]
    turns = BATCHES * len(_VARIANTS)
    large = turns * 2 * tasks  # as futures, and as a collection
    figures = [
        *_figures(used, large, _GOALS),
        *_figures(used_by_submit, turns * submitted, {}, ", submitted"),
        *(
            Figure.of_values(
                f"memory, {name}",
                values,
                "MiB",
                goal=30.0 if name == _DASKSCOPE else None,
            )
            for name, values in more.items()
        ),
        Figure.of_values(
            "bytes of a beat, as sent", [size for one in goodbyes for size in one.sizes], "B"
        ),
        Figure.of_values("closing, the service there", [one.seconds for one in goodbyes], "s"),
    ]
    return figures, record(
        figures,
        rounds=rounds,
        tasks=large,
        seconds=used,
        seconds_by_submit=used_by_submit,
        submitted=turns * submitted,
        mebibytes=memory,
        tasks_before_memory=tasks * MEMORY_BATCHES,
    )


def _round(seats: list[Seat], tasks: int, submitted: int) -> Round:
    """Give each variant each of the ``seats``."""
    taken = Round()
    for turn in range(len(seats)):
        with ExitStack() as parts:
            clients: dict[str, Client] = {}
            for name, seat in zip(_VARIANTS, [*seats[turn:], *seats[:turn]], strict=True):
                # A client of its own: daskscope wraps what it calls.
                client = parts.enter_context(Client(seat.address, set_as_default=False))
                _put_in(name, client, seat.service)
                clients[name] = client
                _batch(client, run_tasks, tasks, 0)  # to warm up
            for number in range(BATCHES):
                for name in _order(number):
                    # A scheduler at work tells of itself every ten seconds: once in a round.
                    beats = name == _DASKSCOPE and turn == number == 0
                    run = _run_with_a_beat if beats else run_futures
                    took = _batch(clients[name], run, tasks, number + 1)
                    taken.large[name] = taken.large[name].and_(took)
                for name in _order(number):
                    took = _batch(clients[name], run_collection, tasks, number + 1)
                    taken.large[name] = taken.large[name].and_(took)
                for name in _order(number):
                    took = _batch(clients[name], submit_tasks, submitted, number + 1)
                    taken.submitted[name] = taken.submitted[name].and_(took)
            for name, client in clients.items():
                taken.goodbyes += _take_out(name, client)
    return taken


def _memory(sittings: int, tasks: int, tell: Tell) -> dict[str, list[float]]:
    """Return the mebibytes of schedulers, one of each variant, after the same work."""
    memory: dict[str, list[float]] = {name: [] for name in _VARIANTS}
    for number in range(sittings):
        tell("memory of one scheduler of each …")
        for name in _order(number):
            with (
                tempfile.TemporaryDirectory(prefix="bench-") as folder,
                ServiceProcess(Path(folder, "service")) as service,
                cluster(Path(folder, "cluster")) as client,
            ):
                _put_in(name, client, service)
                for turn in range(MEMORY_BATCHES):
                    _batch(client, run_tasks, tasks, turn)
                memory[name].append(client.run_on_scheduler(rss) / MIB)
    return memory


def _put_in(name: str, client: Client, service: ServiceProcess) -> None:
    """Put what is measured into the client's scheduler, and wait until all of it works."""
    if name == _SPANS:
        client.register_plugin(SpanPerTask(service.url, service.token()))
    elif name == _DASKSCOPE:
        registration = daskscope.register(
            client, endpoint=service.url, token=service.token(), name="bench"
        )
        if registration.problem is not None:
            raise RuntimeError(registration.problem)
        client.run_on_scheduler(weigh_beats)
        client.run(has_our_plugins)
        client.run_on_scheduler(settle)


def _take_out(name: str, client: Client) -> list[Goodbye]:
    """Take out what :func:`_put_in` has put in. Return how daskscope left, if it was that."""
    if name == _DASKSCOPE:
        return [client.run_on_scheduler(close)]
    if name == _SPANS:
        client.run_on_scheduler(close_spans)
    return []


def _run_with_a_beat(client: Client, count: int, first: int) -> None:
    client.run_on_scheduler(beat)
    run_futures(client, count, first)
    client.run_on_scheduler(settle)


def _batch(client: Client, run: Run, tasks: int, number: int) -> Used:
    worker = sum(client.run(time.process_time).values())
    before = cpu(client)
    began = time.thread_time()
    run(client, tasks, number * tasks)
    submitting = time.thread_time() - began
    scheduler = cpu(client).since(before)
    worker = sum(client.run(time.process_time).values()) - worker
    return Used(*scheduler, worker=worker, client=submitting)


def _line(number: int, rounds: int, used: dict[str, Used]) -> str:
    none = used[_NONE]
    compared = ", ".join(
        f"{name} {used[name].loop / none.loop:.3f} and {used[name].process / none.process:.3f}"
        for name in (_DASKSCOPE, _SPANS)
    )
    return f"round {number} of {rounds}: {compared} × of no plugin (event loop and process)"


def _order(number: int) -> list[str]:
    """Return who goes after whom: A B C D, D C B A, then B C D A, A D C B, and so on."""
    turn = number // 2 % len(_VARIANTS)
    order = [*_VARIANTS[turn:], *_VARIANTS[:turn]]
    return order[::-1] if number % 2 else order


def _figures(
    used: dict[str, list[Used]],
    tasks: int,
    goals: Mapping[tuple[str, str], float],
    how: str = "",
) -> list[Figure]:
    figures = []
    for what, title in _PARTS:
        seconds = {name: [getattr(one, what) for one in cpus] for name, cpus in used.items()}
        one, other = seconds[_NONE], seconds[_CONTROL]
        # Of the two without a plugin the mean, for it varies less than either.
        base = [sum(pair) / 2 for pair in zip(one, other, strict=True)]
        figures += [
            Figure.of_ratios(f"{title}, {name}{how}", seconds[name], base, goals.get((name, what)))
            for name in (_DASKSCOPE, _SPANS)
        ]
        figures.append(Figure.of_ratios(f"{title}, {_CONTROL}{how}", other, one))
        more, of_spans = (
            [one - none for one, none in zip(seconds[name], base, strict=True)]
            for name in (_DASKSCOPE, _SPANS)
        )
        per_task = [one / tasks * 1e6 for one in more]
        figures.append(Figure.of_values(f"{title}, {_DASKSCOPE}, per task{how}", per_task, "µs"))
        if (_DASKSCOPE, what) in goals:
            # An hour in which the one costs more is one in which the other does, too.
            figures.append(Figure.of_ratios(f"{title}, of what spans cost{how}", more, of_spans))
    return figures
