"""Filters snapshots before they are sent: switches, opt-outs, scrubbing, size limits.

Only :class:`Privacy` turns an observed snapshot into one that may be sent. The types enforce this:
``otlp`` and ``delivery`` accept only filtered snapshots. Runs in a background thread.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar, cast

from daskscope import codec, messages, protocol
from daskscope.config import Settings
from daskscope.containment import contain, each_guarded, guarded
from daskscope.cutting import without_middle
from daskscope.names import OTHER
from daskscope.observe.cluster.opt_outs import OptOuts
from daskscope.observe.errors.exception_chain import ExceptionChain
from daskscope.observe.errors.exception_types import OWN_WORDS
from daskscope.observe.errors.failures import RawFailure
from daskscope.observe.messages.events import RawEvent
from daskscope.observe.messages.logs import LogRecord
from daskscope.observe.snapshot import Observed, Snapshot
from daskscope.observe.tasks.code import MAX_CODE
from daskscope.observe.tasks.computation import Traced
from daskscope.observe.tasks.stream import RawStream
from daskscope.observe.workers.call_tree import MAX_SOURCE_LINE
from daskscope.record_text import REFUSED, of_framework
from daskscope.scrubbing import (
    Scrubber,
    shortened,
    without_code,
    without_source_lines,
)
from daskscope.sendable import sendable

Row = TypeVar("Row")
ClearedRow = TypeVar("ClearedRow")
Text = TypeVar("Text", str, None)

#: A filtered snapshot, which may be sent.
Cleared = Snapshot[protocol.Event, protocol.Failure, protocol.TaskStream]

#: The most characters of an event's message, as JSON text.
MAX_EVENT = 2_000

#: The most characters of a cause's text, and of all members and notes of an exception.
MAX_CAUSE = 1_000
MAX_BELOW = 6_000

#: Dask's own exceptions whose texts contain task keys.
_NAME_KEYS = frozenset(
    {
        "CancelledError",
        "FutureCancelledError",
        "FuturesCancelledError",
        "InvalidTaskState",
        "InvalidTransition",
        "KilledWorker",
        "NoValidWorkerError",
        "NoWorkerError",
        "RecommendationsConflict",
        "TransitionCounterMaxExceeded",
    }
)

#: Exceptions whose texts contain a source line, after the error and its position.
_SHOW_SOURCE_LINES = frozenset({"SyntaxError", "IndentationError", "TabError"})

#: Python's texts between two tracebacks, by whether the second was raised from the first.
_LED_TO = {
    True: "The above exception was the direct cause of the following exception:",
    False: "During handling of the above exception, another exception occurred:",
}
_TRACEBACK = "Traceback (most recent call last):"
_NO_CAUSE = "[this exception may have causes that were not sent]"


class Privacy:
    """Filters snapshots by the settings in force, and by the opt-outs of all other clients."""

    def __init__(self, settings: Settings, refusals: OptOuts, drops: Counter[str]) -> None:
        self._drops = drops
        self._settings = settings
        self._refusals = refusals
        self._scrubber = Scrubber(settings.scrub)
        # By the hash of observed code: the hash of the code that is sent.
        self._hashes: dict[str, str] = {}
        self._tags = self._named(settings.tags)

    def clear(self, snapshot: Observed) -> Cleared:
        """Return ``snapshot`` without data that must not be sent, in a form that can be sent."""
        return sendable(self._clear(snapshot), self._drops)

    def _clear(self, snapshot: Observed) -> Cleared:
        # The code first: scrubbing changes its hashes, to which the computations refer.
        code = self._each(self._code, snapshot.code) if self._settings.code_transmit else ()
        return dataclasses.replace(
            cast(Cleared, snapshot),  # correct once events, failures and streams are replaced
            cluster=dataclasses.replace(
                snapshot.cluster,
                name=self._text("", self._short, snapshot.cluster.name),
                deployment=guarded(self._drops, {}, self._named, snapshot.cluster.deployment),
                tags=self._tags,
                settings=guarded(self._drops, {}, self._in_force, snapshot.cluster),
            ),
            status=dataclasses.replace(
                snapshot.status,
                instances=self._each(self._instance, snapshot.status.instances)
                if self._tells_all("instances_transmit")
                else (),
            ),
            code=code,
            computations=self._each(self._computation, snapshot.computations),
            traced=dict(filter(None, self._each(self._traced, snapshot.traced.items()))),
            failures=self._each(self._failure, snapshot.failures),
            worker_losses=self._each(self._loss, snapshot.worker_losses),
            events=self._each(self._event, snapshot.events) if self._settings.events_allow else (),
            logs=self._each(self._log, snapshot.logs) if self._tells_all("logs_transmit") else (),
            shutdowns=self._each(self._shutdown, snapshot.shutdowns),
            profiles=self._each(self._profile, snapshot.profiles)
            if self._tells_all("profile_transmit")
            else (),
            task_streams=self._each(RawStream.row, snapshot.task_streams)
            if self._tells_all("stream_transmit")
            else (),
            events_by_topic=self._counts(snapshot.events_by_topic),
        )

    def _each(
        self, clear: Callable[[Row], ClearedRow], rows: Iterable[Row]
    ) -> tuple[ClearedRow, ...]:
        """Return ``rows`` filtered by ``clear``, without rows for which it fails."""
        return each_guarded(self._drops, clear, rows)

    def _text(
        self, otherwise: Text, clear: Callable[..., str], *texts: object, **options: object
    ) -> str | Text:
        """Return a text filtered by ``clear`` or, if that fails, ``otherwise``, to keep its row."""
        return guarded(self._drops, otherwise, clear, *texts, **options)

    def _wants(self, switch: str, computation: str | None) -> bool:
        """Return whether data of ``switch`` is sent for a computation; None means for all."""
        wanted: bool = getattr(self._settings, switch)
        return wanted and not self._refusals.by_owner_of(computation, switch)

    def _tells_all(self, switch: str) -> bool:
        """Return whether data of ``switch`` is sent for the whole cluster: no client refuses it."""
        wanted: bool = getattr(self._settings, switch)
        return wanted and not self._refusals.by_any(switch)

    def scrub(self, text: str) -> str:
        """Return ``text`` without secrets, and no longer than ``protocol.MAX_TEXT``."""
        return self._scrubber.scrub(text, protocol.MAX_TEXT)

    def _prose(self, text: str, *, code: bool) -> str:
        """Return a user's text scrubbed and, without ``code``, without tracebacks' source lines."""
        return self.scrub(text if code else without_code(text))

    def _scrub_code(self, text: str) -> str:
        return self._scrubber.scrub(text, protocol.MAX_TEXT, code=True)

    def _scrub_traceback(self, text: str, *, code: bool) -> str:
        return self._scrubber.scrub_traceback(text, protocol.MAX_TEXT, code=code)

    def _code(self, code: protocol.Code) -> protocol.Code:
        text = self._scrub_code(code.text)
        clean = codec.code_hash(code.file, code.first_line, code.cut, text)
        self._hashes[code.hash] = clean
        if len(self._hashes) > 2 * MAX_CODE:
            del self._hashes[next(iter(self._hashes))]
        return dataclasses.replace(code, text=text, hash=clean)

    def _computation(self, computation: protocol.Computation) -> protocol.Computation:
        return dataclasses.replace(
            computation,
            frames=self._frames(computation.frames or ())
            if self._wants("code_transmit", computation.id)
            else None,
            annotations=guarded(self._drops, {}, self._named, computation.annotations),
            spans=self._each(self._short, computation.spans),
            asks=self._counts(computation.asks),
            trace_id=computation.trace_id
            if self._wants("traces_transmit", computation.id)
            else None,
        )

    def _in_force(self, cluster: protocol.Cluster) -> dict[str, str]:
        # Some settings contain users' own texts, such as topics of events.
        return {name: self._short(text) for name, text in cluster.settings.items()}

    def _named(self, texts: Mapping[str, str]) -> dict[str, str]:
        return self._scrubber.scrub_named(texts)

    def _short(self, text: str) -> str:
        return self._scrubber.scrub(text, protocol.MAX_NAME)

    def _traced(self, item: tuple[str, Traced]) -> tuple[str, Traced] | None:
        computation, traced = item
        if not self._wants("traces_transmit", computation):
            return None
        caller = traced.caller
        # A ``tracestate`` cannot be cut, so it is dropped if it contains a secret.
        if caller is None or self._text("", self.scrub, caller.state) == caller.state:
            return item
        caller = dataclasses.replace(caller, state="")
        return computation, dataclasses.replace(traced, caller=caller)

    def _frames(self, frames: tuple[protocol.CodeFrame, ...]) -> tuple[protocol.CodeFrame, ...]:
        return tuple(
            dataclasses.replace(frame, code=self._hashes.get(frame.code or "")) for frame in frames
        )

    def _failure(self, failure: RawFailure) -> protocol.Failure:
        row = failure.row
        if not self._wants("exceptions_transmit", row.computation):
            return dataclasses.replace(row, message=None, traceback=None)
        code = self._wants("code_transmit", row.computation)
        message, traceback = row.message, row.traceback
        if traceback is not None:
            traceback = self._text(None, self._traceback_of, traceback, failure.causes, code=code)
        if message:
            message = self._text(None, self._message_of, row.type, message, code=code)
        return dataclasses.replace(row, message=message, traceback=traceback)

    def _traceback_of(self, traceback: str, causes: ExceptionChain, *, code: bool) -> str:
        if not code:
            traceback = without_source_lines(traceback)
        traceback = self._scrub_traceback(traceback, code=True)
        return self._with_causes(traceback + self._below(causes, code=code), causes, code=code)

    def _below(self, chain: ExceptionChain, *, code: bool) -> str:
        """Return the texts below an exception's traceback: members of a group, and notes."""
        below = ""
        for number, member in enumerate(chain.members, 1):
            message = self._message_of(member.type, member.message, code=code)
            frames = self._scrub_traceback(member.frames, code=True)
            below += f"  +---------------- {number} ----------------\n"
            below += f"{_TRACEBACK}\n{frames}{shortened(message, MAX_CAUSE)}\n"
        for note in chain.notes:
            below += f"Note: {shortened(self._prose(note, code=code), MAX_CAUSE)}\n"
        return without_middle(below, MAX_BELOW)

    def _message_of(self, kind: str, message: str, *, code: bool) -> str:
        if kind in _NAME_KEYS and message not in OWN_WORDS:
            message = f"{kind}(…)"
        if not code and kind in _SHOW_SOURCE_LINES:
            message = message.partition(", (")[0] + ", …)"
        return self._prose(message, code=code)

    def _with_causes(self, traceback: str, causes: ExceptionChain, *, code: bool) -> str:
        """Return a traceback below the tracebacks of its causes, as far as there is room."""
        above, cut = "", causes.cut
        room = protocol.MAX_TEXT - len(traceback) - len(_NO_CAUSE) - len(_TRACEBACK) - len("\n\n\n")
        for cause in causes.causes:
            message = shortened(self._message_of(cause.type, cause.message, code=code), MAX_CAUSE)
            below = f"{_TRACEBACK}\n{self._scrub_traceback(cause.frames, code=True)}{message}"
            below += f"\n\n{_LED_TO[cause.direct]}\n\n"
            if len(below) + len(above) > room:
                cut = True
                break
            above = below + above
        if cut:
            above = f"{_NO_CAUSE}\n\n{above}"
        return without_middle(
            f"{above}{_TRACEBACK}\n{traceback}" if above else traceback, protocol.MAX_TEXT
        )

    def _instance(self, use: protocol.InstanceUse) -> protocol.InstanceUse:
        return dataclasses.replace(use, type=self._short(use.type))

    def _loss(self, loss: protocol.WorkerLoss) -> protocol.WorkerLoss:
        where = guarded(self._drops, {}, self._named, loss.deployment)
        loss = dataclasses.replace(loss, deployment=where)
        # The lines may be of any client's tasks. They already lack exceptions' texts if the client
        # that registered first refuses these.
        refused = self._settings.exceptions_transmit and not self._tells_all("exceptions_transmit")
        if loss.log is None or refused or not self._tells_all("logs_transmit"):
            return dataclasses.replace(loss, log=None)
        code = self._tells_all("code_transmit")
        return dataclasses.replace(loss, log=self._each(partial(self._prose, code=code), loss.log))

    def _log(self, record: LogRecord) -> LogRecord:
        # The worker never reads source lines, and omits exceptions' texts if the client that
        # registered first refuses them (daskscope.record_text). A message may contain such a text,
        # too.
        wanted = self._wants("exceptions_transmit", record.computation)
        code = self._wants("code_transmit", record.computation)
        exception, traceback = (record.exception, record.traceback) if wanted else (None, None)
        text = record.text
        if self._settings.exceptions_transmit and not wanted and not of_framework(record.logger):
            text = REFUSED
        if traceback is not None and not code:
            # The text of an exception from another process contains that process's traceback.
            traceback = without_code(traceback)
        return dataclasses.replace(
            record,
            text=self._prose(text, code=code),
            exception=None if exception is None else self._prose(exception, code=code),
            # It has no source lines, but ends with the exception's text.
            traceback=None if traceback is None else self._scrub_traceback(traceback, code=False),
        )

    def _shutdown(self, shutdown: protocol.Shutdown) -> protocol.Shutdown:
        return dataclasses.replace(shutdown, detail=self._text("", self.scrub, shutdown.detail))

    def _profile(self, profile: protocol.Profile) -> protocol.Profile:
        # Keep all lines, because nodes refer to them by index.
        lines = (
            dataclasses.replace(line, text=guarded(self._drops, None, self._line, line))
            for line in profile.lines
        )
        return dataclasses.replace(profile, lines=tuple(lines))

    def _line(self, line: protocol.ProfileLine) -> str | None:
        if line.text is None or not self._tells_all("code_transmit"):
            return None
        # Cut last, because half a secret would not be recognized.
        return shortened(self._scrub_code(line.text), MAX_SOURCE_LINE)

    def _counts(self, counts: Mapping[str, int]) -> dict[str, int]:
        clean: Counter[str] = Counter()
        for name, count in counts.items():
            clean[self._text(OTHER, self._short, name)] += count
        return dict(clean)

    def _event(self, event: RawEvent) -> protocol.Event:
        try:
            message, cut = (
                messages.of_dask(
                    event.message, self.scrub, tracebacks=self._tells_all("exceptions_transmit")
                )
                if messages.is_dasks(event.topic)
                else messages.json_safe(event.message, self.scrub)
            )
            text = json.dumps(message, ensure_ascii=False)
        except Exception as error:
            contain(error)  # it contains users' objects, which may fail to be read
            text, cut = json.dumps(messages.LEFT_OUT, ensure_ascii=False), True
        return protocol.Event(
            id=event.id,
            at=event.at,
            topic=self.scrub(event.topic),
            message=shortened(text, MAX_EVENT),
            cut=cut or len(text) > MAX_EVENT,
        )
