"""Names for tasks that may be told: made of what Dask and the user's functions are called.

A task's key may be the user's own, and what is in it is the user's business: it never leaves the
process, nor does a part of it. Keys that Dask makes bear a token:

- ``sum-<token>``, with numbers beside it, is a part of a collection. What stands before the token
  is Dask's *prefix*, the name of an operation, and the task goes by it. (Dask's collections let
  users name an operation as well, with ``token=``.)
- ``work-<token>`` or ``work-<token>-7`` is a call of a function. It goes by what the function is
  called, as does a task whose key bears no token: before the token may be what the user gave as
  ``key``, or the text of an object that is called.
- The key of a task that was made of several names them all, and may be cut short of its token. It
  goes by the prefix if all of these keys are Dask's, else by what the last of them is called.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from hashlib import blake2b
from typing import Any

from dask._task_spec import _execute_subgraph
from dask.typing import Key
from dask.utils import funcname, key_split, methodcaller
from distributed.scheduler import TaskGroup, TaskState

from daskscope.names import OTHER
from daskscope.protocol import MAX_NAME

#: The name of tasks of which nothing but the user's own key is known.
OWN_KEY = "(own key)"

#: Names that metrics keep apart; the rest is counted as ``other``.
MAX_PREFIXES = 500
#: Names, and prefixes of Dask's, that are remembered.
MAX_KNOWN = 5_000
#: Keys that are looked at of a task that was made of several.
MAX_FUSED = 50

# What dask.tokenize and uuid make, and what Client.map, dask.array.linalg and dask.blockwise put
# behind it.
_TOKEN = re.compile(
    r"-(?:[0-9a-f]{32}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})"
    r"(?:-(?:\d+|[a-z]{1,2}\d?)(?:-aux)?)?(?:_\.\d+)*$"
)


class Naming:
    """Tells what tasks, groups and prefixes may be called. Not thread-safe.

    The one place that decides which names the metrics keep apart, so that they all agree.
    """

    def __init__(self, drops: Counter[str]) -> None:
        self._drops = drops
        # Of Dask's prefixes: what all of their tasks are called.
        self._names: dict[str, str] = {}
        self._renamed: set[str] = set()
        # Of names: what the metrics call them.
        self._told: dict[str, str] = {}

    def prefix(self, task: TaskState) -> str:
        """Return what ``task`` is called."""
        name = _name(task)
        prefix = task.prefix.name[:MAX_NAME]
        known = self._names.get(prefix)
        if known != name:
            self._rename(prefix, known, name)
        return name

    def known(self, prefix: str) -> str:
        """Return what the metrics call the tasks of ``prefix``, one of Dask's.

        For numbers that Dask keeps by prefix, where no task is at hand. There is a stand-in for
        prefixes of which :meth:`prefix` has met no task, and of those whose tasks go by several
        names.
        """
        name = self._names.get(prefix[:MAX_NAME])
        if name is None:
            name = OWN_KEY if len(self._names) < MAX_KNOWN else OTHER
        return self.told(name)

    def renamed(self) -> set[str]:
        """Return the prefixes that may be :meth:`known` by another name since the last call."""
        renamed, self._renamed = self._renamed, set()
        return renamed

    def told(self, name: str) -> str:
        """Return what the metrics call tasks of that name: ``name``, or ``other``."""
        told = self._told.get(name)
        if told is None:
            told = name if len(self._told) < MAX_PREFIXES or name == OTHER else OTHER
            if told is not name:
                # Each name once, as long as they are remembered.
                self._drops["prefix"] += 1
            if len(self._told) < MAX_KNOWN:
                self._told[name] = told
        return told

    def _rename(self, prefix: str, known: str | None, name: str) -> None:
        if known is None:
            if len(self._names) >= MAX_KNOWN:
                return
        elif known == OWN_KEY:
            return
        else:
            name = OWN_KEY
        self._names[prefix] = name
        self._renamed.add(prefix)

    @staticmethod
    def group(group: TaskGroup, prefix: str) -> str:
        """Return a name for Dask's ``group``, whose tasks are called ``prefix``.

        The name is the prefix alone where tasks with keys of their own are joined; else a hash of
        Dask's name is added, which tells two groups of a prefix apart.
        """
        if group.name == group.prefix.name:
            return prefix
        digest = blake2b(group.name.encode(errors="replace"), digest_size=4).hexdigest()
        return f"{prefix[: MAX_NAME - 9]}-{digest}"


def without_key(text: str, key: Key) -> str:
    """Return ``text`` without a task's ``key``: exceptions may name the task that raised them."""
    parts = (key, *key) if isinstance(key, tuple) else (key,)
    # Also as Python writes it inside of quotes.
    written = {form for part in parts for form in (str(part), repr(part).strip("'\""))}
    for form in sorted(written, key=len, reverse=True):
        if form in text and form and not form.isdigit():
            text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", "(key)", text)
    return text


def _name(task: TaskState) -> str:
    key, spec = task.key, task.run_spec
    # The scheduler holds the task's description; of some (aliases, data) there is no function.
    function = getattr(spec, "func", None)
    if function is _execute_subgraph:
        if _made_by_dask(key, spec):
            return task.prefix.name[:MAX_NAME]
        return _of_last(spec)
    if function is None or isinstance(key, tuple) or _is_dasks(function):
        if _has_token(key):
            return task.prefix.name[:MAX_NAME]
        if function is None:
            return OWN_KEY
    return _called(function)


def _has_token(key: Key) -> bool:
    if isinstance(key, tuple) and key:
        key = key[0]
    return isinstance(key, str) and _TOKEN.search(key) is not None


def _made_by_dask(key: Key, spec: Any) -> bool:
    """Return whether ``key`` is Dask's, and each that its task was made of."""
    if getattr(spec, "func", None) is not _execute_subgraph:
        return _has_token(key)
    parts = spec.args[0]
    return len(parts) <= MAX_FUSED and all(map(_made_by_dask, parts, parts.values()))


def _of_last(spec: Any) -> str:
    parts, last = spec.args[:2]
    function = getattr(parts[last], "func", None)
    if function is _execute_subgraph:
        return _of_last(parts[last])
    if _has_token(last):
        return str(key_split(last))[:MAX_NAME]
    return OWN_KEY if function is None else _called(function)


def _is_dasks(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    module = getattr(function, "__module__", None)
    return (
        isinstance(module, str)
        and module.partition(".")[0] in ("dask", "distributed")
        and not isinstance(function, methodcaller)
    )


def _called(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    # The text of any other object may show what is in it.
    named = isinstance(function, methodcaller) or hasattr(function, "__name__")
    return str(funcname(function) if named else type(function).__name__)[:MAX_NAME]
