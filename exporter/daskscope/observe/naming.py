"""Names for tasks that may be told: made of what Dask and the user's functions are called.

A task's key may be the user's own, and what is in it is the user's business: it never leaves the
process, nor does a part of it. Keys that Dask makes end in a token; what stands before it is the
name of a function or of an operation, and that is Dask's *prefix*. A task whose key bears no token
goes by the name of the function that it calls.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

from dask.typing import Key
from dask.utils import funcname
from distributed.scheduler import TaskGroup, TaskState

from daskscope.protocol import MAX_NAME

#: The name of tasks of which nothing but the user's own key is known.
OWN_KEY = "(own key)"

#: Prefixes that are remembered as Dask's own.
MAX_KNOWN = 5_000

# What dask.tokenize and uuid4 make.
_TOKEN = re.compile(r"-(?:[0-9a-f]{32}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})$")


class Naming:
    """Tells what tasks, groups and prefixes may be called. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}

    def prefix(self, task: TaskState) -> str:
        """Return the prefix of ``task`` if Dask made its key, else the name of its function."""
        if _made_by_dask(task.key):
            name = task.prefix.name[:MAX_NAME]
            if name not in self._known and len(self._known) < MAX_KNOWN:
                self._known[name] = None
            return name
        return _function(task.run_spec)

    def known(self, prefix: str) -> str:
        """Return ``prefix``, one of Dask's, if :meth:`prefix` ever returned it; else a stand-in.

        For numbers that Dask keeps by prefix, where no task is at hand.
        """
        prefix = prefix[:MAX_NAME]
        return prefix if prefix in self._known else OWN_KEY

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


def _made_by_dask(key: Key) -> bool:
    if isinstance(key, tuple) and key:
        key = key[0]
    return isinstance(key, str) and _TOKEN.search(key) is not None


def _function(run_spec: Any) -> str:
    # The scheduler holds the task's description; of some (aliases, data) there is no function.
    function = getattr(run_spec, "func", None)
    if function is None:
        return OWN_KEY
    return str(funcname(function))[:MAX_NAME]
