"""What daskscope costs a scheduler, against none and against a span per task.

All variants run side by side, each on a cluster of its own, and take turns. Machines are noisy, so
that rounds are compared one by one, and the order changes with each. Two equal schedulers differ by
some percent for as long as they live, and further rounds do not help: so they are made anew every
few rounds, and another one starts first. A second cluster without plugin, the control, shows what
is left of the noise. Tasks come in large graphs, and then one by one, each a graph of its own. The
hooks are in and out of one scheduler by turns, too: that tells more exactly what they cost, but not
what the beats do.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import dask
from distributed import Client

import daskscope
from daskscope.config import settings
from tests.bench.clusters import cluster, cpu, run_tasks, submit_tasks
from tests.bench.hooks import put_hooks_in, take_hooks_out
from tests.bench.inside import bytes_of_beats, close, rss, weigh_beats
from tests.bench.results import Figure, record
from tests.bench.span_per_task import SpanPerTask
from tests.service_process import ServiceProcess

#: Rounds until the clusters are made anew.
ROUNDS_PER_SITTING = 4
#: Of a round's tasks, so many are submitted one by one after it: each costs twice as much.
SHARE_SUBMITTED = 0.25
#: For each of them, rounds with and without the hooks in one scheduler.
TURNS_PER_ROUND = 5

_NONE, _CONTROL, _DASKSCOPE, _SPANS = _VARIANTS = (
    "no plugin",
    "no plugin again (noise)",
    "daskscope",
    "an SDK span per task",
)
MIB = 2**20
_OF_SCHEDULER = (("loop", "event-loop CPU"), ("process", "process CPU"))
_GOALS = {(_DASKSCOPE, "loop"): 1.02, (_DASKSCOPE, "process"): 1.04}

Tell = Callable[[str], None]
Run = Callable[[Client, int, int], None]


class Used(NamedTuple):
    """Seconds of CPU time: of the scheduler's event loop and process, and of the client's thread.

    The client's is the thread that submits tasks and waits for them.
    """

    loop: float
    process: float
    client: float


def measure(rounds: int, tasks: int, tell: Tell) -> tuple[list[Figure], dict[str, Any]]:
    """Run ``rounds`` of ``tasks`` tasks per variant. Return the figures and all that was measured.

    ``tell`` is called with a line for a person who waits.
    """
    used: dict[str, list[Used]] = {name: [] for name in _VARIANTS}
    used_by_submit: dict[str, list[Used]] = {name: [] for name in _VARIANTS}
    submitted = max(round(tasks * SHARE_SUBMITTED), 1)
    with_hooks: list[Used] = []
    without: list[Used] = []
    sizes: list[float] = []
    goodbyes: list[float] = []
    memory: dict[str, list[float]] = {name: [] for name in _VARIANTS}
    done = 0
    while done < rounds:
        sitting = min(ROUNDS_PER_SITTING, rounds - done)
        tell(f"starting a service and {len(_VARIANTS)} clusters …")
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as folder,
            _clusters(folder, done) as clients,
        ):
            clients[_DASKSCOPE].run_on_scheduler(weigh_beats)
            for name, client in clients.items():
                _round(name, client, run_tasks, tasks, done)  # to warm up
            for number in range(done, done + sitting):
                for name in _order(number):
                    used[name].append(_round(name, clients[name], run_tasks, tasks, number + 1))
                for name in _order(number):
                    used_by_submit[name].append(
                        _round(name, clients[name], submit_tasks, submitted, number)
                    )
                tell(_line(number + 1, rounds, used))
            for name, client in clients.items():
                memory[name].append(client.run_on_scheduler(rss) / MIB)
            tell("the hooks in and out of one scheduler …")
            for turn in range(sitting * TURNS_PER_ROUND):
                for hooks in (without, with_hooks) if turn % 2 else (with_hooks, without):
                    change = take_hooks_out if hooks is without else put_hooks_in
                    clients[_DASKSCOPE].run_on_scheduler(change)
                    hooks.append(_round(_DASKSCOPE, clients[_DASKSCOPE], run_tasks, tasks, turn))
            clients[_DASKSCOPE].run_on_scheduler(put_hooks_in)
            goodbyes.append(clients[_DASKSCOPE].run_on_scheduler(close))
            sizes += clients[_DASKSCOPE].run_on_scheduler(bytes_of_beats)
        done += sitting
    more = {
        name: [one - base for one, base in zip(memory[name], memory[_NONE], strict=True)]
        for name in (_DASKSCOPE, _SPANS, _CONTROL)
    }
    rounds_each = min(ROUNDS_PER_SITTING, rounds)
    tasks_each = tasks * (rounds_each + 1) + submitted * rounds_each
    figures = [
        *_figures(used),
        *_figures(used_by_submit, ", submitted"),
        *_figures_of_hooks(with_hooks, without, tasks),
        *(
            Figure.of_values(
                f"memory, {name}",
                values,
                "MiB",
                goal=30.0 if name == _DASKSCOPE else None,
            )
            for name, values in more.items()
        ),
        Figure.of_values("bytes of a beat, as sent", sizes, "B"),
        Figure.of_values("closing, the service there", goodbyes, "s"),
    ]
    return figures, record(
        figures,
        rounds=rounds,
        tasks=tasks,
        seconds=used,
        seconds_by_submit=used_by_submit,
        submitted=submitted,
        seconds_by_turns={"with its hooks": with_hooks, "without": without},
        mebibytes=memory,
        tasks_before_memory=tasks_each,
    )


@contextmanager
def _clusters(folder: str, number: int) -> Iterator[dict[str, Client]]:
    """Start one cluster per variant, and the service that two of them report to.

    Which of them starts first goes by the ``number`` of rounds that have been run.
    """
    with ExitStack() as parts:
        service = parts.enter_context(ServiceProcess(Path(folder, "service")))
        token = service.token()
        clients = {
            name: parts.enter_context(cluster(Path(folder, name.replace(" ", "-"))))
            for name in _order(number // ROUNDS_PER_SITTING)
        }
        # It changes a default of this process, for all its clients; see _round.
        registration = daskscope.register(
            clients[_DASKSCOPE], endpoint=service.url, token=token, name="bench"
        )
        if registration.problem is not None:
            raise RuntimeError(registration.problem)
        clients[_SPANS].register_plugin(SpanPerTask(service.url, token))
        yield clients


def _round(variant: str, client: Client, run: Run, tasks: int, number: int) -> Used:
    before = cpu(client)
    # The code around a call travels only to the cluster that is registered.
    frames = settings().code_frames if variant == _DASKSCOPE else 0
    with dask.config.set({"distributed.diagnostics.computations.nframes": frames}):
        began = time.thread_time()
        run(client, tasks, number * tasks)
        submitting = time.thread_time() - began
    return Used(*cpu(client).since(before), client=submitting)


def _line(number: int, rounds: int, used: dict[str, list[Used]]) -> str:
    last = {name: cpus[-1] for name, cpus in used.items()}
    compared = ", ".join(
        f"{name} {last[name].loop / last[_NONE].loop:.2f} and "
        f"{last[name].process / last[_NONE].process:.2f}"
        for name in (_DASKSCOPE, _SPANS)
    )
    return f"round {number} of {rounds}: {compared} × of no plugin (event loop and process)"


def _order(number: int) -> list[str]:
    """Return who goes after whom: A B C D, D C B A, then B C D A, A D C B, and so on."""
    turn = number // 2 % len(_VARIANTS)
    order = [*_VARIANTS[turn:], *_VARIANTS[:turn]]
    return order[::-1] if number % 2 else order


def _figures(used: dict[str, list[Used]], how: str = "") -> list[Figure]:
    figures = []
    for what, title in (*_OF_SCHEDULER, ("client", "client CPU")):
        seconds = {name: [getattr(one, what) for one in cpus] for name, cpus in used.items()}
        one, other = seconds[_NONE], seconds[_CONTROL]
        # Of the two without a plugin the mean, for it varies less than either.
        base = [sum(pair) / 2 for pair in zip(one, other, strict=True)]
        figures += [
            Figure.of_ratios(f"{title}, {name}{how}", seconds[name], base, _GOALS.get((name, what)))
            for name in (_DASKSCOPE, _SPANS)
        ]
        figures.append(Figure.of_ratios(f"{title}, {_CONTROL}{how}", other, one))
    return figures


def _figures_of_hooks(hooks: list[Used], without: list[Used], tasks: int) -> Iterator[Figure]:
    for what, title in _OF_SCHEDULER:
        ours, base = ([getattr(one, what) for one in cpus] for cpus in (hooks, without))
        yield Figure.of_ratios(f"{title}, its hooks alone", ours, base)
    more = [(one.loop - base.loop) / tasks * 1e6 for one, base in zip(hooks, without, strict=True)]
    yield Figure.of_values("event-loop CPU, its hooks per task", more, "µs")
