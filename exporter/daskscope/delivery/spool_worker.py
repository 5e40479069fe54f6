"""Writes undelivered data to the spool, in a thread of its own, because a disk may hang.

The spool may be on a network file system. So callers queue a job and do not wait for it. Only
:meth:`SpoolWorker.next` waits for a short time, but not while the disk hangs. At most one job of
each kind waits, because a job does all that is due when it runs.
"""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

from daskscope import codec, protocol
from daskscope.background import Background
from daskscope.delivery.queue import DeliveryQueue
from daskscope.delivery.spool import Spool

#: Seconds that :meth:`SpoolWorker.next` waits for the disk.
PATIENCE = 2.0
#: Seconds after which the disk counts as hanging.
OVERDUE = 10.0
#: The same at the end, when the user who closes the cluster is waiting.
LAST_OVERDUE = 0.5
#: Seconds between two spooled heartbeats that contain only the cluster's status.
SPOOLED_STATUS = 60.0

_Job = Callable[[], bytes | None]
_Outcome = Future[bytes | None]


class SpoolWorker:
    """Writes the rows in ``pending`` to ``spool``, and reads the data to deliver from there.

    ``lock`` protects ``pending`` and the waiting jobs, and is never held during a file operation.
    The thread starts at once, because no thread can be started at interpreter exit.
    """

    def __init__(
        self, spool: Spool, pending: DeliveryQueue, lock: threading.Lock, drops: Counter[str]
    ) -> None:
        self._spool = spool
        self._drops = drops
        self._process = os.getpid()
        self._pending = pending
        self._lock = lock
        # The waiting jobs, in the order in which they were queued last.
        self._jobs: dict[_Job, _Outcome] = {}
        self._at_disk_since: float | None = None
        self._next_status = 0.0
        self._thread: Background[None] = Background("daskscope-spool", self._do, spool.close, drops)

    # --- from any thread --------------------------------------------------------------------------

    def keep(self) -> None:
        """Write rows that are not in the spool yet, because the service does not accept them."""
        self._hand_over(self._write)

    def keep_before_exit(self, timeout: float) -> None:
        """Write waiting rows before the process ends, and wait up to ``timeout`` seconds.

        It does nothing in a forked process, which lacks the thread and must not wait for a lock.
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
        """Remove the spooled data, which was delivered; or deliver it, if memory lacked a part."""
        self._hand_over(self._clear)

    def claim(self) -> None:
        """Take over files that others left behind."""
        self._hand_over(self._spool.claim)

    def next(self) -> bytes | None:
        """Return the next body to deliver, or None. It stays the same until :meth:`taken`.

        It is also None if the disk does not respond in time.
        """
        began = self._at_disk_since
        busy = 0.0 if began is None else time.monotonic() - began
        try:
            return self._hand_over(self._spool.next).result(max(PATIENCE - busy, 0.0))
        except TimeoutError:
            return None

    def taken(self) -> None:
        """Advance to the next body: the service has accepted the last, or will never accept it."""
        self._hand_over(self._spool.taken)

    def close(self) -> None:
        """Do the queued jobs, and leave the files to the next plugin.

        It waits only :data:`LAST_OVERDUE` seconds: see :meth:`done`.
        """
        self._thread.close()
        self._thread.join(LAST_OVERDUE)
        if not self._thread.done():
            self._warn_of_the_end()

    def done(self) -> bool:
        """Return whether all jobs are done after :meth:`close`."""
        return self._thread.done()

    def warn_if_overdue(self) -> None:
        """Warn if the disk has not responded for long."""
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
        result = None
        self._at_disk_since = time.monotonic()
        try:
            result = job()
        finally:
            self._at_disk_since = None
            outcome.set_result(result)

    def _write(self) -> None:
        now = time.monotonic()
        self._at_disk_since = now
        removed = self._spool.forget_removed()
        with self._lock:
            if removed:
                if self._pending.overflowed:  # otherwise memory still holds all of it
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
                # Rows that have changed meanwhile do not count as spooled.
                self._pending.spooled(beat)
                all_spooled = self._pending.all_spooled()

    def _clear(self) -> None:
        if not self._spool.is_used:
            return
        with self._lock:
            if self._pending.rows_wait():
                return  # the disk was slow, and the service may be unreachable again
            overflowed = self._pending.overflowed
            # First, because rows that are dropped from memory from now on are nowhere else.
            self._pending.spool_is_gone()
        if overflowed:
            self._spool.deliver_own()
        else:
            self._spool.discard()


def body_of(beat: protocol.Heartbeat) -> bytes:
    """Return the body of a request for a heartbeat."""
    # No time in it: gzip fails for a clock before 1970 or after 2106.
    return gzip.compress(codec.encode(beat), 5, mtime=0)
