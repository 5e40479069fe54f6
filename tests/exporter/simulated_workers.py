"""Workers that are workers to the scheduler alone: a connection each, and no process.

They register, beat once, say of each task at once that it is done, may pause, and leave. What they
hold nobody can fetch. How long a task took is as they are told to say.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from typing import Any

from distributed import Client
from distributed.comm.core import Comm, CommClosedError, connect

THREADS, MEMORY_LIMIT, MEMORY = 2, 2**30, 2**20

_numbers = count(1)


class SimulatedWorkers:
    """Some of a cluster's workers. Everything runs on the client's event loop."""

    def __init__(self, client: Client, seconds_of: Callable[[str], float] = lambda key: 0) -> None:
        self._client = client
        self._seconds_of = seconds_of
        self._scheduler = client.scheduler_info()["address"]
        self._comms: list[Comm] = []
        self._readers: list[asyncio.Task[None]] = []

    def come(self, number: int) -> None:
        """Let so many more register."""
        self._client.sync(self._come, number)

    def pause(self) -> None:
        """Let all of them take no more tasks, as they do for lack of memory."""
        self._client.sync(self._pause)

    def leave(self) -> None:
        """Let all of them go without a word."""
        self._client.sync(self._leave)

    async def _come(self, number: int) -> None:
        # Not all at once: the scheduler takes so many connections at a time.
        for _ in range(0, number, 50):
            comms = await asyncio.gather(*(self._register() for _ in range(min(50, number))))
            self._comms += comms
            self._readers += [asyncio.create_task(self._work(comm)) for comm in comms]

    async def _register(self) -> Comm:
        serial = next(_numbers)
        comm: Comm = await connect(self._scheduler, deserialize=False)
        await comm.write(
            {
                "op": "register-worker",
                "reply": False,
                "address": f"tcp://10.{serial >> 16}.{serial >> 8 & 255}.{serial & 255}:1",
                "status": "running",
                "server_id": f"simulated-{serial}",
                "nthreads": THREADS,
                "name": f"simulated-{serial}",
                "now": time.time(),
                "resources": {},
                "memory_limit": MEMORY_LIMIT,
                "metrics": {
                    "memory": MEMORY,
                    "managed_bytes": 0,
                    "spilled_bytes": {"memory": 0, "disk": 0},
                    "bandwidth": {"total": 1e8, "workers": {}, "types": {}},
                    "digests_total_since_heartbeat": {},
                    "event_loop_interval": 0.02,
                    "time": time.time(),
                },
                "pid": serial,
                "services": {},
                "local_directory": "",
                "versions": {"packages": {}, "host": {}},
                "nanny": "",
                "extra": {},
                "stimulus_id": "simulated",
            },
            serializers=["msgpack"],
        )
        await comm.read()
        return comm

    async def _pause(self) -> None:
        told = {"op": "worker-status-change", "status": "paused", "stimulus_id": "simulated"}
        for comm in self._comms:
            await comm.write([told])

    async def _leave(self) -> None:
        for comm in self._comms:
            comm.abort()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._comms.clear()
        self._readers.clear()

    async def _work(self, comm: Comm) -> None:
        with suppress(CommClosedError):
            while True:
                messages: Iterable[dict[str, Any]] = await comm.read()
                done = [self._done(each) for each in messages if each["op"] == "compute-task"]
                if done:
                    await comm.write(done)

    def _done(self, task: dict[str, Any]) -> dict[str, Any]:
        now = time.time()
        stop = now + self._seconds_of(task["key"])
        return {
            "op": "task-finished",
            "status": "OK",
            "key": task["key"],
            "run_id": task["run_id"],
            "nbytes": 1,
            "type": b"",
            "typename": "int",
            "metadata": {},
            "thread": 1,
            "startstops": [{"action": "compute", "start": now, "stop": stop}],
            "stimulus_id": "simulated",
        }
