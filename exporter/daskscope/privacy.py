"""What may leave the process: switches, scrubbing, size caps.

:class:`Privacy` is the only way from a snapshot as observed to one that may be sent; the types say
so, and ``emit`` and ``report`` take nothing else. Runs in a background thread.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import numbers
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

from daskscope import protocol
from daskscope.config import Settings
from daskscope.observe.code import MAX_CODE
from daskscope.observe.events import RawEvent
from daskscope.observe.logs import LogRecord
from daskscope.observe.snapshot import Observed, Snapshot

#: What may leave.
Cleared = Snapshot[protocol.Event]

SCRUBBED = "[scrubbed]"

#: The longest an event's message may be, as JSON text.
MAX_EVENT = 2_000
#: How deep and how wide an event's message is looked into.
_MAX_DEPTH = 6
_MAX_ITEMS = 100

_NAMES_OF_SECRETS = (
    "passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    "|credential|authorization"
)
_SECRET_NAME = re.compile(_NAMES_OF_SECRETS, re.IGNORECASE)

# Each pattern keeps what its group ``keep`` matched; the rest of the match is replaced. All are
# bounded on both sides of what they look for, so that no text takes them long.
_SECRETS = (
    # password = "…", api_key: …, AWS_SECRET_ACCESS_KEY='…', also escaped inside of JSON. A quoted
    # value counts in any case; a bare one only if it looks made up, for code is full of names.
    rf"""(?ix) (?P<keep>
        (?: {_NAMES_OF_SECRETS} ) [\w.-]{{0,40}}
        (?: \\?["'] )? \s{{0,8}} [:=] \s{{0,8}} (?: (?:bearer|basic)\s )? )
        (?: \\?"[^"\\\n]+\\?" | \\?'[^'\\\n]+\\?'
          | (?=[^\s"'(),;]{{0,200}}?[\d/+!@$%^*]) [^\s"'(),;\\]{{6,}}+ (?!\() )""",
    # --token … on a command line.
    r"""(?ix) (?P<keep> --[\w-]{0,40}(?:password|secret|token|key) [\ =] ) [^\s"']{4,}""",
    # Authorization headers wherever they stand.
    r"(?i)(?P<keep>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}",
    # URLs with credentials: scheme://user:password@host.
    r"(?P<keep>\b[a-zA-Z][a-zA-Z0-9+.-]{0,20}://)[^\s/@:]{0,200}:[^\s/@]{1,200}(?=@)",
    # Tokens that can be told by their form: daskscope, GitHub, GitLab, Slack, AWS, JWT.
    r"(?P<keep>)\b(?:dsk_\w{8,}|gh[pousr]_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|A(?:KIA|SIA)[A-Z0-9]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+)",
    r"(?s)(?P<keep>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).+?(?=-----END|\Z)",
)

#: A traceback's source lines, below the line that names the file: Dask formats them indented by
#: four. Marks below them (``^^^^``) go along.
_SOURCE_LINES = re.compile(r"(?m)^(  File \".+\", line \d+, in .+\n)(?:    .*\n?)+")


class Privacy:
    """Clears snapshots to leave, by the settings of whoever registered."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._secrets = tuple(re.compile(pattern) for pattern in _SECRETS)
        self._users_own = tuple(re.compile(pattern) for pattern in settings.scrub)
        # From the hash of code as observed to that of the code that is sent.
        self._hashes: dict[str, str] = {}

    def clear(self, snapshot: Observed) -> Cleared:
        """Return ``snapshot`` without what may not leave."""
        # First the code: its hashes change with its text, and the computations refer to them.
        code = tuple(map(self._code, snapshot.code)) if self._settings.code_transmit else ()
        return dataclasses.replace(
            cast(Cleared, snapshot),  # true once its events are replaced
            code=code,
            computations=tuple(map(self._computation, snapshot.computations)),
            failures=tuple(map(self._failure, snapshot.failures)),
            worker_losses=tuple(map(self._loss, snapshot.worker_losses)),
            events=tuple(map(self._event, snapshot.events)),
            logs=tuple(map(self._log, snapshot.logs)) if self._settings.logs_transmit else (),
        )

    def scrub(self, text: str) -> str:
        """Return ``text`` without secrets, and no longer than ``protocol.MAX_TEXT``."""
        for pattern in self._secrets:
            text = pattern.sub(rf"\g<keep>{SCRUBBED}", text)
        for pattern in self._users_own:
            text = pattern.sub(SCRUBBED, text)
        # Neither JSON nor OTLP can hold a lone surrogate, of a file name that is no UTF-8.
        return _shortened(text.encode(errors="replace").decode(), protocol.MAX_TEXT)

    def _code(self, code: protocol.Code) -> protocol.Code:
        text = self.scrub(code.text)
        clean = protocol.code_hash(code.file, code.first_line, code.cut, text)
        self._hashes[code.hash] = clean
        if len(self._hashes) > 2 * MAX_CODE:
            del self._hashes[next(iter(self._hashes))]
        return dataclasses.replace(code, text=text, hash=clean)

    def _computation(self, computation: protocol.Computation) -> protocol.Computation:
        if not self._settings.code_transmit:
            return dataclasses.replace(computation, frames=None)
        frames = tuple(
            dataclasses.replace(frame, code=self._hashes.get(frame.code or ""))
            for frame in computation.frames or ()
        )
        return dataclasses.replace(computation, frames=frames)

    def _failure(self, failure: protocol.Failure) -> protocol.Failure:
        if not self._settings.exceptions_transmit:
            return dataclasses.replace(failure, message=None, traceback=None)
        traceback = failure.traceback
        if traceback is not None and not self._settings.code_transmit:
            traceback = _SOURCE_LINES.sub(r"\1", traceback)
        return dataclasses.replace(
            failure,
            message=None if failure.message is None else self.scrub(failure.message),
            traceback=None if traceback is None else self.scrub(traceback),
        )

    def _loss(self, loss: protocol.WorkerLoss) -> protocol.WorkerLoss:
        log = loss.log if self._settings.logs_transmit else None
        return dataclasses.replace(loss, log=None if log is None else tuple(map(self.scrub, log)))

    def _log(self, record: LogRecord) -> LogRecord:
        # Source lines were never read, and texts of exceptions were left out where they are refused
        # (daskscope.worker_logs): a message may be made of one.
        return dataclasses.replace(
            record,
            text=self.scrub(record.text),
            exception=None if record.exception is None else self.scrub(record.exception),
            traceback=None if record.traceback is None else self.scrub(record.traceback),
        )

    def _event(self, event: RawEvent) -> protocol.Event:
        text = json.dumps(self.json_safe(event.message), ensure_ascii=False)
        return protocol.Event(
            id=event.id,
            at=event.at,
            topic=event.topic,
            message=_shortened(text, MAX_EVENT),
            cut=len(text) > MAX_EVENT,
        )

    def json_safe(self, value: Any, depth: int = 0) -> Any:
        """Return ``value`` as what JSON can hold, its texts scrubbed.

        Containers are looked into to a depth of six and a width of a hundred; bytes and objects are
        named by size and type, for what is in them may be data.
        """
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, str):
            return self.scrub(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return f"<{len(value)} bytes>"
        if depth == _MAX_DEPTH:
            return "…"
        if isinstance(value, Mapping):
            return {
                self.scrub(str(key)): SCRUBBED
                if _SECRET_NAME.search(str(key))
                else self.json_safe(item, depth + 1)
                for key, item in itertools.islice(value.items(), _MAX_ITEMS)
            }
        if isinstance(value, list | tuple | AbstractSet):
            return [self.json_safe(item, depth + 1) for item in itertools.islice(value, _MAX_ITEMS)]
        if isinstance(value, numbers.Real):  # numpy's scalars are
            return self.json_safe(float(value), depth)
        return f"<{type(value).__module__}.{type(value).__qualname__}>"


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
