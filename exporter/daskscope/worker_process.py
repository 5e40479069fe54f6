"""A metric about a worker's process that Dask's own metrics lack; runs on the worker.

This file is also sent to the workers, as text, and run there (``daskscope.observe.workers.cpu``):
they may lack daskscope, and have another Python than the scheduler. So it needs nothing but the
standard library, distributed with what comes with it, and ``daskscope.containment``, which goes
along with ``daskscope.deployment``; and a Python as old as distributed takes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import distributed
import psutil  # type: ignore[import-untyped]  # distributed needs it, too
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import Worker

from daskscope.containment import Contained
from daskscope.deployment import deployment_here

#: What it is called among the worker's metrics, which come to the scheduler with its beats.
METRIC = "daskscope-process"

#: What others may have asked the worker for itself, that takes as long as it takes.
CALLS = frozenset(("actor_execute", "run", "run_coroutine"))
#: Connections that are open for as long as another worker is: nobody waits there for an answer.
STREAMS = frozenset(("connection_stream",))
#: What an idle worker is asked for although no program asks: by Dask, by its dashboard, by
#: daskscope. Any other operation is a program's; each is counted, as no look may see a short one.
PASSIVE = STREAMS | {
    "ping", "profile", "profile_metadata", "call_stack", "get_logs", "get_monitor_info", "versions",
    "get_story", "plugin-add", "plugin-remove", "free_keys", "terminate", "close",
}  # fmt: skip

#: How the names of operations begin that daskscope added.
OURS = "daskscope"

#: Seconds after which a message that gets no further is given up: its receiver may be suspended.
#: What a system has buffered of it, some MB, counts as gone all at once.
STALLED = 60.0
#: Bytes of the longest header that a connection waits for where nothing is on its way.
LONGEST_HEADER = 8

#: Seconds between two looks at processes, at least; and the most of the worker's time that looks
#: may take, as a share: where there are thousands of processes, they are further apart.
PAUSE, MOST = 0.4, 0.005
LONGEST_PAUSE = 5.0

_DASKS_FOLDER = os.path.join(os.path.dirname(distributed.__file__), "")

#: The unit of ``ru_maxrss``, in bytes: kilobytes, except on macOS.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class WorkerProcess(WorkerPlugin):
    """Adds a metric to a worker: when it was read, the CPU seconds so far, the calls in progress,
    and the most memory that the process has had, in bytes; how it was started: see
    :func:`daskscope.deployment.deployment_of`; True if its GPU is :func:`used_by_others` alone; how
    many operations beside :data:`PASSIVE` there have been; and the cores and the load of its host.

    The seconds are those of the process and its child processes, running or ended. The calls are
    those of :data:`CALLS`, such as a method of an actor; those of any other operation that has gone
    on since the last look, such as a client's that fetches a large result by itself; large messages
    that are on their way; and the coroutines that ``client.run(…, wait=False)`` has left to run.
    """

    def setup(self, worker: Worker) -> None:
        """Take part in the worker's beats from now on."""
        self._contained = Contained()
        self._deployment: dict[str, str] = {}
        with self._contained:
            self._deployment = deployment_here()
        self._gpu_of_others = False
        self._cpu = 0.0
        self._before = cpu_seconds()
        self._read_at = self._due = time.monotonic()
        # Other operations that were in progress at the last look.
        self._others: dict[Any, str] = {}
        self._transfers = Transfers()
        self._left_to_run = LeftToRun()
        self._metric = self._read
        worker.metrics[METRIC] = self._metric

    def teardown(self, worker: Worker) -> None:
        """Leave the worker's beats as they were."""
        if worker.metrics.get(METRIC) == getattr(self, "_metric", None):
            worker.metrics.pop(METRIC, None)

    def _read(self, worker: Worker) -> tuple[Any, ...] | None:
        # Dask would log what it raises, at each beat; None: not measured.
        with self._contained:
            began = time.monotonic()
            if began >= self._due:
                now = cpu_seconds()
                # Of a process that ended and nobody waited for, the seconds are gone.
                self._cpu += max(now - self._before, 0.0)
                self._before, self._read_at = now, began
                self._gpu_of_others = False
                with self._contained:  # what the driver's library raises
                    self._gpu_of_others = used_by_others()
                took = time.monotonic() - began
                self._due = began + min(max(PAUSE, took / MOST), LONGEST_PAUSE)
            calls = self._calls(worker) + self._left_to_run.count(worker)
            found = (self._read_at, self._cpu, calls, peak_memory())
            begun = begun_beside(worker, PASSIVE)
            more = (self._deployment, self._gpu_of_others, begun)
            return (*found, *more, os.cpu_count(), host_load())
        return None

    def _calls(self, worker: Worker) -> int:
        """Return how many calls are in progress. What is over in a moment is none."""
        before, others, count = self._others, {}, 0
        unused: list[Any] = []
        for connection, operation in worker._comms.items():
            if operation in CALLS:
                count += 1
            elif operation is None:
                unused.append(connection)
            elif operation not in STREAMS and not connection.closed():
                others[connection] = operation
                count += before.get(connection) == operation
        self._others = others
        return count + self._transfers.look(unused, time.monotonic())


def _stream_of(connection: Any) -> Any:
    """Return what bytes go through: of TCP and TLS, of a WebSocket that was accepted, of one that
    was opened. AttributeError of other connections.
    """
    if hasattr(connection, "stream"):
        return connection.stream
    if hasattr(connection, "handler"):
        return connection.handler.ws_connection.stream
    return connection.sock.protocol.stream


class Transfers:
    """Sees large messages that are on their way, in or out.

    Dask does not know of a message before all of it has come, nor of one that it has handed to the
    connection: over a slow line either may take minutes.
    """

    def __init__(self) -> None:
        # Where there was one at the last look, how far it was, and when it last got further.
        self._before: dict[Any, tuple[int, int, float]] = {}

    def look(self, connections: Iterable[Any], now: float) -> int:
        """Return on how many of these one gets further, ``now`` by a clock that does not jump."""
        before, there, count = self._before, {}, 0
        for connection in connections:
            try:  # it is of Tornado's, which does not say how far it is
                stream = _stream_of(connection)
                reads = stream._user_read_buffer or (stream._read_bytes or 0) > LONGEST_HEADER
                if not (reads or stream._write_buffer):
                    continue
                read = stream._read_buffer_size if reads else -1
                written = stream._total_write_done_index
            except AttributeError:
                continue
            *known, moved_at = before.get(connection, (read, written, now - STALLED))
            if known != [read, written]:
                moved_at = now
            there[connection] = (read, written, moved_at)
            count += now - moved_at < STALLED
        self._before = there
        return count


def begun_beside(server: Any, passive: Collection[str]) -> int:
    """Return how many operations there have been on a server of Dask's, without the passive ones
    and those that daskscope added.
    """
    # Dask counts operations for its dashboard, and lets counts age: what it takes from one
    # component it puts into the next.
    found = 0.0
    for counts in server.counters["op"].components:
        for name, count in counts.items():
            if name not in passive and not name.startswith(OURS):
                found += count
    return round(found)


class LeftToRun:
    """Counts the coroutines of users' that run on a server of Dask's and that nobody waits for:
    those of ``client.run(…, wait=False)``.
    """

    def __init__(self) -> None:
        # Each is looked at once: Dask's own are there for an hour for each worker that has left.
        self._dasks: set[Any] = set()

    def count(self, server: Any) -> int:
        """Return how many there are."""
        group = getattr(server, "_ongoing_background_tasks", None)
        tasks: set[Any] = getattr(group, "_ongoing_tasks", set())
        # Mostly there is one for each connection, of Dask's own.
        if len(tasks) <= len(server._comms):
            self._dasks.clear()
            return 0
        tasks = tasks.copy()  # they may come and go in another thread
        known = self._dasks & tasks
        known.update(task for task in tasks - known if _is_dasks(task.get_coro()))
        self._dasks = known
        return len(tasks) - len(known)


def _is_dasks(coroutine: Any) -> bool:
    file = getattr(getattr(coroutine, "cr_code", None), "co_filename", "")
    return bool(file.startswith(_DASKS_FOLDER))


def peak_memory() -> int | None:
    """Return the most memory that this process has had, in bytes; None where nobody says."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", "rb") as file:
        # Not ``ru_maxrss``: on Linux that begins with what the process had that started this one.
        for line in file:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    with suppress(ImportError, OSError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT
    with suppress(psutil.Error, AttributeError):
        return int(psutil.Process().memory_info().peak_wset)  # of Windows
    return None


def host_load() -> float | None:
    """Return how many processes ran or waited for a core of this host, on average over a minute."""
    with suppress(OSError, AttributeError):  # not on Windows
        return os.getloadavg()[0]
    return None


def used_by_others() -> bool:
    """Return whether the GPU that Dask reports of this worker is used by other programs alone.

    False in doubt, as where the driver sees the processes of a container by other numbers.
    """
    nvml: Any = sys.modules.get("distributed.diagnostics.nvml")
    if nvml is None or not nvml.is_initialized():
        return False
    gpu, driver = nvml._pynvml_handles(), nvml.pynvml
    users = {
        process.pid
        for kind in ("Compute", "Graphics", "MPSCompute")
        for process in getattr(driver, f"nvmlDeviceGet{kind}RunningProcesses")(gpu)
    }
    if not users or not all(map(psutil.pid_exists, users)):
        return False
    return users.isdisjoint((os.getpid(), *(child.pid for child in children())))


def cpu_seconds() -> float:
    """Return what this process and those that it has started have used of a processor so far."""
    ended = os.times()
    seconds = time.process_time() + ended.children_user + ended.children_system
    for process in children():
        with suppress(psutil.Error, OSError):  # it has ended meanwhile
            used = process.cpu_times()
            seconds += used.user + used.system
            # Only Linux counts those that it has waited for.
            seconds += getattr(used, "children_user", 0.0) + getattr(used, "children_system", 0.0)
    return seconds


def children() -> list[Any]:
    """Return all processes that this one has started, and those that they have."""
    if not _has_children():
        return []
    if not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
        with suppress(psutil.Error, OSError):
            # It goes through all processes of the machine.
            return list(psutil.Process().children(recursive=True))
        return []
    found: list[Any] = []
    waiting = [os.getpid()]
    while waiting:
        for child in _children_of(waiting.pop()):
            with suppress(psutil.Error, OSError):
                found.append(psutil.Process(child))
                waiting.append(child)
    return found


def _has_children() -> bool:
    """Return whether this process has any: most workers have none, and need not look for them."""
    if not hasattr(os, "waitid"):
        return True
    try:
        # It leaves to others what they wait for.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except OSError:
        pass
    return True


def _children_of(process: int) -> list[int]:
    listed = []
    with suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{process}/task"):
            with suppress(OSError), open(f"/proc/{process}/task/{thread}/children") as file:
                listed += [int(child) for child in file.read().split()]
    return listed
