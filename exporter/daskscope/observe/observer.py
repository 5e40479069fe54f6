"""Connects all counters to the plugin's hooks, and takes snapshots of the counters.

Over 400 lines: it only connects parts, and all effects of a hook are in one place.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from itertools import islice
from typing import Any, Concatenate, ParamSpec, TypeVar

from dask.typing import Key
from distributed.scheduler import Scheduler, TaskState, WorkerState

from daskscope import protocol
from daskscope.config import Settings
from daskscope.containment import guarded
from daskscope.observe.cluster.cluster import Cluster
from daskscope.observe.cluster.connections import Peer, peer_of
from daskscope.observe.cluster.environment import deployment
from daskscope.observe.cluster.loop_tick_hook import LoopTickHook
from daskscope.observe.cluster.opt_outs import OptOuts
from daskscope.observe.cluster.users import Registrant, Users, is_personal
from daskscope.observe.errors.failures import (
    FailedRun,
    Failures,
    details_of_graph,
    read_failed_run,
)
from daskscope.observe.meanwhile import Meanwhile
from daskscope.observe.messages.events import Events
from daskscope.observe.messages.logs import Logs
from daskscope.observe.messages.stream import Messages
from daskscope.observe.naming import Naming
from daskscope.observe.snapshot_maker import Counters, SnapshotMaker
from daskscope.observe.tasks.code import CodeOfGraphs
from daskscope.observe.tasks.computations import BLAME, MANY, Computations
from daskscope.observe.tasks.dispatch import hand_on_contexts
from daskscope.observe.tasks.graph_intake import GraphIntake
from daskscope.observe.tasks.graphs import Graph, read_graph
from daskscope.observe.tasks.group_index import GroupIndex
from daskscope.observe.tasks.prefixes import Prefixes
from daskscope.observe.tasks.stream import Stream
from daskscope.observe.tasks.unrunnable import Unrunnable
from daskscope.observe.transitions import Transitions
from daskscope.observe.workers.activities import Activities
from daskscope.observe.workers.beats import WorkerBeats
from daskscope.observe.workers.losses import Losses
from daskscope.observe.workers.metrics import BytesMoved, WorkerMetrics
from daskscope.observe.workers.profile import Profiles
from daskscope.observe.workers.sample_weights import Window
from daskscope.observe.workers.workers import Workers
from daskscope.task_context import without_carried

#: Groups whose computations' rows are made at once for a client that asks: 1 µs for each group, and
#: as much for each computation as for 20 (measured: 18, 36 and 227 µs with 1, 20 and 200 groups).
LATEST_GROUPS, AS_GROUPS = 2_000, 20
#: Stands for the function's name if no task failed, but a graph.
NO_TASK = "(graph)"


_Self = TypeVar("_Self", bound="Observer")
_P = ParamSpec("_P")
_Result = TypeVar("_Result")


def _up_to_date(
    method: Callable[Concatenate[_Self, _P], _Result],
) -> Callable[Concatenate[_Self, _P], _Result]:
    """Count all pending transitions before each call of ``method``, which needs their results.

    Too slow for methods that run for each task or graph.
    """

    @wraps(method)
    def count_first(self: _Self, /, *arguments: _P.args, **options: _P.kwargs) -> _Result:
        self.transitions.count()
        return method(self, *arguments, **options)

    return count_first


class Observer:
    """Receives the calls of the scheduler's hooks, and makes snapshots. Not thread-safe."""

    def __init__(
        self,
        scheduler: Scheduler,
        settings: Settings,
        drops: Counter[str],
        *,
        registrant: Registrant,
        sampled: Callable[[str], bool] | None,
        many_wait: Callable[[], None] | None = None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        """``sampled`` returns whether a new trace with that id is sampled; None if no spans are
        sent. See :class:`.Transitions` for ``many_wait``. ``on_tick`` is called at each of Dask's
        ticks of its event loop.
        """
        self._scheduler = scheduler
        self._settings = settings
        self._users = Users(
            registrant.user if registrant.client is None else None,
            drops,
            self._peer_of,
            personal=is_personal(deployment()),
        )
        self.refusals = OptOuts(drops)
        self._drops = drops
        self._naming = Naming(self._drops)
        #: None if the settings forbid it.
        self._stream = Stream(drops) if settings.stream_transmit else None
        self._prefixes = Prefixes(self._naming, self._stream)
        members = self._members = GroupIndex()
        self._failures = Failures(self._drops)
        self._computations = Computations(
            members,
            self._prefixes,
            self._naming,
            self._drops,
            find=scheduler.tasks.get,
            runs_again=self._failures.runs_again,
        )
        self._events = Events(settings.events_allow, self._drops)
        self._workers = Workers()
        moved = BytesMoved(scheduler.cumulative_worker_metrics)
        self._meanwhile = Meanwhile(
            spent=self._workers.spent, threads=self._workers.threads, moved=moved.so_far
        )
        self._beats = WorkerBeats(self._meanwhile.note)
        self._unrunnable = Unrunnable(scheduler, members)
        self.transitions = Transitions(
            scheduler,
            self._computations,
            self._workers,
            self._drops,
            put_back=self._put_back,
            erred=self._erred,
            many_wait=many_wait,
        )
        # A context refers to a span. If that span is not sent, the user's own spans in tasks lack
        # their parent.
        traced = sampled is not None and settings.traces_transmit and settings.otlp_enabled
        self._arrivals = GraphIntake(
            self._computations,
            members,
            self._prefixes,
            self._naming,
            self._drops,
            added=self.transitions.added,
            began=self.refusals.began,
            meanwhile=self._meanwhile,
            callers=settings.traces_transmit,
            sampled=sampled if traced else None,
            places=settings.traces_tasks_per_group if traced else 0,
        )
        self._losses = Losses(
            scheduler,
            self._prefix_of,
            self._drops,
            left=self._workers.unfinished.left,
            unended=self._unended,
            lost=self._lost_with_worker,
            peak=lambda address, used: self._cluster.worker_had(address, used),
            had=lambda memory: self._cluster.process_had(memory),
        )
        self.logs = Logs(
            scheduler, self._computation_of, self._losses.logged, self._naming, self._drops
        )
        self._worker_metrics = WorkerMetrics(
            scheduler.cumulative_worker_metrics, self._naming, self._drops
        )
        self._activities = Activities(self._naming)
        self._cluster = Cluster(
            scheduler,
            settings,
            registrant,
            self._drops,
            refusals=self.refusals,
            at_work=self._at_work,
            worked=self.transitions.worked,
            user_of=lambda client: self._users.user_of(client, self._users_running),
        )
        self.idle = self._cluster.idle
        self._code = CodeOfGraphs(settings.code_context_lines, settings.code_max_bytes, drops)
        #: None if the settings forbid the profile: then no worker is asked for it.
        self.profiles = (
            Profiles(
                scheduler,
                self._naming,
                first=settings.interval,
                interval=settings.profile_interval,
                drops=drops,
            )
            if settings.profile_transmit
            else None
        )
        self.snapshots = SnapshotMaker(
            scheduler,
            Counters(
                self._computations,
                self._prefixes,
                self._workers,
                self._worker_metrics,
                self._activities,
                self._cluster,
                self._meanwhile,
                self._failures,
                self._events,
                self._losses,
                self._code,
                self.logs,
                self.profiles,
                self._stream,
            ),
            drops,
            begin=self._begin_snapshot,
            count_first=self.transitions.count,
        )
        # Whether there may be tasks that belong to no computation.
        self._had_tasks = bool(scheduler.tasks)
        self._stopped = False
        self._stop_handing_on: Callable[[], None] = lambda: None
        for worker in scheduler.workers.values():
            self._add(worker)
            for task in islice(worker.processing, worker.nthreads):
                self._naming.prefix(task)
        # Last, because nobody would remove these hooks if a line after them failed.
        self._ticks = LoopTickHook(
            scheduler,
            self._drops,
            self._cluster.load.look,
            self.transitions.count_if_quiet,
            # dict.values: Dask itself iterates by address, which takes several times as long.
            lambda: self._workers.look_again(dict.values(scheduler.workers)),
            lambda: self._beats.look(dict.values(scheduler.workers)),
            self._meanwhile.look,
            self._unrunnable.look,
            on_tick,
        )
        self._graphs = Messages[Graph](
            scheduler,
            "update-graph",
            partial(read_graph, drops=drops),
            drops,
            pass_on=without_carried,
        )
        self._failed_runs = Messages[FailedRun](scheduler, "task-erred", read_failed_run, drops)
        self._secessions = Messages[None](scheduler, "long-running", self._secedes, drops)

    def stop(self) -> None:
        """Remove all hooks from the scheduler and its event loop. The next snapshot is the last."""
        self._stopped = self.snapshots.is_last = True
        self._stop_handing_on()
        self._graphs.stop()
        self._failed_runs.stop()
        self._secessions.stop()
        self._ticks.stop()

    def hand_on_contexts(self) -> None:
        """Send tasks with their trace context from now on. Call it once all workers can read it."""
        if not self._stopped:
            self._stop_handing_on = hand_on_contexts(self._scheduler, self._members, self._drops)

    def client_is(self, client: str, user: str, refused: frozenset[str]) -> None:
        """Store the client's user and opt-outs, which Dask does not know."""
        self._users.client_is(client, user, sends_code="code_transmit" not in refused)
        self.refusals.client_refuses(client, refused)

    # --- hooks ------------------------------------------------------------------------------------

    def update_graph(self, client: str, keys: Sequence[Key]) -> bool:
        """Handle a graph that has arrived. Its tasks have not made a transition yet.

        Return whether so much has changed that it should be sent before the next heartbeat.
        """
        graph = self._graphs.current()
        if graph is not None and graph.of_task is not None and graph.caller is None:
            graph = guarded(self._drops, graph, self._arrivals.sent_by_task, graph)
        find = self._scheduler.tasks.get
        if self._had_tasks:
            # Pending transitions of earlier tasks must not count for new tasks with the same keys.
            self.transitions.count()
        elif keys and graph is not None:
            # The task that was asked for is the first of Dask's list.
            task = find(keys[0])
            if (
                task is not None
                and len(task.dependencies) == len(keys) - 1
                and self._arrivals.again(task, client, graph)
            ):
                return False
        self._arrivals.graph(
            [task for task in map(find, keys) if task is not None],
            client=client,
            user=lambda: self._users.user_of(client, self._users_running),
            frames=self._frames(client, graph),
            graph=graph,
            count_first=self.transitions.count,
        )
        return self._computations.waiting() >= MANY

    def _peer_of(self, client: str) -> Peer | None:
        stream = self._scheduler.client_comms.get(client)
        return None if stream is None else guarded(self._drops, None, peer_of, stream.comm)

    def _frames(self, client: str, graph: Graph | None) -> tuple[protocol.CodeFrame, ...]:
        sends = graph is not None and self._users.sends_code(client)
        if graph is None or not sends:
            return ()
        return guarded(self._drops, (), self._code.frames, graph.code)

    def _no_task_of_graph(self, client: str, *, cancelled: bool) -> None:
        """Handle a graph of which Dask made no task. Call it while Dask handles the error."""
        graph = self._graphs.current()
        computation = self._arrivals.of_no_task(
            client=client,
            user=self._users.user_of(client, self._users_running),
            frames=self._frames(client, graph),
            graph=graph,
            cancelled=cancelled,
        )
        error = sys.exception()
        if error is not None and not cancelled:
            # Dask raises its own error from the user's, which is the cause.
            details = details_of_graph(error.__cause__ or error)
            self._failures.add(computation, NO_TASK, "", details)

    def _at_work(self) -> bool:
        if self._had_tasks:
            return self.idle.work() is not None
        return bool(self._computations.running()) or self.idle.asked() is not None

    @_up_to_date
    def _users_running(self) -> Collection[str]:
        return self._computations.users_running

    def _put_back(self, task: TaskState) -> None:
        run = self._failed_runs.current()
        if run is not None and run.key == task.key and run.run_id == task.run_id:
            # It failed and runs once more. Only the worker's message shows that it failed.
            guarded(self._drops, None, self._failed, task, run.details, retried=True)
            self._computations.failed_for_now(task, run.details)
        else:
            self._workers.vanished(task)
            workers = dict.values(self._scheduler.workers)
            guarded(self._drops, None, self._workers.unfinished.cancelled, task, workers)

    def _erred(self, task: TaskState, start: str, details: dict[str, Any]) -> str:
        """Note a failure, if there was one. Return the task's state before."""
        if start == "released" and task.actor and task.exception_blame is task:
            # Older Dask reports this for a lost actor, although it was in memory until now.
            start = "memory"
        if start == "processing" and not details.get("startstops"):
            guarded(self._drops, None, self._workers.vanished, task)
        # The transition of an actor that is lost with its worker has no cause.
        if details.get("cause") == task.key or start == "memory":
            guarded(self._drops, None, self._failed, task, details)
        elif task.exception_blame is not None:
            details[BLAME] = self._members.group_of(task.exception_blame)
        return start

    def _secedes(self, message: Mapping[str, Any]) -> None:
        task = self._scheduler.tasks.get(message["key"])
        worker = None if task is None else task.processing_on
        # Dask detects late messages in the same way.
        if task is None or worker is None or worker.address != message["worker"]:
            return
        if message.get("run_id", task.run_id) == task.run_id:
            self._workers.secedes(task, worker)

    @_up_to_date
    def _computation_of(self, task: TaskState) -> str | None:
        return self._computations.computation_of(task)

    @_up_to_date
    def latest_computations(self) -> list[protocol.Computation]:
        """Return the rows of computations that run or ended a moment ago, the newest if many."""
        rows, left = [], LATEST_GROUPS
        for one in reversed(self._computations.latest()):
            left -= AS_GROUPS + len(one.groups)
            if left < 0:
                break
            rows.append(one.row())
        return rows[::-1]

    @_up_to_date
    def _unended(self, tasks: Collection[TaskState]) -> list[TaskState]:
        return [task for task in tasks if not self._computations.runs_after_end(task)]

    @_up_to_date
    def _lost_with_worker(self, tasks: Collection[TaskState]) -> dict[str, int]:
        return self._computations.lost_with_worker(tasks)

    @_up_to_date
    def _prefix_of(self, task: TaskState) -> str:
        return self._naming.prefix(task)

    def _failed(
        self, task: TaskState, details: Mapping[str, Any], *, retried: bool = False
    ) -> None:
        computation, function = self._computation_of(task), self._prefix_of(task)
        self._failures.add(computation, function, task.key, details, retried=retried)

    def add_worker(self, address: str) -> None:
        """Handle a worker that has joined."""
        self._add(self._scheduler.workers[address])

    @_up_to_date
    def remove_worker(self, address: str) -> None:
        """Handle a worker that has left."""
        removals = (
            self._workers.removed,
            self._prefixes.worker_removed,
            self._cluster.worker_removed,
        )
        for removed in removals:
            guarded(self._drops, None, removed, address)

    def _stolen(self, message: Any) -> None:
        # A stolen task makes no transition. Mere requests to steal come many times a second and
        # move nothing.
        if message[0] == "confirm":
            _, _, _, victim, thief, *_ = message
            for address in (victim, thief):
                self._workers.look(self._scheduler.workers.get(address))

    def log_event(self, topic: str, message: Any) -> None:
        """Handle an entry of Dask's event log."""
        if (
            type(message) is dict
            # By type, because another plugin's values may do anything when compared.
            and type(action := message.get("action")) is str
            and action == "update-graph"
            and type(status := message.get("status")) is str
            and status == "OK"
        ):
            # Dask logs each graph, also as the scheduler's, and a loop may send thousands.
            self._events.add(topic, message)
            return
        worker = self._scheduler.workers.get(topic)
        if worker is not None:
            # It may have been paused, which makes no transition, because it keeps its tasks.
            self._workers.look_closely(worker)
        elif topic == "stealing":
            guarded(self._drops, None, self._stolen, message)
        elif topic != "scheduler" and type(message) is dict:
            # Dask also logs each graph, with the client's id as the topic.
            status = message.get("status")
            if status in ("error", "cancelled") and message.get("action") == "update-graph":
                cancelled = status == "cancelled"
                guarded(self._drops, None, self._no_task_of_graph, topic, cancelled=cancelled)
        guarded(self._drops, None, self._losses.event, topic, message)
        self._events.add(topic, message)

    @_up_to_date
    def tasks_dropped(self) -> None:
        """Handle that the scheduler has dropped all its tasks."""
        self._computations.cancel_all()

    @_up_to_date
    def _add(self, worker: WorkerState) -> None:
        for added in (self._workers.added, self._losses.added, self._cluster.worker_added):
            guarded(self._drops, None, added, worker)

    def _begin_snapshot(self, phase: protocol.Phase) -> None:
        if phase == "stop":
            self._computations.cancel_all()
        self._had_tasks = self._had_tasks and bool(self._scheduler.tasks)
        self._meanwhile.expect_heartbeats(self._beats.interval)
        self._meanwhile.look_at_bytes()
        waited, self._unrunnable.seen = self._unrunnable.seen, set()
        self._computations.waited(waited)

    def profile_window(self, *, leaving: Collection[str] | None = None) -> Window | None:
        """Return the part of the workers' profile to read now, right after a snapshot; or None.

        For workers that are ``leaving``, by their addresses, a part can be read at any time.
        """
        if self.refusals.by_any("profile_transmit"):
            return None
        return self.snapshots.profile_window(leaving=leaving)
