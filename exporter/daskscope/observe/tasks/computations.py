"""Computations and their task groups, counted from the scheduler's own transitions.

A computation is what one call to compute, persist or submit started; docs/architecture.md says
when a graph joins one, and why a computation that has ended stays ended. Dask's own ``Computation``
joins whatever is submitted while anything runs, and its task groups vanish with their last task, so
both are counted here, until Dask has forgotten the last task.

Over 400 lines: what a task's steps change in a computation and in its groups stands in one place.
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
from daskscope.observe.tasks.runs import Run
from daskscope.observe.tasks.unsent import Taken, Unsent

#: Computations that may wait to be sent until there is no waiting for the next beat.
MANY = 1_000

#: Lines of code whose last computation may go on though its tasks have ended; beyond it, the one
#: that ended first does not.
MAX_ENDED = 100

#: Computations that have ended and are looked at once more.
MAX_SETTLING = 1_000
#: Those that are looked at together: each takes some 5 µs.
SETTLED_AT_ONCE = 100

#: States of a task that was given up, or is not needed any more.
GONE = frozenset({"released", "forgotten"})

#: A transition: the task's key and its two states. Or, where a graph has arrived: None, a group,
#: and how many of the graph's tasks are in it.
Step = tuple[Any, Any, Any]
#: States in which a task has nothing to do, once it had.
ENDS = frozenset({"memory", "erred", "released"})
#: What there is to know of a step that ends what a task had to do, but not as a ``Run`` that ended
#: in memory: when, by the clock that is not set, and what Dask reports of it; or ``PUT_BACK``.
End = tuple[float, Mapping[str, Any]]
#: Noted of a task that is released but still wanted: Dask has it wait again at once.
PUT_BACK: Mapping[str, Any] = MappingProxyType({})

#: In what Dask reports of a task that errs without having run: the group of the one that raised.
#: Dask may have forgotten both when they are counted.
BLAME = "daskscope blame"

# Why a task that has ended may work again: it raised, a task it needs did, or it was cancelled.
_RAISED, _BLAMED, _CANCELLED = "raised", "blamed", "cancelled"


class Computations:
    """All computations that the scheduler still holds tasks of, the ``members`` of their groups.

    ``find`` returns the task of a key, if Dask has it. ``runs_again`` gets the key of one that
    raised and is to run again, in whichever thread counts.
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
        # Of the few tasks that did not end well.
        self._ends: dict[Hashable, str] = {}
        # Those that run; and by the line of code that they came from.
        self._running: dict[Computation, None] = {}
        #: How many computations with active tasks are whose: those that run, and those that have
        #: ended and whose lost results are computed again.
        self.users_running: Counter[str] = Counter()
        self._joinable: dict[Hashable, Computation] = {}
        # Likewise, those of whose tasks none was seen at work yet.
        self._arrived: dict[Hashable, Computation] = {}
        # Likewise, those whose tasks have ended, and that may go on.
        self._ended: dict[Hashable, Computation] = {}
        self._unsent = Unsent(drops, self._never_began)
        # Those that have ended, and of which workers may still have something to say.
        self._settling: deque[Computation] = deque(maxlen=MAX_SETTLING)

    def arrived(self, computation: Computation) -> None:
        """Add one whose first graph arrives now."""
        self._arrived[computation.line] = computation

    def ended(self, computation: Computation) -> None:
        """Add one that has ended without a task."""
        self._unsent.add(computation)

    def settle(self, tasks: Iterable[TaskState]) -> None:
        """Forget how ``tasks`` ended: they are about to run again, in another computation."""
        for task in tasks:
            self._ends.pop(task.key, None)

    def joined_from(self, line: Hashable, *, submitted: bool) -> Computation | None:
        """Return the computation that a graph from that line joins: it runs, or a ``submitted``
        graph continues it. All transitions must have been counted.
        """
        running = self._joinable.get(line)
        if running is not None or not submitted:
            return running
        ended = self._ended.get(line)
        return ended if ended is not None and ended.may_go_on(time()) else None

    def last_from(self, line: Hashable) -> Computation | None:
        """Return the last computation of that line, while another thread may be counting."""
        # In the order in which a computation moves from one to the next.
        return self._arrived.get(line) or self._joinable.get(line) or self._ended.get(line)

    def count(
        self, steps: Iterable[Step], runs: Iterator[Run], ends: Iterator[End], ahead: float
    ) -> None:
        """Count transitions of some time ago; Dask may have forgotten their tasks meanwhile.

        The wall clock is so many seconds ``ahead`` of the one that they were noted by.
        """
        wholes, singles = self._members.wholes, self._members.singles
        for key, start, finish in steps:
            run = end = None
            if finish in ENDS:
                # As noted: what leaves memory ends nothing, but for an actor that was lost.
                if start == "processing" and finish == "memory":
                    run = next(runs)
                elif start != "memory" or finish == "erred":
                    end = next(ends)
            try:
                whole = wholes.get(key[0]) if type(key) is tuple else None
                if whole is None:
                    group = singles.get(key)
                else:  # with no call for most
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
                    try:  # without a call, for each task that there is
                        group.finished(run, group.totals or self._totals_of(key))
                    except Exception as error:  # a number of its run, not that it has ended
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
            except Exception as error:  # the others are counted nevertheless
                contain(error, self._drops)

    def failed_for_now(self, task: TaskState, details: Mapping[str, Any]) -> None:
        """Count a run of ``task`` that raised an exception and that Dask repeats."""
        group = self._members.group_of(task)
        if group is not None:
            group.failed_for_now(details, group.totals or self._totals_of(task.key))
        else:
            totals = self._totals_of(task.key)
            totals.retried += 1
            totals.ran(details.get("startstops"), finished=False)

    def waited(self, computations: Iterable[Computation]) -> None:
        """Have ``computations`` sent once more: it was noted of them that tasks could not run."""
        for computation in computations:
            if computation.groups:
                self._unsent.note_any(computation)

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
        """The scheduler dropped all its tasks (restart, close): what runs is cancelled."""
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
        """Return how many have begun and not ended."""
        return len(self._running)

    def waiting(self) -> int:
        """Return how many computations have changed since they were sent."""
        return len(self._unsent)

    def changed(self, most: int, *, any_row: bool) -> Taken:
        """Return rows that have changed since they were sent, those that wait longest first, and
        what to trace of these computations, by their ids.

        A computation goes with all its groups that have changed. At most the work of ``most`` rows
        of groups, each some 10 µs; but with ``any_row`` there is always one computation.
        """
        now = time()
        self._stop_ended(lambda computation: not computation.may_go_on(now))
        for _ in range(SETTLED_AT_ONCE):
            if not (self._settling and self._settling[0].stretch.settled()):
                break
            settled = self._settling.popleft()
            if not settled.changed and not settled.dropped and settled.stretch.has_more():
                self._unsent.note_any(settled)
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
        # Only now: a graph that arrives meanwhile, on the loop, has to find it: see last_from.
        self._arrived.pop(computation.line, None)

    def _rest(
        self, computation: Computation, now: float, *, given_up: bool, put_back: bool = False
    ) -> None:
        """Its tasks have ended. With ``put_back`` the last one is about to go on."""
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
        """Note of ``which`` of those whose tasks have ended that they do not go on; some have."""
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
            # Dask gave up a task as it was about to be processed, and reported so from inside the
            # transition that it reports now: the task has been counted as erred, from processing.
            group.states["processing"] += 1
            group.states["erred"] -= 1
            return False
        # An actor that is lost with its worker has no cause, and nothing else errs from memory.
        raised = details.get("cause") == key or start == "memory"
        if raised:
            totals = group.totals or self._totals_of(key)
            guarded(self._drops, None, group.failed, details, totals)
        if group.computation.over:
            return True
        if self._ends.get(key) == _CANCELLED:
            # What waits is released before it errs.
            group.computation.cancelled -= 1
        self._ends[key] = _RAISED if raised else _BLAMED
        if not raised:
            group.computation.blame(details.get(BLAME))
        group.computation.stuck += 1
        return True

    def _begins(self, key: Key, group: Group) -> None:
        """Count a task that has something to do from now on."""
        computation = group.computation
        end = self._ends.get(key) if self._ends else None
        retried = end is not None and end != _CANCELLED
        # Else its result was lost, or is needed after all, and the computation has ended.
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
        """Count a task that had something to do until now, and is ``finish`` now."""
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
        # Of those that Dask has forgotten already, what the last of its prefix was called.
        known = self._naming.known(key_split(key)) if task is None else self._naming.prefix(task)
        return self._prefixes[known]

    def _count_unknown(self, key: Key, finish: str, run: Run | None, end: End | None) -> None:
        # Tasks from before the plugin came.
        if finish == "processing":
            # Dask reports by prefix how it spends its time, and does so before it ends.
            known = self._find(key)
            if known is not None:
                self._naming.prefix(known)
        elif run is not None:
            _, _, nbytes, _, startstops = run
            totals = self._totals_of(key)
            totals.ran(startstops, finished=True)
            totals.completed += 1
            totals.output_bytes += nbytes or 0
        elif end is not None and finish == "erred":
            _, details = end
            totals = self._totals_of(key)
            totals.ran(details.get("startstops"), finished=False)
            if details.get("cause") == key:
                totals.erred += 1
