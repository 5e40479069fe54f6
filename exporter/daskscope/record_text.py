"""Returns the parts of a log record that may leave its process.

This file is also sent to the workers, as text, before ``daskscope.worker_logs``. So it uses only
the standard library, and ``daskscope.containment`` and ``daskscope.cutting``, which are sent along.
It runs on any Python that distributed supports.

Dask's log records may contain the user's keys, arguments and results. Of these records, and of
those of the libraries below Dask, only literal texts in the code of the logging function and
numbers are sent. So their content need not be known in advance.
"""

from __future__ import annotations

import asyncio
import builtins
import itertools
import json
import logging
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from daskscope.containment import contain
from daskscope.cutting import without_middle

MAX_NAME = 300
MAX_TEXT = 4_000
MAX_TRACEBACK = 8_000
#: The most characters of an exception's text in a traceback.
MAX_LAST_LINE = 1_000
#: The least characters of a text inside an exception's arguments, and of a line of such a text, to
#: be removed from messages.
MIN_TEXT = 4
MIN_LINE = 8
#: Values that are searched for exceptions in a message's arguments, and values and lines of one
#: exception. Bounded, because the logging code waits meanwhile.
MAX_VALUES = 5_000
#: Characters and bytes that one exception may contain in all for this search.
MAX_HELD = 2_000_000
#: The most characters of a message times the number of texts that are searched in it.
MAX_COMPARED = 50_000_000
#: Exceptions whose texts are searched in one message.
MAX_FAMILY = 50
#: Exceptions of a chain that are sent, and the outermost and innermost frames of each.
MAX_CHAIN = 5
OUTERMOST, INNERMOST = 5, 25

#: The first parts of names of loggers of whose records only literal text is sent.
FRAMEWORKS = frozenset(
    {"asyncio", "bokeh", "concurrent", "dask", "distributed", "py", "tornado"}  # py.warnings
)

#: Modules whose types have harmless text conversions.
WITH_TEXT = frozenset(
    {"builtins", "datetime", "decimal", "fractions", "ipaddress", "numpy", "pathlib", "uuid"}
)

OMITTED = "…"
REFUSED = "[refused]"

_PLAIN = frozenset((bool, bytes, float, int, str, type(None)))
# Containers that are searched for texts and exceptions, and how, without running users' code.
_CONTAINERS: tuple[tuple[type, Callable[[Any], Iterator[Any]]], ...] = (
    (dict, lambda mapping: itertools.chain(dict.keys(mapping), dict.values(mapping))),
    *((kind, kind.__iter__) for kind in (list, tuple, set, frozenset, deque)),
    # A future's repr shows its exception. Calling exception() would suppress Python's warning that
    # it was never retrieved.
    (asyncio.Future, lambda future: iter((getattr(future, "_exception", None),))),
)
_GROUPS: Any = getattr(builtins, "BaseExceptionGroup", ())  # since Python 3.11
# Marks removed text until all removals are done.
_TAKEN_OUT = "\ue000"
_TAKEN = re.compile(f"{_TAKEN_OUT}+")

_CONVERSION = re.compile(r"%(?:\([^)]*\))?[-#0 +]*\d*(?:\.\d+)?([diouxXeEfFgGcrsa%])")
_FIELD = re.compile(r"\{[^{}]*\}")
# The format of dask.utils.format_bytes.
_SIZE = re.compile(r"\d+(\.\d+)? ([kMGTP]i)?B")

#: A record: its time (seconds since the epoch), level, logger and text, and the type, text and
#: traceback of its exception, if any.
Described = tuple[float, int, str, str, "str | None", "str | None", "str | None"]


def describe(record: logging.LogRecord, exceptions: bool) -> Described:
    """Return the parts of ``record`` that may be sent. Call it while the record is being logged.

    Without ``exceptions`` it contains neither text nor traceback of an exception.
    """
    literal = of_framework(record.name)
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    text = _literal_text(record) if literal else _users_text(record, exceptions)
    sent = exceptions and not literal
    return (
        float(record.created),
        int(record.levelno),
        _clean(record.name, MAX_NAME),
        _clean(text, MAX_TEXT),
        None if error is None else _clean(type(error).__name__, MAX_NAME),
        _clean(str(error), MAX_TEXT)
        if sent and error is not None and not _names_keys(error)
        else None,
        _traceback(error, sent) if exceptions and error is not None else None,
    )


def of_framework(name: str) -> bool:
    """Return whether a logger of that name belongs to Dask or to a library below it."""
    return name.split(".", 1)[0] in FRAMEWORKS


def _names_keys(error: BaseException) -> bool:
    # Most of Dask's exceptions contain task keys.
    return of_framework(type(error).__module__)


def shortened(text: str, limit: int) -> str:
    """Return ``text``, its end replaced by an ellipsis if it is longer than ``limit``.

    The last word is removed as a whole, because half a secret would not be recognized.
    """
    if len(text) <= limit:
        return text
    text = text[:limit]
    return text[: max(text.rfind(" "), text.rfind("\n"), 0)] + OMITTED


def _clean(text: str, limit: int) -> str:
    # A lone surrogate would break the worker's connection to its scheduler.
    return shortened(text, limit).encode(errors="replace").decode()


def _users_text(record: logging.LogRecord, exceptions: bool) -> str:
    text = _made_text(record)
    # A message often contains the text of the exception that is being handled.
    handled = record.exc_info[1] if isinstance(record.exc_info, tuple) else sys.exc_info()[1]
    taken_out = OMITTED if exceptions else REFUSED
    logged = _all_in((handled, record.msg, record.args))
    some = (handled, record.msg, *(record.args or ())) if logged is None else logged
    errors = _family([value for value in some if issubclass(type(value), BaseException)])
    if not exceptions and (logged is None or len(errors) > MAX_FAMILY):
        return REFUSED  # a search for all of them would take too long
    parts: set[str] = set()
    for error in errors:
        if not exceptions or _names_keys(error):
            texts = _texts_of(error, len(text))
            if texts is None:
                return taken_out
            parts |= texts
    if len(parts) * len(text) > MAX_COMPARED:
        return taken_out
    # Replace the longest first, by a mark that is replaced last: each text may be part of another.
    longest_first = sorted(parts, key=len, reverse=True)
    if errors and not exceptions:
        # The rest may still contain a part of an exception's text: ``str(error)[:100]``.
        return _in_code(record, text, longest_first)
    for part in longest_first:
        text = text.replace(part, _TAKEN_OUT)
    return _TAKEN.sub(taken_out, text) if parts else text


def _in_code(record: logging.LogRecord, text: str, without: list[str]) -> str:
    """Return the parts of ``text`` that are literals in the code that logged ``record``."""
    literals = _literals_of_caller(record)
    is_format = isinstance(record.msg, str) and record.msg in literals
    if is_format:
        text = _CONVERSION.sub(lambda match: "%" if match[1] == "%" else _TAKEN_OUT, record.msg)
    for part in without:
        text = text.replace(part, _TAKEN_OUT)
    if is_format:
        return _TAKEN.sub(REFUSED, text)
    return _known_pieces(text[:MAX_TEXT], _pieces_of(literals), REFUSED)


def _pieces_of(literals: list[str]) -> list[str]:
    """Return the constant parts of ``literals``, between their placeholders.

    Single words are left out, because they may be part of an exception's text.
    """
    pieces = {
        piece
        for literal in literals
        if len(literal) <= MAX_TEXT
        for piece in _FIELD.sub(_TAKEN_OUT, _CONVERSION.sub(_TAKEN_OUT, literal)).split(_TAKEN_OUT)
    }
    return [piece for piece in pieces if " " in piece and sum(map(str.isalnum, piece)) > 1]


def _all_in(values: Iterable[Any]) -> list[Any] | None:
    """Return ``values`` and all values inside Python's own containers among them.

    Return None if there are more than :data:`MAX_VALUES`.
    """
    reached = list(itertools.islice(values, MAX_VALUES + 1))
    for value in reached:  # the loop adds more
        if len(reached) > MAX_VALUES:
            return None
        kind = type(value)
        for container, held in () if kind in _PLAIN else _CONTAINERS:
            if issubclass(kind, container):
                reached += itertools.islice(held(value), MAX_VALUES + 1 - len(reached))
                break
    return reached if len(reached) <= MAX_VALUES else None


def _family(errors: list[BaseException]) -> list[BaseException]:
    """Return ``errors``, their causes and contexts, even suppressed ones, members of groups, and
    exceptions in their attributes.

    If there are more than :data:`MAX_FAMILY`, return some more than that.
    """
    family: dict[int, BaseException] = {}
    left = list(errors)
    while left and len(family) <= MAX_FAMILY:
        error = left.pop()
        if id(error) not in family:
            family[id(error)] = error
            others = (error.__cause__, error.__context__, *error.args, *vars(error).values())
            left += [each for each in others if issubclass(type(each), BaseException)]
            if isinstance(error, _GROUPS):
                left += error.exceptions[: MAX_FAMILY + 1]
    return list(family.values())


def _made_text(record: logging.LogRecord) -> str:
    # A handler that has formatted the record has stored its text there. Formatting it again would
    # run the user's code twice.
    made = record.__dict__.get("message")
    if isinstance(made, str):
        return made
    args: Any = record.args
    if isinstance(args, dict):
        args = {name: _not_the_users(value) for name, value in args.items()}
    elif args:
        args = tuple(map(_not_the_users, args))
    text = str(_not_the_users(record.msg))
    try:
        return text % args if args else text
    except Exception as error:  # logging itself reports it on stderr
        contain(error)
        return text


def _not_the_users(value: Any) -> Any:
    inside = _all_in((value,))
    return OMITTED if inside is None or any(map(_is_the_users, inside)) else value


def _is_the_users(value: Any) -> bool:
    kind = type(value)
    return not (kind.__module__.split(".", 1)[0] in WITH_TEXT or issubclass(kind, BaseException))


def _texts_of(error: BaseException, most: int) -> set[str] | None:
    """Return the texts of ``error`` that may be part of a message of ``most`` characters.

    Return None if finding them takes too long.
    """
    files = getattr(error, "filename", None), getattr(error, "filename2", None)
    # Including notes and attributes, such as the output of a command.
    held = _all_in((*error.args, *vars(error).values()))
    if held is None or sum(map(_length, held)) > MAX_HELD:
        return None
    texts = {str(error), repr(error), *_texts((*error.args, *files))}
    texts |= {text for text in _texts(held) if len(text) >= MIN_TEXT}
    # Single lines, too: messages often show only some, and a group's traceback indents each line.
    lines = [line for text in texts for line in text.splitlines()]
    if len(lines) > MAX_VALUES:
        return None
    # A longer text cannot be part of the message, and escaping it takes long.
    texts = {text for text in texts if len(text) <= most}
    texts |= {line for line in map(str.strip, lines) if MIN_LINE <= len(line) <= most}
    # Also as Python and JSON write them, with escaped quotes and line ends.
    texts |= {repr(text)[1:-1] for text in texts} | {json.dumps(text)[1:-1] for text in texts}
    return texts - {""}


def _length(value: Any) -> int:
    for kind in (str, bytes, bytearray):
        if issubclass(type(value), kind):
            return kind.__len__(value)
    return 0


def _texts(values: Iterable[Any]) -> Iterator[str]:
    """Yield the texts among ``values``, including decoded bytes, such as a command's output."""
    for value in values:
        # Not isinstance(), which reads __class__ and may run a proxy's code.
        kind = type(value)
        if issubclass(kind, str):
            yield value
        elif issubclass(kind, (bytes, bytearray)):
            yield value.decode(errors="replace")
            yield repr(bytes(value))[2:-1]


def _literal_text(record: logging.LogRecord) -> str:
    text = record.msg
    if not isinstance(text, str):
        return OMITTED
    literals = _literals_of_caller(record)
    if text not in literals:
        # Leave out single words: they may be part of a key.
        literals = [literal for literal in literals if " " in literal.strip() or len(literal) > 12]
        return _CONVERSION.sub(OMITTED, _known_pieces(text[:MAX_TEXT], literals))
    if not record.args:
        return text
    args = iter(record.args if isinstance(record.args, tuple) else ())

    def replacement(match: re.Match[str]) -> str:
        kind = match[1]
        if kind == "%":
            return "%"
        value = next(args, None)
        if kind in "diouxXeEfFgG" and isinstance(value, int | float):
            return match[0] % value
        if kind == "s" and isinstance(value, str) and _SIZE.fullmatch(value):
            return value
        return OMITTED

    return _CONVERSION.sub(replacement, text)


def _literals_of_caller(record: logging.LogRecord) -> list[str]:
    frame = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_filename == record.pathname and code.co_name == record.funcName:
            return [literal for literal in code.co_consts if isinstance(literal, str)]
        frame = frame.f_back  # type: ignore[assignment]
    return []


def _known_pieces(text: str, literals: list[str], left_out: str = OMITTED) -> str:
    literals = [literal for literal in literals if literal in text]
    sent, at = "", 0
    while at < len(text):
        places = [(text.find(literal, at), -len(literal)) for literal in literals]
        start, length = min((place for place in places if place[0] >= 0), default=(len(text), 0))
        if start > at:
            sent += left_out
        sent += text[start : start - length]
        at = start - length
    return sent


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    for _ in range(MAX_CHAIN):
        if seen is None:
            return
        yield seen
        # Compared with None, because a truth test would run a user's code.
        context = None if seen.__suppress_context__ else seen.__context__
        seen = context if seen.__cause__ is None else seen.__cause__


def _traceback(error: BaseException, with_texts: bool) -> str:
    # Without source lines: they belong to another setting, and would have to be read from files.
    parts: list[str] = []
    for each in _chain(error):
        last = type(each).__name__
        if with_texts and not _names_keys(each):
            last += f": {shortened(str(each), MAX_LAST_LINE)}"
        frames = list(_frames(each.__traceback__))
        left_out = len(frames) - OUTERMOST - INNERMOST
        if left_out > 0:
            frames[OUTERMOST:-INNERMOST] = [f"  [{left_out} calls between these are left out]"]
        part = "\n".join(["Traceback (most recent call last):", *frames, last])
        if parts and sum(map(len, parts)) + len(part) > MAX_TRACEBACK:
            break
        parts.append(part)
    text = without_middle("\n\n".join(reversed(parts)), MAX_TRACEBACK)
    return text.encode(errors="replace").decode()


def _frames(traceback: TracebackType | None) -> Iterator[str]:
    while traceback is not None:
        code = traceback.tb_frame.f_code
        yield f'  File "{code.co_filename}", line {traceback.tb_lineno}, in {code.co_name}'
        traceback = traceback.tb_next
