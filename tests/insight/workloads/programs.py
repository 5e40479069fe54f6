"""What the workloads do. Started by ``record``, each in a process of its own."""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import dask.array as da
import dask.bag as db
import dask.config
import numpy as np
from dask.base import compute
from dask.delayed import delayed
from distributed import Client, LocalCluster, wait

import daskscope
from daskscope.plugin import NAME
from tests.exporter.truth import Truth
from tests.insight.workloads import on_clusters, on_collections
from tests.insight.workloads.kinds import KINDS, RIGHT, UNCOUNTED, WRONG
from tests.insight.workloads.steps import (
    add_up,
    array,
    digest,
    first_import,
    flaky,
    grow,
    inc,
    parse,
    pause,
    spin,
    touch,
    use,
)
from tests.patience import stretched
from tests.service.counted_rows import assert_service_equals

#: Seconds that a cluster stays after its work, so that its last measurements arrive.
_STAYS = 2.5


def tiny_tasks(client: Client) -> None:
    """Map a function that does next to nothing."""
    wait(client.map(inc, range(8000)))


def tiny_chunks(_: Client) -> None:
    """Cut an array into chunks of some numbers each."""
    x = da.ones(6000, chunks=2)
    (x + 1).sum().compute()


def tiny_delayed(_: Client) -> None:
    """Make a delayed call for each number."""
    compute(*[delayed(inc, pure=False)(n) for n in range(5000)])


def spilling(client: Client) -> None:
    """Keep more than fits into memory, and read it again and again."""
    parts = [client.submit(array, 40, n, pure=False) for n in range(16)]
    wait(parts)
    wait([client.submit(touch, one, two) for one, two in zip(parts, reversed(parts), strict=True)])


def out_of_memory(client: Client) -> None:
    """Need more memory than there is."""
    wait(client.map(grow, [900], pure=False))


def gil(client: Client) -> None:
    """Compute in pure Python with four threads."""
    wait(client.map(spin, [0.9 + n / 1000 for n in range(16)]))


def transfers(client: Client) -> None:
    """Have data on one worker and tasks on the other."""
    first, second = client.scheduler_info()["workers"]
    parts = client.map(array, [60] * 12, range(12), workers=[first], pure=False)
    wait(parts)
    for _ in range(3):
        asked = [client.submit(touch, part, workers=[second], pure=False) for part in parts]
        wait(asked)
        del asked
        time.sleep(0.3)


def straggler(client: Client) -> None:
    """Have one input that takes much longer."""
    wait(client.map(pause, [0.2 + n / 10_000 for n in range(63)] + [14.0]))


def straggling_partition(_: Client) -> None:
    """Likewise, with an array and blocks on a CPU."""

    def block(values: Any, block_id: tuple[int, ...] | None = None) -> Any:
        spin(11.0 if block_id == (5,) else 0.05)
        return values

    da.ones(40, chunks=1).map_blocks(block, dtype=float).sum().compute()


def flaky_work(client: Client) -> None:
    """Fail more often than not, and try again."""
    wait(client.map(flaky, [0.6] * 60, range(60), retries=40, pure=False))


def bad_input(client: Client) -> None:
    """Have one bad input among many."""
    wait(client.map(parse, range(120)))


def dependents(client: Client) -> None:
    """Need the result of a task that failed."""
    parts = client.map(parse, range(60, 80))
    wait(parts)
    time.sleep(1.5)
    others = client.map(use, parts)
    wait(others)


def graph_with_data(client: Client) -> None:
    """Pass data along with the graph."""
    wait([client.submit(touch, np.full(2_500_000, float(n))) for n in range(4)])


def chain(client: Client) -> None:
    """Need one after the other."""
    step = delayed(0.3)
    for _ in range(40):
        step = delayed(pause)(step)
    wait(client.compute(step))


def sleeps(client: Client) -> None:
    """Wait for something outside."""
    wait(client.map(pause, [1.0 + n / 10_000 for n in range(16)]))


def cancelled(client: Client) -> None:
    """Give up half-way."""
    parts = client.map(pause, [0.2 + n / 10_000 for n in range(150)])
    time.sleep(4)
    client.cancel(parts)


def nowhere_to_run(client: Client) -> Any:
    """Ask for what no worker has."""
    waits = client.submit(inc, 1, resources={"GPU": 1})
    time.sleep(33)
    return waits


def nowhere_to_run_gone(client: Client) -> None:
    """Likewise, and give up."""
    waits = nowhere_to_run(client)
    client.cancel([waits])


def two_parts(client: Client) -> None:
    """Have fewer parts than threads."""
    wait(client.map(pause, [12.0, 12.1]))


def idle(client: Client) -> Any:
    """Do nothing, with results that are kept."""
    kept = client.map(inc, range(8))
    wait(kept)
    time.sleep(36)
    return kept


def killed(client: Client) -> Any:
    """Be at work when the process is killed."""
    return client.map(pause, [0.5 + n / 10_000 for n in range(400)])


def spacious(client: Client) -> None:
    """Use a small part of the memory."""
    wait(client.map(spin, [0.5 + n / 10_000 for n in range(24)]))
    time.sleep(10)


# --- healthy --------------------------------------------------------------------------------------


def balanced(client: Client) -> None:
    """Compute with even tasks."""
    wait(client.map(digest, [300 + n for n in range(48)]))


def array_sum(_: Client) -> None:
    """Add up an array, three times, as one does in a notebook."""
    x = da.random.default_rng(0).random((6000, 4000), chunks=(500, 4000))
    for _turn in range(3):
        (x * 2).sum().compute()


def map_reduce(client: Client) -> None:
    """Map, then reduce in a tree."""
    level = client.map(digest, [200 + n for n in range(32)])
    while len(level) > 1:
        level = [client.submit(max, *pair) for pair in zip(level[::2], level[1::2], strict=True)]
    wait(level)


def varied(client: Client) -> None:
    """Have tasks of which some take three times as long as others."""
    wait(client.map(digest, [150 + 300 * (n % 5 == 0) + n for n in range(40)]))


def interactive(client: Client) -> None:
    """Ask for little things, with pauses to read the answers."""
    for turn in range(4):
        wait(client.map(spin, [0.02 + m / 1e5 for m in range(turn, turn + 6)], pure=False))
        time.sleep(1.5)


def hashing(client: Client) -> None:
    """Have more threads than cores, in code that releases the lock."""
    wait(client.map(digest, [500 + n for n in range(24)]))


def pipelined(client: Client) -> None:
    """Move data while other tasks compute."""
    parts = client.map(array, [10] * 24, range(24), pure=False)
    wait([client.submit(add_up, one, two) for one, two in itertools.pairwise(parts)])


def spilled_unread(client: Client) -> None:
    """Keep more than fits into memory, and never look at it again."""
    kept = [client.submit(array, 40, n, pure=False) for n in range(16)]
    wait(kept)
    wait(client.map(digest, [150 + n for n in range(8)]))


def imports(client: Client) -> None:
    """Import something large first."""
    wait(client.map(first_import, range(60)))


def slow_client(client: Client) -> None:
    """Submit small tasks as slowly as a person or an instrument does."""
    for n in range(150):
        client.submit(inc, n).result()
        time.sleep(0.05)


def shared(client: Client) -> None:
    """Be one of two who use the cluster at once."""
    other = Client(client.scheduler_info()["address"], set_as_default=False)

    def theirs() -> None:
        wait(other.map(pause, [0.5 + n / 10_000 for n in range(30)]))

    thread = threading.Thread(target=theirs)
    thread.start()
    time.sleep(0.5)
    wait(client.map(digest, [200 + n for n in range(40)]))
    thread.join()
    other.close()


def few_retries(client: Client) -> None:
    """Fail rarely."""
    wait(client.map(flaky, [0.01] * 200, range(200), retries=5, pure=False))
    wait(client.map(digest, [200 + n for n in range(24)]))


def bag(_: Client) -> None:
    """Count words in a bag."""
    words = db.from_sequence(range(24), npartitions=24).map(lambda n: digest(200 + n))
    words.map(len).frequencies().compute()


_WORK: dict[str, Callable[[Client], Any]] = {
    name: value
    for module in (sys.modules[__name__], on_clusters, on_collections)
    for name, value in vars(module).items()
    if callable(value)
} | {
    "flaky": flaky_work,
    "idle_gone": idle,
    "balanced_cluster": balanced,
}


def _compared(truth: Truth, service: str, token: str, cluster: str) -> str:
    """Wait for the last heartbeats, and say whether the service answers what was counted."""
    until, difference = time.monotonic() + stretched(30), ""
    while time.monotonic() < until:
        try:
            assert_service_equals(truth, service, token, cluster)
        except AssertionError as found:
            difference = str(found)
            time.sleep(0.5)
        else:
            return RIGHT
    print(difference, file=sys.stderr, flush=True)
    return WRONG


def main(name: str, endpoint: str, service: str, token: str, interval: str) -> None:
    """Do the work of a kind on a cluster that reports to ``endpoint``; say so once ``service``, to
    which that leads, answers what an independent count has; and wait for the end of input.
    """
    kind = KINDS[name]
    random.seed(7)
    dask.config.set(
        {
            "daskscope.endpoint": endpoint,
            "daskscope.token": token,
            "daskscope.interval": f"{interval}s",
            "daskscope.spool.directory": "",
            "daskscope.profile.interval": "5s",
            "distributed.worker.memory.terminate": 0.95,
            **{f"daskscope.{key}": value for key, value in kind.settings.items()},
        }
    )
    if name == "other_version":
        on_clusters.with_other_version()
        dask.config.set({"distributed.worker.preload": [on_clusters.OTHER_VERSION]})
    with (
        LocalCluster(
            n_workers=kind.workers,
            threads_per_worker=kind.threads,
            memory_limit=kind.memory,
            processes=kind.processes,
            dashboard_address="127.0.0.1:0",
            name=name.replace("_", "-"),
        ) as cluster,
        Client(cluster) as client,
    ):
        assert cluster.scheduler is not None
        truth = Truth(cluster.scheduler, NAME)
        cluster.sync(truth.begin)
        registration = daskscope.register()
        time.sleep(1)
        wanted = _WORK[name](client)
        time.sleep(_STAYS)
        cluster.sync(truth.end)
        # What is concluded of numbers is worth no more than they are.
        compared = UNCOUNTED
        if kind.ends != "killed" and kind.counted:
            compared = _compared(truth, service, token, str(registration.cluster_id))
        print(compared, flush=True)
        sys.stdin.readline()
        del wanted


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(*sys.argv[1:])
