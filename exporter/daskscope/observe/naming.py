"""Names of tasks that may be sent, made from names of Dask and of users' functions.

A task's key may be the user's own, and what is in it is the user's business: it never leaves the
process, nor does a part of it. Keys that Dask makes bear a token. What stands before it is Dask's
*prefix*, mostly the name of an operation, but it may be the user's as well: what was given as
``key``, ``token`` or ``name``, or the text of an object that is called. So

- ``work-<token>`` and ``work-<token>-7``, calls of a function, go by what the function is called;
- ``sum-<token>``, with numbers beside it, is a part of a collection. It goes by the prefix if each
  part of that, between hyphens, is made of :data:`~daskscope.observe.operations.WORDS` that Dask
  itself uses, or is what a function is called that the task calls;
- tasks that were made of several are named after all of these, and need no token: they may be cut
  short of it;
- where the prefix is not known, the task goes by what the first function is called, from the last
  step back, that is not Dask's own, or else by Dask's. What Dask's are handed to call counts too;
- an alias of another task has that one's functions.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain, islice
from types import BuiltinFunctionType, FunctionType
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, _execute_subgraph
from dask.typing import Key
from dask.utils import funcname, methodcaller
from distributed.scheduler import TaskGroup, TaskState

from daskscope.containment import guarded
from daskscope.names import OTHER
from daskscope.observe.operations import WORDS
from daskscope.protocol import MAX_NAME

#: The name of tasks that have nothing but a key of the user's own.
OWN_KEY = "(own key)"

#: Names that metrics keep apart; the rest is counted as ``other``.
MAX_PREFIXES = 500
#: Names, and prefixes of Dask's, that are remembered.
MAX_KNOWN = 5_000
#: Parts that are looked at of a task that was made of several.
MAX_PARTS = 50
#: Aliases that are followed from one to the next.
MAX_ALIASES = 5

# What bears its name, and whose name says it all.
_PLAIN_FUNCTIONS = frozenset({FunctionType, BuiltinFunctionType})

# What dask.tokenize and uuid make, and what Client.map, dask.array.linalg and dask.blockwise put
# behind it.
_TOKEN = re.compile(
    r"-(?:[0-9a-f]{32}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})"
    r"(?:-(?:\d+|[a-z]{1,2}\d?)(?:-aux)?)?(?:_\.\d+)*$"
)


class Naming:
    """Names tasks, groups and prefixes without what may not be sent. Not thread-safe.

    The one place that decides which names the metrics keep apart, so that they all agree.
    """

    def __init__(self, drops: Counter[str]) -> None:
        self._drops = drops
        # Of Dask's prefixes: what all of their tasks are called.
        self._names: dict[str, str] = {}
        self._renamed: set[str] = set()
        # Of names: what the metrics call them.
        self._sendable: dict[str, str] = {}

    def prefix(self, task: TaskState) -> str:
        """Return what ``task`` is called."""
        return self._prefix(task, self._named_after(task))

    def _named_after(self, task: TaskState) -> Any | None:
        # Functions are users' own objects: to ask one what it is called may raise anything.
        return guarded(self._drops, None, _named_after, task)

    def _prefix(self, task: TaskState, function: Any | None) -> str:
        if function is None:
            name = guarded(self._drops, OWN_KEY, _name, task)
        else:
            name = guarded(self._drops, OWN_KEY, _called, function)
        prefix = task.prefix.name[:MAX_NAME]
        known = self._names.get(prefix)
        if known != name:
            self._rename(prefix, known, name)
        return name

    def by_prefix(self, tasks: list[TaskState]) -> dict[str, list[TaskState]]:
        """Return ``tasks`` by what they are called."""
        if len(tasks) == 1:
            return {self.prefix(tasks[0]): tasks}
        found: defaultdict[str, list[TaskState]] = defaultdict(list)
        group = function = None
        for task in tasks:
            # Calls of one function come in thousands, one after the other: one name serves all.
            if (
                task.group is not group
                or function is None
                or getattr(task.run_spec, "func", None) is not function
                or type(task.key) is not str
            ):
                group, function = task.group, self._named_after(task)
                alike = found[self._prefix(task, function)]
            alike.append(task)
        return found

    def known(self, prefix: str) -> str:
        """Return what the metrics call the tasks of ``prefix``, one of Dask's.

        For numbers that Dask keeps by prefix, without a task to look at. A placeholder stands for
        prefixes without a task that :meth:`prefix` has seen, and for those whose tasks have several
        names.
        """
        name = self._names.get(prefix[:MAX_NAME])
        if name is None:
            name = OWN_KEY if len(self._names) < MAX_KNOWN else OTHER
        return self.sendable(name)

    def renamed(self) -> set[str]:
        """Return the prefixes that may be :meth:`known` by another name since the last call."""
        renamed, self._renamed = self._renamed, set()
        return renamed

    def sendable(self, name: str) -> str:
        """Return what the metrics call tasks of that name: ``name``, or ``other``."""
        known = self._sendable.get(name)
        if known is None:
            known = name if len(self._sendable) < MAX_PREFIXES or name == OTHER else OTHER
            if known is not name:
                # Each name once, as long as they are remembered.
                self._drops["prefix"] += 1
            if len(self._sendable) < MAX_KNOWN:
                self._sendable[name] = known
        return known

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

        The name is the prefix alone where tasks with keys of their own are joined, as are those
        whose keys begin with what is no text, and so with no token; else a hash of Dask's name is
        added, which differs between two groups of a prefix.
        """
        name: object = group.name  # the first part of a key that is a tuple, whatever it is
        if not isinstance(name, str) or name == group.prefix.name:
            return prefix
        digest = blake2b(name.encode(errors="replace"), digest_size=4).hexdigest()
        return f"{prefix[: MAX_NAME - 9]}-{digest}"


#: Characters of a key, or a part of one, that is taken out also where it is a part of a word.
MIN_KEY = 6
#: Digits of a number in a key that is taken out; a shorter one is an index, and says nothing.
MIN_DIGITS = 4
#: Parts of a key that are taken out.
MAX_KEY_PARTS = 100


def without_key(text: str, key: Key) -> str:
    """Return ``text`` without a task's ``key``: exceptions may name the task that raised them."""
    # Also as Python writes it inside of quotes.
    written = {form for part in _parts_of(key) for form in (str(part), repr(part).strip("'\""))}
    for form in sorted(written, key=len, reverse=True):
        if form in text and (len(form) >= MIN_DIGITS or not form.isdigit()):
            text = _without(text, form)
    return text


def _parts_of(key: Key) -> Iterator[Key]:
    """Yield ``key``, and what it is made of: its parts may be tuples, too."""
    left = [key]
    for _ in range(MAX_KEY_PARTS):
        if not left:
            return
        part = left.pop()
        yield part
        if isinstance(part, tuple):
            left += part


def _without(text: str, form: str) -> str:
    # What is short may be a part of another word. A pattern for each key would have to be compiled.
    if len(form) >= MIN_KEY:
        return text.replace(form, "(key)")
    if not form:
        return text
    name, at = "", 0
    while (found := text.find(form, at)) >= 0:
        end = found + len(form)
        alone = not (_is_of_word(text[found - 1 : found]) or _is_of_word(text[end : end + 1]))
        name += text[at:found] + ("(key)" if alone else form)
        at = end
    return name + text[at:]


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def kind_of(task: TaskState) -> tuple[str, str] | None:
    """Return what ``task`` has in common with others of its group that are called the same.

    None if it takes a closer look to find what they are called.
    """
    function = _named_after(task)
    if function is None or type(function) not in _PLAIN_FUNCTIONS:
        return None
    return function.__module__, function.__name__


def _named_after(task: TaskState) -> Any | None:
    """Return the user's function that ``task`` goes by alone, None if it goes by something else."""
    # The scheduler holds the task's description; of some (aliases, data) there is no function.
    function = getattr(task.run_spec, "func", None)
    return function if isinstance(task.key, str) and not _is_dasks(function) else None


def _name(task: TaskState) -> str:
    """Return what ``task`` is called, that goes by no function alone."""
    key = task.key
    function = getattr(task.run_spec, "func", None)
    named = function is _execute_subgraph or _has_token(key)
    prefix = task.prefix.name[:MAX_NAME]
    unknown = _unknown(prefix)
    if named and not unknown:
        return prefix
    parts = list(_parts(task))
    functions = [function for part in parts for function in _functions(part)]
    if named and unknown <= _known_from(parts, functions):
        return prefix
    if not functions:
        return OWN_KEY
    return _called(next((it for it in functions if not _is_dasks(it)), functions[0]))


def _has_token(key: Key) -> bool:
    if isinstance(key, tuple) and key:
        key = key[0]
    return isinstance(key, str) and _TOKEN.search(key) is not None


@lru_cache(MAX_KNOWN)
def _unknown(prefix: str) -> frozenset[str]:
    """Return the parts of ``prefix`` that are not made of Dask's own words."""
    pieces = (piece.strip("_") for piece in prefix.lower().split("-"))
    return frozenset(piece for piece in pieces if not WORDS.issuperset(piece.split("_")))


def _known_from(parts: list[Any], functions: list[Any]) -> set[str]:
    """Return the parts of a prefix that are known from what a task is made of, and calls."""
    types = (part.typ.__name__ for part in parts if isinstance(part, DataNode))
    return {name.strip("_").lower() for name in chain(map(_called, functions), types)}


def _parts(task: TaskState) -> Iterator[Any]:
    """Return what ``task``, or the task that it is an alias of, is made of: the last step first."""
    for _ in range(MAX_ALIASES):
        if not isinstance(task.run_spec, Alias) or len(task.dependencies) != 1:
            break
        (task,) = task.dependencies
    left: list[Any] = [task.run_spec]
    for _ in range(MAX_PARTS):
        if not left:
            return
        part = left.pop()
        if getattr(part, "func", None) is _execute_subgraph:
            inner, last = part.args[:2]
            left += [node for node in part.args[3:MAX_PARTS] if isinstance(node, DataNode)]
            left += [node for key, node in islice(inner.items(), MAX_PARTS) if key != last]
            left.append(inner[last])
        else:
            yield part
            left += [node for node in _handed(part) if isinstance(node, GraphNode)]


def _functions(part: Any) -> list[Any]:
    """Return what ``part`` calls, or is, for it may be data that another one calls."""
    if isinstance(part, DataNode):
        return [part.value] if callable(part.value) else []
    function = getattr(part, "func", None)
    if function is None:
        return []
    handed = (it for it in _handed(part) if callable(it) and not isinstance(it, GraphNode))
    return [*handed, function]


def _handed(part: Any) -> Iterator[Any]:
    """Return what stands where functions of Dask's have what they call. It may be anything."""
    if _is_dasks(getattr(part, "func", None)):
        yield from part.args[:1]
        for name in ("_func", "func", "func1d"):
            if name in part.kwargs:
                yield part.kwargs[name]


def _is_dasks(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    module = getattr(function, "__module__", None)
    return (
        isinstance(module, str) and _is_of_dask(module) and not isinstance(function, methodcaller)
    )


@lru_cache(MAX_KNOWN)
def _is_of_dask(module: str) -> bool:
    return module.partition(".")[0] in ("dask", "distributed")


def _called(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    batched = _batched(function)
    if batched is not None:
        return batched[:MAX_NAME]
    # The text of any other object may show what is in it.
    named = isinstance(function, methodcaller) or hasattr(function, "__name__")
    return str(funcname(function) if named else type(function).__name__)[:MAX_NAME]


def _batched(function: Any) -> str | None:
    """Return the name of the user's function of which ``function`` is a batch of calls of joblib's;
    None if it is none.
    """
    module = type(function).__module__  # which a class may set to anything
    if not isinstance(module, str) or module.partition(".")[0] != "joblib":
        return None
    # Since joblib 1.4 in an object that catches what the batch raises.
    name = getattr(getattr(function, "func", function), "_funcname", None)
    return name if isinstance(name, str) and name else None
