"""What submit() costs the thread of a client that has registered, against one that has not.

Both are clients of one scheduler, in turn: what the machine and the scheduler do is the same.
"""

from __future__ import annotations

import gc
import operator
import tempfile
import time
from pathlib import Path

from distributed import Client, wait

import daskscope
from tests.bench.clusters import cluster
from tests.bench.results import Figure
from tests.service_process import ServiceProcess

#: Tasks of a batch: a tenth of a second's work.
TASKS = 500
#: Batches of each client before any is measured.
_WARM_UP = 4

GOAL = 1.10


def measure(rounds: int, tasks: int) -> list[Figure]:
    """Submit ``tasks`` tasks one by one in ``rounds`` batches of each client, the two in turn."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="submit-") as folder:
        with (
            ServiceProcess(Path(folder, "service")) as service,
            cluster(Path(folder, "cluster")) as plain,
            Client(plain.scheduler_info()["address"], set_as_default=False) as registered,
        ):
            daskscope.register(registered, endpoint=service.url, token=service.token())
            for number in range(_WARM_UP + rounds):
                for ours in (False, True) if number % 2 else (True, False):
                    taken = _submit(registered if ours else plain, tasks)
                    if number >= _WARM_UP:
                        seconds[ours].append(taken)
    more = [
        1e6 * (one - other) / tasks
        for one, other in zip(seconds[True], seconds[False], strict=True)
    ]
    return [
        Figure.of_ratios("submit(), a registered client", seconds[True], seconds[False], goal=GOAL),
        Figure.of_values("submit(), a registered client, more per task", more, "µs"),
    ]


def _submit(client: Client, tasks: int) -> float:
    """Return the seconds of CPU that this thread takes to submit them."""
    gc.collect()
    gc.disable()  # which of the two would meet it is chance
    try:
        began = time.thread_time()
        futures = [client.submit(operator.neg, number, pure=False) for number in range(tasks)]
        taken = time.thread_time() - began
    finally:
        gc.enable()
    with client.as_current():
        wait(futures)
    return taken
