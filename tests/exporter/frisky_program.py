"""A program whose work Frisky does, in a cluster that closes when it is idle.

Frisky changes Dask's settings for all of a process, so it is in one of its own.
"""

from __future__ import annotations

import sys
import time

import frisky  # type: ignore[import-untyped]
from distributed import Client, LocalCluster

import daskscope


def nap(number: int) -> int:
    """Take a second that no processor has to do with."""
    time.sleep(1)
    return number


def main(endpoint: str, token: str, count: int) -> None:
    """Print how many of ``count`` tasks came to a result."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(
            client,
            endpoint=endpoint,
            token=token,
            interval="100ms",
            idle__timeout="2s",
            idle__grace="200ms",
        )
        theirs = frisky.hijack(client)
        futures = [theirs.submit(nap, number) for number in range(count)]
        print(sum(future.result() == number for number, future in enumerate(futures)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
