"""The independent count beside every plugin that starts in the process of a test.

The fixture ``register`` counts beside what the recorder has received. A test that registers by
itself may have a service of its own, or none: so what is compared here are the rows that each
session hands to what sends them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from distributed import Scheduler

from daskscope import protocol
from daskscope.delivery.sender import Sender
from daskscope.plugin import NAME, Plugin
from daskscope.privacy import Cleared
from daskscope.session import ObservationSession
from tests.exporter.truth import Truth
from tests.patience import wait_until


class Beside(Truth):
    """Counts from :meth:`begin_with` on, whatever the other plugins of the scheduler are."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler, NAME)
        # There may be another one, which counts beside the plugin that was there before.
        self.name = f"truth-{id(self)}"
        self._begun = False

    def begin_with(self) -> None:
        """Count what happens from now on."""
        self._begun = True
        self._is_there()

    def _has_come(self) -> bool:
        return self._begun


class Rows:
    """What a session handed to its sender: of each row the last."""

    def __init__(self) -> None:
        self.computations: dict[str, protocol.Computation] = {}
        self.groups: dict[tuple[str, str], protocol.TaskGroup] = {}
        self.failures: dict[tuple[str | None, str], protocol.Failure] = {}

    def add(self, snapshot: Cleared) -> None:
        """Take the rows of a snapshot in."""
        self.computations |= {row.id: row for row in snapshot.computations}
        self.groups |= {(row.computation, row.name): row for row in snapshot.task_groups}
        self.failures |= {(row.computation, row.fingerprint): row for row in snapshot.failures}


@dataclass
class Counted:
    """The sessions beside which was counted and that have ended: those that are compared."""

    ended: list[ObservationSession] = field(default_factory=list)


@contextmanager
def counted_everywhere() -> Iterator[Counted]:
    """Count beside each plugin that starts meanwhile. At the end all that have ended must have
    handed over the same.
    """
    start, end, add = Plugin.start, ObservationSession._end, Sender.add
    rows_of: dict[Sender, Rows] = {}
    truths: dict[ObservationSession, Beside] = {}
    counted = Counted()
    ended = counted.ended

    async def counted_start(plugin: Plugin, scheduler: Scheduler) -> None:
        before = plugin.session
        truth = Beside(scheduler)
        await truth.begin()
        await start(plugin, scheduler)
        if plugin.session is None or plugin.session is before:
            truth.stop()
        else:
            truths[plugin.session] = truth
            truth.begin_with()

    def counted_end(session: ObservationSession, phase: protocol.Phase) -> None:
        if session in truths and session not in ended:
            ended.append(session)
            truths[session].stop()
        end(session, phase)

    def counted_add(sender: Sender, snapshot: Cleared) -> None:
        rows_of.setdefault(sender, Rows()).add(snapshot)
        add(sender, snapshot)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plugin, "start", counted_start)
        patch.setattr(ObservationSession, "_end", counted_end)
        patch.setattr(Sender, "add", counted_add)
        yield counted
        for session in ended:
            wait_until(session._clear.done, what="all rows")
            rows = rows_of.get(session.sender, Rows())
            truths[session].assert_equals(
                rows.computations.values(), rows.groups.values(), rows.failures.values()
            )
