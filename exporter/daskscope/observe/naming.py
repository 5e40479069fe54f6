"""Names for tasks that may be sent, made from Dask's names and the names of users' functions.

Users may choose a task's key, and put private data in it. So a key never leaves the process, and
neither does a part of it. Keys that Dask generates end with a token. The part before the token is
Dask's *prefix*. It is usually the name of an operation, but may also be the user's: the ``key``,
``token`` or ``name`` that was passed, or the text of a callable object. The rules are:

- ``work-<token>`` and ``work-<token>-7``, calls of a function, get the function's name;
- ``sum-<token>`` in a tuple with numbers is a part of a collection. It gets the prefix if each part
  of that, between hyphens, consists of :data:`~daskscope.observe.operations.WORDS` that Dask itself
  uses, or is the name of a function that the task calls;
- fused tasks have a prefix made of the names of all their parts. They need no token, because Dask
  may cut it off;
- if the prefix may not be sent, the task gets the name of the first function, from the last step
  back, that is not Dask's own, or else of Dask's. Functions that are arguments of Dask's functions
  count too;
- an alias of another task has that task's functions.
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

#: The name of tasks for which only the user's own key is known.
OWN_KEY = "(own key)"

#: Names that metrics count separately; all others are counted as ``other``.
MAX_PREFIXES = 500
#: Names, and prefixes of Dask's, that are cached.
MAX_KNOWN = 5_000
#: Parts of a fused task that are looked at.
MAX_PARTS = 50
#: The longest chain of aliases that is followed.
MAX_ALIASES = 5

# Types whose instances are identified by module and name.
_PLAIN_FUNCTIONS = frozenset({FunctionType, BuiltinFunctionType})

# Tokens of dask.tokenize and uuid, and the suffixes of Client.map, dask.array.linalg and
# dask.blockwise.
_TOKEN = re.compile(
    r"-(?:[0-9a-f]{32}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})"
    r"(?:-(?:\d+|[a-z]{1,2}\d?)(?:-aux)?)?(?:_\.\d+)*$"
)


#: The end of a name with a token of dask.tokenize: a random one of uuid says nothing of the inputs.
_OF_INPUTS = re.compile(r"-[0-9a-f]{32}(?:-[a-z]{1,2}\d?(?:-aux)?)?(?:_\.\d+)*$")


class Naming:
    """Names tasks, groups and prefixes without private data. Not thread-safe.

    Only this class decides which names the metrics count separately, so all metrics agree.
    """

    def __init__(self, drops: Counter[str]) -> None:
        self._drops = drops
        # By Dask's prefix: the name that all its tasks share.
        self._names: dict[str, str] = {}
        self._renamed: set[str] = set()
        # Names of tasks whose prefix has tasks of other names, too.
        self._mixed: set[str] = set()
        # By name: the name in metrics.
        self._sendable: dict[str, str] = {}

    def prefix(self, task: TaskState) -> str:
        """Return the name of ``task``."""
        return self._prefix(task, self._named_after(task))

    def _named_after(self, task: TaskState) -> Any | None:
        # Functions are users' own objects: reading their names may raise anything.
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
        """Return ``tasks`` by their names."""
        if len(tasks) == 1:
            return {self.prefix(tasks[0]): tasks}
        by_prefix: defaultdict[str, list[TaskState]] = defaultdict(list)
        group = function = None
        for task in tasks:
            # Thousands of calls of one function come in a row: name them once.
            if (
                task.group is not group
                or function is None
                or getattr(task.run_spec, "func", None) is not function
                or type(task.key) is not str
            ):
                group, function = task.group, self._named_after(task)
                alike = by_prefix[self._prefix(task, function)]
            alike.append(task)
        return by_prefix

    def known(self, prefix: str) -> str:
        """Return the name in metrics of the tasks of Dask's ``prefix``.

        It is for numbers that Dask reports by prefix, without a task to look at. A placeholder
        stands for prefixes of which :meth:`prefix` has seen no task, and for those whose tasks have
        several names.
        """
        name = self._names.get(prefix[:MAX_NAME])
        if name is None:
            name = OWN_KEY if len(self._names) < MAX_KNOWN else OTHER
        return self.sendable(name)

    def alike(self, name: str) -> str:
        """Return one name for all tasks that Dask's prefixes alone do not distinguish from those
        that the metrics call ``name``. May be called from any thread.
        """
        return OWN_KEY if name == OTHER or name in self._mixed else name

    def alike_of(self, prefix: str) -> str:
        """Return the name for the tasks of ``prefix``, one of Dask's, as by :meth:`alike`."""
        name = self._names.get(prefix[:MAX_NAME], OWN_KEY)
        return self.alike(self._sendable.get(name, OWN_KEY))

    def renamed(self) -> set[str]:
        """Return the prefixes whose :meth:`known` name may have changed since the last call."""
        renamed, self._renamed = self._renamed, set()
        return renamed

    def sendable(self, name: str) -> str:
        """Return the name in metrics of tasks with that name: ``name``, or ``other``."""
        known = self._sendable.get(name)
        if known is None:
            known = name if len(self._sendable) < MAX_PREFIXES or name == OTHER else OTHER
            if known is not name:
                # Counted once per name, while names are cached.
                self._drops["prefix"] += 1
            if len(self._sendable) < MAX_KNOWN:
                self._sendable[name] = known
        return known

    def _rename(self, prefix: str, known: str | None, name: str) -> None:
        if known is None:
            if len(self._names) >= MAX_KNOWN:
                return
        else:
            if len(self._mixed) < MAX_KNOWN:
                self._mixed |= {known, name}
            if known == OWN_KEY:
                return
            name = OWN_KEY
        self._names[prefix] = name
        self._renamed.add(prefix)

    @staticmethod
    def group(group: TaskGroup, prefix: str) -> str:
        """Return a name for Dask's ``group``, whose tasks have the name ``prefix``.

        It is the prefix alone for groups without a token, such as those of keys that users chose.
        Else it ends with a hash of Dask's name, so that two groups of a prefix differ.
        """
        name: object = group.name  # the first item of a tuple key, of any type
        if not isinstance(name, str) or name == group.prefix.name:
            return prefix
        digest = blake2b(name.encode(errors="replace"), digest_size=4).hexdigest()
        return f"{prefix[: MAX_NAME - 9]}-{digest}"

    @staticmethod
    def is_tokenized(group: TaskGroup) -> bool:
        """Return whether Dask's name of ``group`` ends with a token of what it does and its inputs.

        Names that users chose do not, nor do those that ``pure=False`` and ``name=False`` make.
        """
        name: object = group.name
        return isinstance(name, str) and _OF_INPUTS.search(name) is not None


#: Characters from which a key, or a part of it, is removed even inside a longer word.
MIN_KEY = 6
#: Digits from which a number in a key is removed. A shorter one is an index and reveals nothing.
MIN_DIGITS = 4
#: Parts of a key that are removed.
MAX_KEY_PARTS = 100


def without_key(text: str, key: Key) -> str:
    """Return ``text`` without a task's ``key``: an exception may contain the key of its task."""
    # Also in the escaped form that repr writes.
    written = {form for part in _parts_of(key) for form in (str(part), repr(part).strip("'\""))}
    for form in sorted(written, key=len, reverse=True):
        if form in text and (len(form) >= MIN_DIGITS or not form.isdigit()):
            text = _without(text, form)
    return text


def _parts_of(key: Key) -> Iterator[Key]:
    """Yield ``key`` and its parts, which may be tuples, too."""
    left = [key]
    for _ in range(MAX_KEY_PARTS):
        if not left:
            return
        part = left.pop()
        yield part
        if isinstance(part, tuple):
            left += part


def _without(text: str, form: str) -> str:
    # A short form may be part of another word. No regular expression: each key would need its own.
    if len(form) >= MIN_KEY:
        return text.replace(form, "(key)")
    if not form:
        return text
    name, at = "", 0
    while (place := text.find(form, at)) >= 0:
        end = place + len(form)
        alone = not (_is_of_word(text[place - 1 : place]) or _is_of_word(text[end : end + 1]))
        name += text[at:place] + ("(key)" if alone else form)
        at = end
    return name + text[at:]


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def kind_of(task: TaskState) -> tuple[str, str] | None:
    """Return the module and name of the function of ``task``, as equal tasks share them.

    Return None if finding the name takes a closer look.
    """
    function = _named_after(task)
    if function is None or type(function) not in _PLAIN_FUNCTIONS:
        return None
    return function.__module__, function.__name__


def _named_after(task: TaskState) -> Any | None:
    """Return the user's function that alone gives ``task`` its name; None if there is none."""
    # The scheduler stores the task's specification; aliases and data have no function.
    function = getattr(task.run_spec, "func", None)
    return function if isinstance(task.key, str) and not _is_dasks(function) else None


def _name(task: TaskState) -> str:
    """Return the name of a ``task`` that no single function of the user gives its name."""
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
    """Return the parts of a prefix that may be sent because the task contains or calls them."""
    types = (part.typ.__name__ for part in parts if isinstance(part, DataNode))
    return {name.strip("_").lower() for name in chain(map(_called, functions), types)}


def _parts(task: TaskState) -> Iterator[Any]:
    """Yield the parts of ``task``, or of the task that it is an alias of, the last step first."""
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
    """Return the functions that ``part`` calls, or that it is: data may be a function."""
    if isinstance(part, DataNode):
        return [part.value] if callable(part.value) else []
    function = getattr(part, "func", None)
    if function is None:
        return []
    handed = (it for it in _handed(part) if callable(it) and not isinstance(it, GraphNode))
    return [*handed, function]


def _handed(part: Any) -> Iterator[Any]:
    """Yield the arguments by which Dask's functions get what they call. They may be anything."""
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
    # The text of any other object may reveal its data.
    named = isinstance(function, methodcaller) or hasattr(function, "__name__")
    return str(funcname(function) if named else type(function).__name__)[:MAX_NAME]


def _batched(function: Any) -> str | None:
    """Return the user's function's name if ``function`` is joblib's batch of calls; else None."""
    module = type(function).__module__  # a class may set it to anything
    if not isinstance(module, str) or module.partition(".")[0] != "joblib":
        return None
    # Since joblib 1.4 the batch is inside an object that catches its exceptions.
    name = getattr(getattr(function, "func", function), "_funcname", None)
    return name if isinstance(name, str) and name else None
