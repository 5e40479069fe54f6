"""Turns messages of Dask's event log into JSON values, without content that must not be sent.

Most of Dask's own messages contain task keys: in lists, as names in mappings, in the story of a
task, in the text of an exception. Keys are the users' private data. So of Dask's own messages only
these parts are sent: numbers, states, addresses, and Dask's words in the fields listed here.
Collections of anything else are replaced by their length. Messages on users' own topics are sent as
a whole.
"""

from __future__ import annotations

import itertools
import math
import numbers
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from distributed.core import Status
from distributed.scheduler import ALL_TASK_STATES
from distributed.worker import Worker

from daskscope.cutting import without_middle
from daskscope.scrubbing import SCRUBBED, names_a_secret, without_source_lines

#: The depth to which a message is read, and the items that are read per collection.
MAX_DEPTH = 6
MAX_ITEMS = 100
#: The most characters of a traceback in a message.
MAX_TRACEBACK = 1_000

LEFT_OUT = "…"

#: Topics that Dask itself writes to, including one for each worker and client. The topics of
#: printed text and forwarded logs are among them, because such text may contain anything.
_DASKS = re.compile(
    r"all|scheduler|stealing|transitions|p2p|print|warn|forwarded-log-record"
    r"|worker-(?:client|get-client|fail-hard|restart-memory)|transition-counter-max-exceeded"
    r"|invalid-(?:worker-)?(?:transition|task-states?)"
    # Addresses; and ids of clients, workers and others, which may begin with a name.
    r"|[\w+.-]+://.*|\w+-(?:.*-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    re.DOTALL,
)

# Fields of Dask's messages with texts from Dask. But a user may close a worker with a text of their
# own, or write to a topic of Dask's, so only texts of Dask's own words are sent.
_FIELDS = frozenset({"action", "reason", "status"})
_WORDS = frozenset(
    (
        *("adaptive", "add", "already", "broken", "cancel", "cancelled", "change", "check"),
        *("client", "close", "closing", "cluster", "connection", "could", "data", "deleted"),
        *("dependencies", "error", "exceeded", "fail", "failed", "forgotten", "function", "gather"),
        *("gracefully", "graph", "handle", "hard", "heartbeat", "idle", "instantiate", "jupyter"),
        *("kill", "lifetime", "lost", "missing", "nanny", "no", "not", "OK", "out", "p2p"),
        *("partial", "reached", "rebalance", "remove", "replicate", "requested", "restart"),
        *("retire", "retired", "retry", "run", "running", "scatter", "scheduler", "shutdown"),
        *("signal", "start", "status", "stop", "timed", "timeout", "transition", "ttl", "unknown"),
        *("unregister", "update", "worker", "workerprocess", "workers"),
    )
)
# A number behind the words, such as a signal's or a time.
_NUMBER = re.compile(r"-\d+(?:\.\d+)?$")
_FAILED_METHOD = re.compile(r"worker-(\w+)-fail-hard")
_ADDRESS = re.compile(
    r"(?:tcp|tls|ucx|ucxx|ws|wss)://[\w.\[\]:-]{1,200}:\d{1,5}|inproc://[\w.:-]{1,200}/\d+/\d+"
)
_STATES = (
    frozenset(ALL_TASK_STATES)
    | {status.name for status in Status}
    # A worker's own states of a task.
    | {"cancelled", "constrained", "executing", "fetch", "flight", "long-running", "missing"}
    | {"ready", "rescheduled", "resumed"}
    # States in the log of work stealing.
    | {"already-aborted", "already-computing", "confirm", "request", "reschedule", "stale-response"}
)
_TYPE = re.compile(r"[A-Za-z_]\w{0,100}")

Scrub = Callable[[str], str]


def is_dasks(topic: str) -> bool:
    """Return whether Dask itself writes to ``topic``."""
    return _DASKS.fullmatch(topic) is not None


class Safe(NamedTuple):
    """A message as a JSON value; ``cut`` is whether items or levels of it are missing."""

    value: Any
    cut: bool


def json_safe(message: Any, scrub: Scrub) -> Safe:
    """Return a user's ``message`` as a JSON value, with its texts scrubbed.

    Containers are read up to a depth and a number of items. Bytes and objects are replaced by their
    size and type, because they may contain data.
    """
    reader = _Reader(scrub)
    return Safe(reader.users(message), reader.cut)


def of_dask(message: Any, scrub: Scrub, *, tracebacks: bool) -> Safe:
    """Return one of Dask's own messages as a JSON value, without task keys and users' texts.

    Of an exception it contains the type and, with ``tracebacks``, the lines of the traceback.
    """
    reader = _Reader(scrub)
    return Safe(reader.dasks(message, tracebacks), reader.cut)


class _Reader:
    """Reads one message; ``cut`` is whether it was too deep or had too many items."""

    def __init__(self, scrub: Scrub) -> None:
        self._scrub = scrub
        self.cut = False

    def users(self, message: Any, depth: int = 0) -> Any:
        if isinstance(message, str):
            return self._scrub(message)
        if depth < MAX_DEPTH:
            if isinstance(message, Mapping):
                return {
                    self._scrub(str(key)): SCRUBBED
                    if names_a_secret(str(key))
                    else self.users(item, depth + 1)
                    for key, item in self._some(message.items())
                }
            if isinstance(message, list | tuple | AbstractSet):
                return [self.users(item, depth + 1) for item in self._some(message)]
        return self._plain(message)

    def dasks(self, message: Any, tracebacks: bool) -> Any:
        if not isinstance(message, Mapping):
            return self._keyless(message)
        sent: dict[str, Any] = {}
        for key, item in self._some(message.items()):
            field = str(key)
            if field == "exception_text":
                # The rest may contain task keys, as in Dask's own exceptions.
                kind = _TYPE.match(str(item))
                sent[field] = kind[0] if kind else LEFT_OUT
            elif field == "traceback_text":
                lines = without_source_lines(str(item))
                lines = without_middle(lines, MAX_TRACEBACK)
                sent[field] = self._scrub(lines) if tracebacks else LEFT_OUT
            elif field in _FIELDS and isinstance(item, str):
                sent[field] = item if _is_worded(item) else self._keyless(item)
            elif field == "client" and isinstance(item, str) and is_dasks(item):
                sent[field] = self._scrub(item)
            else:
                sent[field] = self._keyless(item)
        return sent

    def _keyless(self, value: Any, depth: int = 1) -> Any:
        if isinstance(value, str):
            return value if _is_known(value) else LEFT_OUT
        if depth < MAX_DEPTH:
            if isinstance(value, Mapping):
                # Its names are task keys or addresses.
                names = map(str, itertools.islice(value, MAX_ITEMS))
                if not all(map(_is_known, names)):
                    return len(value)
                some = self._some(value.items())
                return {str(name): self._keyless(item, depth + 1) for name, item in some}
            if isinstance(value, list | tuple | AbstractSet):
                some = itertools.islice(value, MAX_ITEMS)
                sent = [self._keyless(item, depth + 1) for item in some]
                if sent and all(item == LEFT_OUT for item in sent):
                    # Replace a list of task keys by its length.
                    return len(value)
                self.cut |= len(value) > MAX_ITEMS
                return sent
        return self._plain(value)

    def _some(self, items: Collection[Any]) -> Iterator[Any]:
        self.cut |= len(items) > MAX_ITEMS
        return itertools.islice(items, MAX_ITEMS)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, str | Mapping | list | tuple | AbstractSet):  # too deep
            self.cut = True
            return LEFT_OUT
        return _plain(value)


def _is_worded(text: str) -> bool:
    failed = _FAILED_METHOD.fullmatch(text)
    if failed is not None:
        return hasattr(Worker, failed[1])
    return _WORDS.issuperset(re.split(r"[- ]", _NUMBER.sub("", text)))


def _is_known(text: str) -> bool:
    return text in _STATES or _ADDRESS.fullmatch(text) is not None


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        # Python refuses to convert a number of thousands of digits to text.
        return value if value.bit_length() < 64 else f"<{value.bit_length()} bits>"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    # Scalars of numpy, for example.
    if isinstance(value, numbers.Integral):
        return _plain(int(value))
    if isinstance(value, numbers.Real):
        return _plain(float(value))
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind in ("numpy.bool", "numpy.bool_"):
        return bool(value)
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and all(isinstance(length, int) for length in shape):
        return f"<{kind} {shape[:MAX_ITEMS]}>"
    return f"<{kind}>"
