"""Writes undelivered data to the spool, in a thread of its own, because a disk may hang.

The spool may lie across a network. Whoever wants something of it hands a job over and goes on; only
for the next beat of the spool is there a short wait, and none while the disk hangs. Of each kind
one job waits at most: what it does is what is to be done when its turn comes.
"""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

from daskscope import protocol
from daskscope.background import Background
from daskscope.delivery.queue import DeliveryQueue
from daskscope.delivery.spool import Spool

#: Seconds that a beat waits for the disk.
PATIENCE = 2.0
#: Seconds after which the disk is taken to hang.
OVERDUE = 10.0
#: The same at the end: whoever closes a cluster is waiting.
LAST_OVERDUE = 0.5
#: Seconds between two beats in the spool that report nothing but the cluster's status.
SPOOLED_STATUS = 60.0

_Job = Callable[[], bytes | None]
_Outcome = Future[bytes | None]


class SpoolWorker:
    """Writes what is in ``pending`` to ``spool``, and reads what is to be delivered from there.

    ``lock`` is held for ``pending``, and for what waits here, never for a file. The thread is
    started at once: at interpreter exit none can be started any more.
    """

    def __init__(
        self, spool: Spool, pending: DeliveryQueue, lock: threading.Lock, drops: Counter[str]
    ) -> None:
        self._spool = spool
        self._drops = drops
        self._process = os.getpid()
        self._pending = pending
        self._lock = lock
        # Those that wait, in the order in which they were handed over last.
        self._jobs: dict[_Job, _Outcome] = {}
        self._at_disk_since: float | None = None
        self._next_status = 0.0
        self._thread: Background[None] = Background("daskscope-spool", self._do, spool.close, drops)

    # --- from any thread --------------------------------------------------------------------------

    def keep(self) -> None:
        """Write what is not in the spool yet: the service does not take it."""
        self._hand_over(self._write)

    def keep_before_exit(self, timeout: float) -> None:
        """Write what waits, if anything does, and wait for it: the process ends.

        Nothing in a copy that was forked off: it has no thread of ours, and waits for no lock.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            if not self._pending.rows_wait():
                return
        try:
            self._hand_over(self._write).result(timeout)
        except TimeoutError:
            self._warn_of_the_end()

    def clear(self) -> None:
        """Remove what was written: it has been delivered. Or have it delivered, if not all was."""
        self._hand_over(self._clear)

    def claim(self) -> None:
        """Take over what others left behind."""
        self._hand_over(self._spool.claim)

    def next(self) -> bytes | None:
        """Return what is to be delivered next, the same until :meth:`taken`, or None: also where
        the disk says nothing for long.
        """
        began = self._at_disk_since
        busy = 0.0 if began is None else time.monotonic() - began
        try:
            return self._hand_over(self._spool.next).result(max(PATIENCE - busy, 0.0))
        except TimeoutError:
            return None

    def taken(self) -> None:
        """Go on to the next one: the service has the last, or will never take it."""
        self._hand_over(self._spool.taken)

    def close(self) -> None:
        """Do what was handed over, and leave the files to the next plugin. Does not wait for long:
        see :meth:`done`.
        """
        self._thread.close()
        self._thread.join(LAST_OVERDUE)
        if not self._thread.done():
            self._warn_of_the_end()

    def done(self) -> bool:
        """Return whether all is done since :meth:`close`."""
        return self._thread.done()

    def warn_if_overdue(self) -> None:
        """Warn of a disk that has not answered for long."""
        began = self._at_disk_since
        if began is not None and time.monotonic() - began > OVERDUE:
            self._spool.hangs(
                "undelivered data waits in memory, and is lost if the scheduler ends before "
                "the disk or the service responds again"
            )

    def _warn_of_the_end(self) -> None:
        with self._lock:
            rows = self._pending.unkept()
        self._spool.hangs(
            "unless it responds at once, the data that was neither delivered nor written is "
            f"lost (rows: {rows}); the data in its files stays there for the next scheduler"
        )

    def _hand_over(self, job: _Job) -> _Outcome:
        with self._lock:
            outcome = self._jobs.pop(job, None)
            if outcome is None:
                outcome = Future()
                self._thread.put(None)
            self._jobs[job] = outcome
            return outcome

    # --- in the thread that may hang --------------------------------------------------------------

    def _do(self, _: None) -> None:
        with self._lock:
            job = next(iter(self._jobs))
            outcome = self._jobs.pop(job)
        found = None
        self._at_disk_since = time.monotonic()
        try:
            found = job()
        finally:
            self._at_disk_since = None
            outcome.set_result(found)

    def _write(self) -> None:
        now = time.monotonic()
        self._at_disk_since = now
        removed = self._spool.forget_removed()
        with self._lock:
            if removed:
                if self._pending.overflowed:  # else memory still holds all of it
                    self._drops["spooled beat"] += removed
                self._pending.spool_is_gone()
            if (
                self._pending.all_spooled()
                and not self._pending.ended
                and self._spool.is_used
                and now < self._next_status
            ):
                return
        self._next_status = now + SPOOLED_STATUS
        all_spooled = False
        while not all_spooled:
            with self._lock:
                beat = self._pending.beat_to_spool(time.time())
            self._at_disk_since = time.monotonic()
            if not self._spool.append(body_of(beat)):
                return
            with self._lock:
                # What has changed meanwhile is not in it.
                self._pending.spooled(beat)
                all_spooled = self._pending.all_spooled()

    def _clear(self) -> None:
        if not self._spool.is_used:
            return
        with self._lock:
            if self._pending.rows_wait():
                return  # the disk took its time, and the service may be away again
            overflowed = self._pending.overflowed
            # First: what has to make room from now on is nowhere else.
            self._pending.spool_is_gone()
        if overflowed:
            self._spool.deliver_own()
        else:
            self._spool.discard()


def body_of(beat: protocol.Heartbeat) -> bytes:
    """Return a beat as it is sent."""
    return gzip.compress(protocol.encode(beat), 5)
