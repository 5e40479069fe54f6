"""Computations and their task groups, counted from the scheduler's own transitions.

A computation is what one call to compute, persist or submit started; docs/architecture.md says when
a graph joins one, and why a computation that has ended stays ended. Dask's own ``Computation``
includes everything that is submitted while anything runs, and its task groups vanish with their
last task. So this module counts both itself.

Over 400 lines: all changes of a computation and its groups by a task's steps are in one place.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from dask.typing import Key
from dask.utils import key_split
from distributed.metrics import time
from distributed.scheduler import TaskState

from daskscope.containment import contain, guarded
from daskscope.observe.naming import Naming
from daskscope.observe.tasks.computation import ACTIVE, Computation
from daskscope.observe.tasks.group_index import GroupIndex
from daskscope.observe.tasks.groups import Group
from daskscope.observe.tasks.prefixes import Prefixes, PrefixTotals
from daskscope.observe.tasks.runs import DISK_ACTIONS, Run
from daskscope.observe.tasks.unsent import Taken, Unsent

#: Computations that may wait to be sent. More of them do not wait for the next heartbeat.
MANY = 1_000

#: Lines of code whose last computation may resume after its tasks have ended. Beyond it, the one
#: that ended first may not.
MAX_ENDED = 100

#: Ended computations that are checked once more for late data from workers.
MAX_SETTLING = 1_000
#: Ended computations that are checked together: each takes some 5 µs.
SETTLED_AT_ONCE = 100

#: States of a task that was given up, or is not needed any more.
GONE = frozenset({"released", "forgotten"})

#: A transition: the task's key and its two states. Or, for a graph that has arrived: None, a group,
#: and the number of the graph's tasks in that group.
Step = tuple[Any, Any, Any]
#: States in which a task ends that was active.
ENDS = frozenset({"memory", "erred", "released"})
#: Data of a step that ends a task's activity other than by a ``Run`` that ended in memory: the
#: monotonic time, and the details that Dask reports, or ``PUT_BACK``.
End = tuple[float, Mapping[str, Any]]
#: Stands for the details of a task that is released but still wanted: Dask makes it wait again.
PUT_BACK: Mapping[str, Any] = MappingProxyType({})

#: The key by which we add to Dask's details of a task that errs without a run: the group of the
#: task that raised. Dask may have forgotten both tasks by the time they are counted.
BLAME = "daskscope blame"

# How a task ended that may run again: it raised, a task that it needs did, or it was cancelled.
_RAISED, _BLAMED, _CANCELLED = "raised", "blamed", "cancelled"


class Computations:
    """All computations of which the scheduler still stores tasks. ``members`` finds a task's group.

    ``find`` returns the task with a key, if Dask has it. ``runs_again`` is called with the key of a
    task that raised and runs again, in the thread that counts.
    """

    def __init__(
        self,
        members: GroupIndex,
        prefixes: Prefixes,
        naming: Naming,
        drops: Counter[str],
        *,
        find: Callable[[Key], TaskState | None],
        runs_again: Callable[[Key], None],
    ) -> None:
        self._find = find
        self._runs_again = runs_again
        self._members = members
        self._prefixes = prefixes
        self._naming = naming
        self._drops = drops
        # By key: how a task ended, for the few that ended without a result.
        self._ends: dict[Hashable, str] = {}
        # The computations that run.
        self._running: dict[Computation, None] = {}
        #: Computations with active tasks by user: those that run, and ended ones whose lost results
        #: are computed again.
        self.users_running: Counter[str] = Counter()
        # By the line of code that sent them: those that run.
        self._joinable: dict[Hashable, Computation] = {}
        # Likewise, those of whose tasks none was seen active yet.
        self._arrived: dict[Hashable, Computation] = {}
        # Likewise, those whose tasks have ended and that may resume.
        self._ended: dict[Hashable, Computation] = {}
        self._unsent = Unsent(drops, self._never_began)
        # Ended computations, while workers may still report late data about their time.
        self._settling: deque[Computation] = deque(maxlen=MAX_SETTLING)

    def arrived(self, computation: Computation) -> None:
        """Add a computation whose first graph arrives now."""
        self._arrived[computation.line] = computation

    def ended(self, computation: Computation) -> None:
        """Add a computation that has ended without a task."""
        self._unsent.add(computation)

    def settle(self, tasks: Iterable[TaskState]) -> None:
        """Forget how ``tasks`` ended: they are about to run again, in another computation."""
        for task in tasks:
            self._ends.pop(task.key, None)

    def joined_from(self, line: Hashable, *, submitted: bool) -> Computation | None:
        """Return the computation that a graph from that line joins, if any: one that runs or, for a
        ``submitted`` graph, one that may resume. All transitions must have been counted.
        """
        running = self._joinable.get(line)
        if running is not None or not submitted:
            return running
        ended = self._ended.get(line)
        return ended if ended is not None and ended.may_go_on(time()) else None

    def last_from(self, line: Hashable) -> Computation | None:
        """Return the last computation from that line, even while another thread is counting."""
        # A computation moves through them in this order, so it cannot be missed.
        return self._arrived.get(line) or self._joinable.get(line) or self._ended.get(line)

    def count(
        self, steps: Iterable[Step], runs: Iterator[Run], ends: Iterator[End], ahead: float
    ) -> None:
        """Count noted transitions. Dask may have forgotten their tasks meanwhile.

        The wall clock is ``ahead`` seconds ahead of the monotonic clock of their times.
        """
        wholes, singles = self._members.wholes, self._members.singles
        for key, start, finish in steps:
            run = end = None
            if finish in ENDS:
                # As :class:`.Transitions` notes them: leaving memory ends nothing, except for a
                # lost actor.
                if start == "processing" and finish == "memory":
                    run = next(runs)
                elif start != "memory" or finish == "erred":
                    end = next(ends)
            try:
                whole = wholes.get(key[0]) if type(key) is tuple else None
                if whole is None:
                    group = singles.get(key)
                else:  # no call for most tasks
                    group = whole.group_of(key) if whole.elsewhere else whole.group
                if group is None:
                    if key is None:
                        self._add(start, finish)
                    else:
                        self._count_unknown(key, finish, run, end)
                    continue
                states = group.states
                states[start] -= 1
                states[finish] += 1
                if not group.changed:
                    self._unsent.note(group)
                if finish in ACTIVE:
                    if start not in ACTIVE:
                        self._begins(key, group)
                elif run is not None:
                    try:  # inline, because it runs for every task
                        group.finished(run, group.totals or self._totals_of(key))
                    except Exception as error:  # a bad number must not hide that the task ended
                        contain(error, self._drops)
                    self._rests(key, finish, group.computation, run[0] + ahead)
                elif end is not None:
                    at, details = end
                    if finish == "erred" and not self._erred(key, start, group, details):
                        continue
                    if start in ACTIVE:
                        self._rests(key, finish, group.computation, at + ahead, details is PUT_BACK)
                elif finish == "forgotten" and start != finish:
                    if self._ends:
                        self._ends.pop(key, None)
                    if whole is None:
                        del singles[key]
                    else:
                        whole.forget(key)
                        if whole.forgotten >= whole.counted:
                            del wholes[whole.dasks.name]
            except Exception as error:  # go on with the other transitions
                contain(error, self._drops)

    def failed_for_now(self, task: TaskState, details: Mapping[str, Any]) -> None:
        """Count a run of ``task`` that raised an exception and that Dask will repeat."""
        group = self._members.group_of(task)
        if group is not None:
            group.failed_for_now(details, group.totals or self._totals_of(task.key))
        else:
            totals = self._totals_of(task.key)
            totals.retried += 1
            totals.ran(details.get("startstops"), details.get("worker"), "retried")

    def waited(self, computations: Iterable[Computation]) -> None:
        """Send ``computations`` once more: their time without a suitable worker has changed."""
        for computation in computations:
            if computation.groups:
                self._unsent.note_any(computation)

    def runs_after_end(self, task: TaskState) -> bool:
        """Return whether the computation of ``task`` had ended when the task's worker was lost.

        Then the result was lost or is needed after all.
        """
        group = self._members.group_of(task)
        if group is None or not group.computation.over:
            return False
        # Dask gives up tasks before it reports the loss: that may have ended the computation.
        return task.state != "erred" or self._ends.get(task.key) != _RAISED

    def lost_with_worker(self, tasks: Iterable[TaskState]) -> dict[str, int]:
        """Count runs of ``tasks`` that ended with their worker. Return how many, by computation."""
        lost: Counter[str] = Counter()
        for task in tasks:
            group = self._members.group_of(task)
            if group is not None:
                group.computation.lost_runs += 1
                lost[group.computation.id] += 1
                self._unsent.note(group)
        return dict(lost)

    def computation_of(self, task: TaskState) -> str | None:
        """Return the id of the computation that ``task`` is counted under."""
        group = self._members.group_of(task)
        return None if group is None else group.computation.id

    def cancel_all(self) -> None:
        """Cancel all running computations: the scheduler dropped its tasks (restart, close)."""
        now = time()
        for computation in list(self._running):
            computation.cancelled += computation.active
            computation.active = 0
            self._rest(computation, now, given_up=True)
            self._unsent.note_any(computation)
        self._stop_ended(lambda _: True)
        self.users_running.clear()
        self._arrived.clear()
        self._members.clear()
        self._ends.clear()

    def running(self) -> int:
        """Return how many computations have begun and not ended."""
        return len(self._running)

    def latest(self) -> list[Computation]:
        """Return the computations that run or ended a moment ago, the newest last."""
        return [one for one in dict.fromkeys([*self._settling, *self._running]) if not one.dropped]

    def waiting(self) -> int:
        """Return how many computations have changed since they were sent."""
        return len(self._unsent)

    def changed(self, most: int, *, any_row: bool) -> Taken:
        """Return rows that have changed since they were sent, and data for traces.

        Those that wait longest come first. A computation comes with all its groups that have
        changed. The work is bounded to that of ``most`` rows of groups, each some 10 µs; with
        ``any_row`` at least one computation is returned.
        """
        now = time()
        self._stop_ended(lambda computation: not computation.may_go_on(now))
        for _ in range(SETTLED_AT_ONCE):
            if not (self._settling and self._settling[0].stretch.settled()):
                break
            settled = self._settling.popleft()
            if not settled.dropped and settled.stretch.has_more():
                self._unsent.note_any(settled)
                for group in settled.groups.values():
                    # It may have become known only now that this was time of the disk.
                    if not DISK_ACTIONS.isdisjoint(group.seconds):
                        self._unsent.note(group)
        return self._unsent.take(most, any_row=any_row)

    def _never_began(self, computation: Computation) -> None:
        computation.stop()
        self._arrived.pop(computation.line, None)

    def _set_going(self, computation: Computation) -> None:
        computation.stopped_at = None
        computation.stretch.go_on()
        computation.runs, computation.over = True, False
        self._running[computation] = None
        self._joinable.setdefault(computation.line, computation)
        # Last: a graph that arrives meanwhile on the loop must find the computation, see last_from.
        self._arrived.pop(computation.line, None)

    def _rest(
        self, computation: Computation, now: float, *, given_up: bool, put_back: bool = False
    ) -> None:
        """Note that its tasks have ended. With ``put_back`` the last one will run again."""
        computation.ended_at = now
        computation.stretch.end(now)
        self._settling.append(computation)
        computation.runs, computation.over = False, not put_back
        del self._running[computation]
        line = computation.line
        if given_up or not computation.submitted:
            computation.stop()
        else:
            before = self._ended.pop(line, None)
            if before is None and len(self._ended) >= MAX_ENDED:
                before = self._ended.pop(next(iter(self._ended)))
            if before is not None and before is not computation:
                self._stop_for_good(before)
            self._ended[line] = computation
        if self._joinable.get(line) is computation:
            del self._joinable[line]

    def _stop_ended(self, which: Callable[[Computation], bool]) -> None:
        """Stop the ended computations for which ``which`` returns True, unless they run again."""
        for line, computation in [*self._ended.items()]:
            if which(computation):
                del self._ended[line]
                self._stop_for_good(computation)

    def _stop_for_good(self, computation: Computation) -> None:
        if not computation.runs and computation.stopped_at is None:
            computation.stop()
            computation.over = True
            if not computation.dropped:
                self._unsent.note_any(computation)

    def _erred(self, key: Key, start: str, group: Group, details: Mapping[str, Any]) -> bool:
        """Count a task that erred. Return False if that was counted before."""
        if start in ACTIVE and start != "processing" and "cause" not in details:
            # Dask gave up the task when it was about to be processed, and reported that from inside
            # the transition that it reports now. So the task has already been counted as erred,
            # from processing.
            group.states["processing"] += 1
            group.states["erred"] -= 1
            return False
        # Only an actor that is lost with its worker errs from memory. It has no cause.
        raised = details.get("cause") == key or start == "memory"
        if raised:
            totals = group.totals or self._totals_of(key)
            guarded(self._drops, None, group.failed, details, totals)
        if group.computation.over:
            return True
        if self._ends.get(key) == _CANCELLED:
            # A waiting task is released before it errs, and was counted as cancelled then.
            group.computation.cancelled -= 1
        self._ends[key] = _RAISED if raised else _BLAMED
        if not raised:
            group.computation.blame(details.get(BLAME))
        group.computation.stuck += 1
        return True

    def _begins(self, key: Key, group: Group) -> None:
        """Count a task that becomes active."""
        computation = group.computation
        end = self._ends.get(key) if self._ends else None
        retried = end is not None and end != _CANCELLED
        # Otherwise the computation has ended, and the task's result was lost or is needed after
        # all.
        if retried or not computation.over:
            if end is not None:
                del self._ends[key]
            if retried:
                computation.stuck -= 1
                if end == _RAISED:
                    group.retried_by_hand()
                    self._runs_again(key)
                else:
                    computation.blamed -= 1
            elif end is not None:
                computation.cancelled -= 1
            if not computation.runs:
                self._set_going(computation)
        if not computation.active:
            self.users_running[computation.user] += 1
        computation.active += 1

    def _rests(
        self,
        key: Hashable,
        finish: str,
        computation: Computation,
        at: float,
        put_back: bool = False,
    ) -> None:
        """Count a task that was active until now and is in the state ``finish`` now."""
        computation.active -= 1
        if not (computation.over or put_back):
            computation.marks.ended(at)
        if finish in GONE and not computation.over:
            computation.cancelled += 1
            self._ends[key] = _CANCELLED
        if computation.active:
            return
        user = computation.user
        self.users_running[user] -= 1
        if not self.users_running[user]:
            del self.users_running[user]
        if computation.runs:
            given_up = finish not in ("memory", "erred")
            self._rest(computation, at, given_up=given_up, put_back=put_back)

    def _add(self, group: Group, count: int) -> None:
        group.tasks += count
        group.computation.tasks += count
        group.computation.over = False
        group.states["released"] += count
        self._unsent.note(group)

    def _totals_of(self, key: Key) -> PrefixTotals:
        task = self._find(key)
        # If Dask has forgotten the task, use the name of the last task with its prefix.
        known = self._naming.known(key_split(key)) if task is None else self._naming.prefix(task)
        return self._prefixes[known]

    def _count_unknown(self, key: Key, finish: str, run: Run | None, end: End | None) -> None:
        # Tasks from before the plugin started.
        if finish == "processing":
            # Name it now: Dask reports its time by prefix before it ends.
            known = self._find(key)
            if known is not None:
                self._naming.prefix(known)
        elif run is not None:
            _, worker, nbytes, _, startstops = run
            totals = self._totals_of(key)
            totals.ran(startstops, worker, "finished")
            totals.completed += 1
            totals.output_bytes += nbytes or 0
        elif end is not None and finish == "erred":
            _, details = end
            totals = self._totals_of(key)
            totals.ran(details.get("startstops"), details.get("worker"), "erred")
            if details.get("cause") == key:
                totals.erred += 1
