"""What daskscope costs a scheduler, against none and against a span per task.

Machines are noisy: for minutes they may be half as fast as before. So tasks come in short batches,
and all variants run the same one, each on a scheduler of its own, before any runs the next: that is
a round, and the ratio is that of its batches. And two equal schedulers differ by some percent for
as long as they live. So the variants move on: in a sitting each of them has had each scheduler as
often. It is put into it, settles, has its batches, and is taken out again. A second one without
plugin, the control, shows what is left of the noise.

A scheduler at work tells of itself every ten seconds. Here a variant has its last round of large
graphs in a turn when a busy scheduler had some ten seconds of work, and in this round daskscope
tells of them all, and sends it. So the median of the rounds leaves the beats out. The ratio over
all rounds has them in it, and chance moves it more.

Tasks come in large graphs, which the goals are for; and then one by one, each a graph of its own.
Memory is compared between schedulers of the same work.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

from distributed import Client

import daskscope
from tests.bench.clusters import cluster, cpu, run_collection, run_futures, run_tasks, submit_tasks
from tests.bench.inside import Goodbye, close, has_our_plugins, rss, tell_all, weigh_beats
from tests.bench.results import Figure, record
from tests.bench.span_per_task import SpanPerTask, close_spans
from tests.patience import stretched
from tests.service_process import ServiceProcess

#: Rounds of either kind of large graphs while a variant has a scheduler: of graphs of 600 tasks,
#: some ten seconds' work.
ROUNDS = 16
#: For each round of either kind so many of tasks that are submitted one by one.
SHARE_OF_ROUNDS = 0.25
#: For each task of a large graph so many are submitted one by one: each costs twice as much.
SHARE_SUBMITTED = 0.125
#: How often memory is compared, and after how many times as many tasks as a batch has.
MEMORY_TIMES, MEMORY_BATCHES = 3, 8

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
#: Of tasks that are submitted one by one, against no plugin.
_GOALS_SUBMITTED = {
    (_DASKSCOPE, "loop"): 1.05,
    (_DASKSCOPE, "process"): 1.08,
    (_DASKSCOPE, "client"): 1.10,
}
#: Of large graphs: shares of what a span per task costs, because on a machine that takes longer for
#: whatever is added, both cost more.
_GOALS_OF_SPANS = {"loop": 0.15, "process": 0.20}

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


#: What each variant used for the same batch.
Round = dict[str, Used]


@dataclass(slots=True)
class Sitting:
    """Rounds in which each variant had each scheduler as often: of large graphs, as futures and as
    a collection in turn; and of tasks that were submitted one by one.

    ``goodbyes`` tell how daskscope left each scheduler.
    """

    large: list[Round] = field(default_factory=list)
    submitted: list[Round] = field(default_factory=list)
    goodbyes: list[Goodbye] = field(default_factory=list)


class Seat(NamedTuple):
    """Where a variant sits: a scheduler's address, and the service that it may tell."""

    address: str
    service: ServiceProcess


def measure(
    sittings: int, rounds: int, tasks: int, tell: Tell
) -> tuple[list[Figure], dict[str, Any]]:
    """Take ``sittings``, in each turn of which there are so many ``rounds`` of either kind of large
    graphs, of ``tasks`` tasks. Return the figures and all that was measured.

    ``tell`` is called with a line for a person who waits.
    """
    submitted = max(round(tasks * SHARE_SUBMITTED), 1)
    taken: list[Sitting] = []
    for number in range(1, sittings + 1):
        tell("starting a service and four clusters …")
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as parts:
            service = parts.enter_context(ServiceProcess(Path(folder, "service")))
            seats = []
            for name in _VARIANTS:
                owner = parts.enter_context(cluster(Path(folder, name)))
                seats.append(Seat(owner.scheduler_info()["address"], service))
            taken.append(_sitting(seats, rounds, tasks, submitted))
        tell(_line(number, sittings, taken[-1].large))
    memory = _memory(min(sittings, MEMORY_TIMES), tasks, tell)
    more = {
        name: [one - base for one, base in zip(memory[name], memory[_NONE], strict=True)]
        for name in (_DASKSCOPE, _SPANS, _CONTROL)
    }
    goodbyes = [goodbye for one in taken for goodbye in one.goodbyes]
    figures = [
        *_figures([one.large for one in taken], tasks, of_spans=_GOALS_OF_SPANS),
        *_figures(
            [one.submitted for one in taken], submitted, ", submitted", goals=_GOALS_SUBMITTED
        ),
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
        tasks=tasks,
        seconds=[one.large for one in taken],
        submitted=submitted,
        seconds_by_submit=[one.submitted for one in taken],
        mebibytes=memory,
        tasks_before_memory=tasks * MEMORY_BATCHES,
    )


def _sitting(seats: list[Seat], rounds: int, tasks: int, submitted: int) -> Sitting:
    """Give each variant each of the ``seats``."""
    taken = Sitting()
    for turn in range(len(seats)):
        with ExitStack() as parts:
            clients: dict[str, Client] = {}
            for name, seat in zip(_VARIANTS, [*seats[turn:], *seats[:turn]], strict=True):
                # A client of its own: daskscope wraps what it calls.
                client = parts.enter_context(Client(seat.address, set_as_default=False))
                _put_in(name, client, seat.service, interval="1h")
                clients[name] = client
                _batch(client, run_tasks, tasks, 0)  # to warm up
            clients[_DASKSCOPE].run_on_scheduler(tell_all)
            kinds = [run_futures, run_collection] * rounds
            taken.large += _rounds(clients, kinds, tasks)
            kinds = [submit_tasks] * max(round(rounds * SHARE_OF_ROUNDS), 1)
            taken.submitted += _rounds(clients, kinds, submitted)
            for name, client in clients.items():
                taken.goodbyes += _take_out(name, client)
    return taken


def _rounds(clients: Mapping[str, Client], kinds: Sequence[Run], tasks: int) -> list[Round]:
    """Have all variants run so many ``tasks`` of each of ``kinds``. In the last round daskscope
    tells of them all.
    """
    rounds: list[Round] = []
    for number, run in enumerate(kinds, start=1):
        used: Round = {}
        # Of two kinds in turn either comes in each order.
        for name in _order(number // 2):
            tells = number == len(kinds) and name == _DASKSCOPE
            how = partial(_run_and_tell, run) if tells else run
            used[name] = _batch(clients[name], how, tasks, number)
        rounds.append(used)
    return rounds


def _memory(times: int, tasks: int, tell: Tell) -> dict[str, list[float]]:
    """Return the mebibytes of schedulers, one of each variant, after the same work."""
    memory: dict[str, list[float]] = {name: [] for name in _VARIANTS}
    for number in range(times):
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


def _put_in(name: str, client: Client, service: ServiceProcess, **settings: Any) -> None:
    """Put what is measured into the client's scheduler, and wait until all of it works.

    ``settings`` are daskscope's.
    """
    if name == _SPANS:
        client.register_plugin(SpanPerTask(service.url, service.token()))
    elif name == _DASKSCOPE:
        token, until = service.token(), time.monotonic() + stretched(60)
        # The first answer of a busy machine's service may take longer than register waits for it.
        while problem := daskscope.register(
            client, endpoint=service.url, token=token, name="bench", **settings
        ).problem:
            if time.monotonic() > until:
                raise RuntimeError(problem)
        client.run_on_scheduler(weigh_beats)
        client.run(has_our_plugins)
        client.run_on_scheduler(tell_all)


def _take_out(name: str, client: Client) -> list[Goodbye]:
    """Take out what :func:`_put_in` has put in. Return how daskscope left, if it was that."""
    if name == _DASKSCOPE:
        return [client.run_on_scheduler(close)]
    if name == _SPANS:
        client.run_on_scheduler(close_spans)
    return []


def _run_and_tell(run: Run, client: Client, count: int, first: int) -> None:
    run(client, count, first)
    client.run_on_scheduler(tell_all)


def _batch(client: Client, run: Run, tasks: int, number: int) -> Used:
    worker = sum(client.run(time.process_time).values())
    before = cpu(client)
    began = time.thread_time()
    run(client, tasks, number * tasks)
    submitting = time.thread_time() - began
    scheduler = cpu(client).since(before)
    worker = sum(client.run(time.process_time).values()) - worker
    return Used(*scheduler, worker=worker, client=submitting)


def _line(number: int, sittings: int, rounds: list[Round]) -> str:
    compared = ", ".join(
        f"{name} {_ratio(rounds, name, 'loop'):.3f} and {_ratio(rounds, name, 'process'):.3f}"
        for name in (_DASKSCOPE, _SPANS)
    )
    return (
        f"sitting {number} of {sittings}: {compared} × of no plugin (event loop and process) "
        f"over {len(rounds)} rounds"
    )


def _ratio(rounds: list[Round], name: str, what: str) -> float:
    ours, one, other = (sum(_seconds(rounds, what)[it]) for it in (name, _NONE, _CONTROL))
    return 2 * ours / (one + other)


def _order(number: int) -> list[str]:
    """Return who goes after whom: A B C D, D C B A, then B C D A, A D C B, and so on."""
    turn = number // 2 % len(_VARIANTS)
    order = [*_VARIANTS[turn:], *_VARIANTS[:turn]]
    return order[::-1] if number % 2 else order


def _figures(
    sittings: list[list[Round]],
    tasks: int,
    how: str = "",
    *,
    goals: Mapping[tuple[str, str], float] = {},
    of_spans: Mapping[str, float] = {},
) -> list[Figure]:
    """Return the figures of rounds of so many ``tasks``."""
    rounds = [one for sitting in sittings for one in sitting]
    figures = []
    for what, title in _PARTS:
        seconds = _seconds(rounds, what)
        one, other = seconds[_NONE], seconds[_CONTROL]
        base = _mean(one, other)
        figures += [
            Figure.of_ratios(f"{title}, {name}{how}", seconds[name], base, goals.get((name, what)))
            for name in (_DASKSCOPE, _SPANS)
        ]
        figures.append(Figure.of_ratios(f"{title}, {_CONTROL}{how}", other, one))
        per_task = [more / tasks * 1e6 for more in _more(seconds[_DASKSCOPE], base)]
        figures.append(Figure.of_values(f"{title}, {_DASKSCOPE}, per task{how}", per_task, "µs"))
        if what in of_spans:
            # An hour in which the one costs more is one in which the other does, too. Of a single
            # round the difference is mostly noise.
            sums = _seconds([_sum(sitting) for sitting in sittings], what)
            base = _mean(sums[_NONE], sums[_CONTROL])
            more, spans = (_more(sums[name], base) for name in (_DASKSCOPE, _SPANS))
            share = f"{title}, of what spans cost{how}"
            figures.append(Figure.of_ratios(share, more, spans, of_spans[what]))
    return figures


def _seconds(rounds: list[Round], what: str) -> dict[str, list[float]]:
    return {name: [getattr(one[name], what) for one in rounds] for name in _VARIANTS}


def _sum(rounds: list[Round]) -> Round:
    return {name: reduce(Used.and_, (one[name] for one in rounds)) for name in _VARIANTS}


def _mean(one: list[float], other: list[float]) -> list[float]:
    # Of the two without a plugin the mean, for it varies less than either.
    return [sum(pair) / 2 for pair in zip(one, other, strict=True)]


def _more(ours: list[float], base: list[float]) -> list[float]:
    return [one - none for one, none in zip(ours, base, strict=True)]
