"""A metric about a worker's process that Dask's own metrics lack; runs on the worker.

This file is also sent to the workers, as text, and runs there (``daskscope.observe.workers.cpu``):
workers may lack daskscope, and have another Python than the scheduler. So it uses only the standard
library, distributed and its dependencies, and ``daskscope.containment`` and
``daskscope.deployment``, which are sent along. It runs on any Python that distributed supports.
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
from daskscope.deployment import deployment_here, instance_type_here

#: The metric's name among the worker's metrics, which its heartbeats contain.
METRIC = "daskscope-process"

#: Calls to the worker itself whose duration has no bound.
CALLS = frozenset(("actor_execute", "run", "run_coroutine"))
#: Operations whose connections stay open while another worker is connected. Nobody waits for an
#: answer.
STREAMS = frozenset(("connection_stream",))
#: Operations that Dask, its dashboard or daskscope calls on an idle worker. Any other operation
#: comes from a program. Each is counted, because a look may miss a short one.
PASSIVE = STREAMS | {
    "ping", "profile", "profile_metadata", "call_stack", "get_logs", "get_monitor_info", "versions",
    "get_story", "plugin-add", "plugin-remove", "free_keys", "terminate", "close",
}  # fmt: skip

#: The prefix of daskscope's own operations.
OURS = "daskscope"

#: Seconds after which a message without progress is ignored: its receiver may be suspended. Some MB
#: that the system buffers count as sent at once.
STALLED = 60.0
#: The longest header, in bytes, for which an idle connection waits.
LONGEST_HEADER = 8

#: The least seconds between two looks at processes, and the largest share of the worker's time that
#: looks may take. With thousands of processes, looks are less frequent.
PAUSE, MOST = 0.4, 0.005
LONGEST_PAUSE = 5.0

_DASKS_FOLDER = os.path.join(os.path.dirname(distributed.__file__), "")

#: The unit of ``ru_maxrss``, in bytes: kilobytes, except on macOS.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class WorkerProcess(WorkerPlugin):
    """Adds a metric to a worker, a tuple of these values: when it was read; the CPU seconds so far;
    the calls in progress; the peak memory of the process in bytes; how it was started, see
    :func:`daskscope.deployment.deployment_of`; whether its GPU is :func:`used_by_others` only; the
    number of operations begun other than :data:`PASSIVE`; the cores of its host; the host's load;
    and the type of its machine, see :func:`daskscope.deployment.instance_type_here`.

    The CPU seconds are those of the process and its child processes, running or ended. The calls in
    progress are those of :data:`CALLS`, such as a method of an actor; other operations that last
    since the previous look, such as a client's direct fetch of a large result; large messages that
    are on their way; and the coroutines of ``client.run(…, wait=False)``.
    """

    def setup(self, worker: Worker) -> None:
        """Add the metric to the worker's heartbeats."""
        self._contained = Contained()
        self._deployment: dict[str, str] = {}
        self._instance_type: str | None = None
        with self._contained:
            self._deployment = deployment_here()
            self._instance_type = instance_type_here()
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
        """Remove the metric from the worker's heartbeats."""
        if worker.metrics.get(METRIC) == getattr(self, "_metric", None):
            worker.metrics.pop(METRIC, None)

    def _read(self, worker: Worker) -> tuple[Any, ...] | None:
        # Dask would log an exception at each heartbeat. None means not measured.
        with self._contained:
            began = time.monotonic()
            if began >= self._due:
                now = cpu_seconds()
                # Seconds of a process that ended without being waited for are lost.
                self._cpu += max(now - self._before, 0.0)
                self._before, self._read_at = now, began
                self._gpu_of_others = False
                with self._contained:  # the driver's library may raise
                    self._gpu_of_others = used_by_others()
                took = time.monotonic() - began
                self._due = began + min(max(PAUSE, took / MOST), LONGEST_PAUSE)
            calls = self._calls(worker) + self._left_to_run.count(worker)
            readings = (self._read_at, self._cpu, calls, peak_memory())
            begun = begun_beside(worker, PASSIVE)
            more = (self._deployment, self._gpu_of_others, begun)
            return (*readings, *more, os.cpu_count(), host_load(), self._instance_type)
        return None

    def _calls(self, worker: Worker) -> int:
        """Return how many calls are in progress, without those that last only a moment."""
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
    """Return a connection's Tornado stream: of TCP, TLS, or a WebSocket of either side.

    Raise AttributeError for other connections.
    """
    if hasattr(connection, "stream"):
        return connection.stream
    if hasattr(connection, "handler"):
        return connection.handler.ws_connection.stream
    return connection.sock.protocol.stream


class Transfers:
    """Detects large messages that are on their way, in or out.

    Dask does not know an incoming message before all of it has arrived, nor one that it has passed
    to the connection. Over a slow network either may take minutes.
    """

    def __init__(self) -> None:
        # By connection with such a message at the last look: bytes read and written, and when they
        # last changed.
        self._before: dict[Any, tuple[int, int, float]] = {}

    def look(self, connections: Iterable[Any], now: float) -> int:
        """Return on how many connections a message progresses; ``now`` is a monotonic time."""
        before, there, count = self._before, {}, 0
        for connection in connections:
            try:  # private attributes of Tornado's stream
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
    """Return how many operations a Dask server has begun, without ``passive`` and our own ones."""
    # Dask counts operations for its dashboard, and moves counts from one component to the next as
    # they age, so their sum is the total.
    begun = 0.0
    for counts in server.counters["op"].components:
        for name, count in counts.items():
            if name not in passive and not name.startswith(OURS):
                begun += count
    return round(begun)


class LeftToRun:
    """Counts users' coroutines on a server of Dask's that nobody waits for: those of
    ``client.run(…, wait=False)``.
    """

    def __init__(self) -> None:
        # Dask's own coroutines that were recognized: it has one for an hour for each worker that
        # left.
        self._dasks: set[Any] = set()

    def count(self, server: Any) -> int:
        """Return how many such coroutines run."""
        group = getattr(server, "_ongoing_background_tasks", None)
        tasks: set[Any] = getattr(group, "_ongoing_tasks", set())
        # Usually there are only Dask's own, one for each connection.
        if len(tasks) <= len(server._comms):
            self._dasks.clear()
            return 0
        tasks = tasks.copy()  # another thread may change the set
        known = self._dasks & tasks
        known.update(task for task in tasks - known if _is_dasks(task.get_coro()))
        self._dasks = known
        return len(tasks) - len(known)


def _is_dasks(coroutine: Any) -> bool:
    file = getattr(getattr(coroutine, "cr_code", None), "co_filename", "")
    return bool(file.startswith(_DASKS_FOLDER))


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes; None if it is unknown."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", "rb") as file:
        # Not ``ru_maxrss``, which on Linux starts with the parent process's memory.
        for line in file:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    with suppress(ImportError, OSError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT
    with suppress(psutil.Error, AttributeError):
        return int(psutil.Process().memory_info().peak_wset)  # on Windows
    return None


def host_load() -> float | None:
    """Return how many processes ran or waited for a core of this host, on average over a minute."""
    with suppress(OSError, AttributeError):  # not on Windows
        return os.getloadavg()[0]
    return None


def used_by_others() -> bool:
    """Return whether only other programs use the GPU that Dask reports for this worker.

    Return False in doubt, such as in a container, where the driver sees other process ids.
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
    """Return the CPU seconds of this process and its child processes so far."""
    ended = os.times()
    seconds = time.process_time() + ended.children_user + ended.children_system
    for process in children():
        with suppress(psutil.Error, OSError):  # it may have ended meanwhile
            used = process.cpu_times()
            seconds += used.user + used.system
            # Only Linux counts children that it has waited for.
            seconds += getattr(used, "children_user", 0.0) + getattr(used, "children_system", 0.0)
    return seconds


def children() -> list[Any]:
    """Return all child processes of this process, recursively."""
    if not _has_children():
        return []
    if not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
        with suppress(psutil.Error, OSError):
            # This goes through all processes of the machine.
            return list(psutil.Process().children(recursive=True))
        return []
    processes: list[Any] = []
    waiting = [os.getpid()]
    while waiting:
        for child in _children_of(waiting.pop()):
            with suppress(psutil.Error, OSError):
                processes.append(psutil.Process(child))
                waiting.append(child)
    return processes


def _has_children() -> bool:
    """Return whether this process has child processes: most workers have none."""
    if not hasattr(os, "waitid"):
        return True
    try:
        # WNOWAIT leaves ended children for other code to wait for.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except OSError:
        pass
    return True


def _children_of(process: int) -> list[int]:
    listed = []
    with suppress(OSError):  # it may have ended
        for thread in os.listdir(f"/proc/{process}/task"):
            with suppress(OSError), open(f"/proc/{process}/task/{thread}/children") as file:
                listed += [int(child) for child in file.read().split()]
    return listed
