"""What makes runs one job: a name, else the code of the call, else the shape of the graph.

The most specific of them that a run has is its level. Two kinds of work in one job would show
changes that nobody made, so a job is rather too narrow than too wide: the call counts where a name
is given, and the shape where a call alone says too little.
"""

from __future__ import annotations

import io
import json
import keyword
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from daskscope.own_code import is_of_library

Level = Literal["name", "code", "shape"]

#: The annotation, and the tag of a cluster, that name a job.
JOB = "job"

#: The span of Dask's that work has which is in none.
_NO_SPAN = "default"
#: What joins a name's parts.
_WITHIN = " / "

#: Where code was typed in rather than kept in a file: each cell, and each start, has another name.
_TYPED_IN = re.compile(r"^<|[\\/]ipykernel_\d+[\\/]")
#: Parts of a path that are another each time: of temporary folders, checkouts, versions of a file.
_VARIES = re.compile(r"[0-9a-f]{7,}|\d+", re.IGNORECASE)
_INSTALLED = re.compile(r"^.*[\\/](?:site|dist)-packages[\\/]")

#: Characters of a statement that is taken apart: Python's tokenizer takes a tenth of a second for
#: some of 20,000.
_MOST_TEXT = 2_000

_SKIPPED = frozenset(
    getattr(tokenize, name)
    for name in ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")
)
# From Python 3.12 on, what is in an f-string has tokens of its own; before, it was one text.
_OPENS = getattr(tokenize, "FSTRING_START", None)
_CLOSES = getattr(tokenize, "FSTRING_END", None)


@dataclass(frozen=True, slots=True)
class Call:
    """A frame of the user's stack: its file, and the statement; None where it is not known."""

    file: str
    statement: str | None


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of one run. ``calls`` are outermost first; ``groups`` are prefixes by name.

    ``edges`` are pairs of groups' names: one, and one that it needs. ``user`` is whose run it is.
    """

    user: str
    spans: Sequence[str] = ()
    annotations: Mapping[str, str] | None = None
    tags: Mapping[str, str] | None = None
    calls: Sequence[Call] = ()
    groups: Mapping[str, str] | None = None
    edges: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """What a run has in common with the others of its job: ``key``, of which its id is made.

    ``name`` is what users called it, "" at any other level than ``name``.
    """

    level: Level
    name: str
    key: str


def identity_of(run: Traits) -> Identity | None:
    """Return which job ``run`` belongs to, None where nothing that it has would say that."""
    name = _name(run)
    calls = _calls(run)
    if name:
        # Several computations may be made under one name.
        within = [statement for _, statement in calls[-1:]] or _shape(run)
        return Identity("name", name, _key("name", name, within))
    if calls and not all(is_of_library(call.file) for call in run.calls):
        typed_in = any(place == "" for place, _ in calls)
        return Identity("code", "", _key("code", run.user, calls, _shape(run) if typed_in else []))
    if shape := _shape(run):
        return Identity("shape", "", _key("shape", run.user, shape))
    return None


def needs_groups(run: Traits) -> bool:
    """Return whether the identity of ``run`` rests on its groups: they must all have arrived."""
    bare = Traits(run.user, run.spans, run.annotations, run.tags, run.calls, {}, ())
    groups = {"daskscope": "daskscope"}
    full = Traits(run.user, run.spans, run.annotations, run.tags, run.calls, groups, ())
    return identity_of(bare) != identity_of(full)


@lru_cache(256)
def normalised(statement: str) -> str:
    """Return ``statement`` with its numbers and texts taken out, and its spaces made alike.

    So the same call with other arguments, such as a date, is the same. Code that is no Python on
    its own, or very long, is only stripped of spaces.
    """
    if len(statement) > _MOST_TEXT:
        return " ".join(statement.split())
    words: list[str] = []
    inside = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(statement).readline):
            inside += (token.type == _OPENS) - (token.type == _CLOSES)
            if token.type in _SKIPPED or (inside and token.type != _OPENS):
                continue
            if token.type == tokenize.NUMBER:
                words.append("0")
            elif token.type == tokenize.STRING or (token.type == _OPENS and inside == 1):
                words.append("''")
            elif token.type not in (_OPENS, _CLOSES):
                words.append(token.string)
    except (tokenize.TokenError, SyntaxError, IndentationError):
        if not words:
            return " ".join(statement.split())
    joined = words[0] if words else ""
    for before, after in pairwise(words):
        apart = _is_word(before) and _is_word(after)
        apart = apart or keyword.iskeyword(before) or keyword.iskeyword(after)
        joined += f" {after}" if apart else after
    return joined


def _is_word(text: str) -> bool:
    return text[-1:].isalnum() or text[-1:] == "_"


def _name(run: Traits) -> str:
    named = (run.annotations or {}).get(JOB) or (run.tags or {}).get(JOB)
    parts = [named] if named else []
    parts += [span for span in run.spans if span != _NO_SPAN and span != named]
    return _WITHIN.join(parts)


def _calls(run: Traits) -> list[tuple[str, str]]:
    """Return the places and statements of all calls, [] where that of the innermost is unknown."""
    if not run.calls or run.calls[-1].statement is None:
        return []
    return [
        (_place(call.file), normalised(call.statement))
        for call in run.calls
        if call.statement is not None
    ]


def _place(file: str) -> str:
    """Return what of a path stays the same from run to run: "" for code that was typed in."""
    if _TYPED_IN.search(file):
        return ""
    return _VARIES.sub("#", _INSTALLED.sub("", file).replace("\\", "/"))


def _shape(run: Traits) -> list[list[str]]:
    """Return the prefixes of the groups, each with those that it needs.

    How many groups and tasks of one prefix there are depends on how much data there is: that is no
    part of it.
    """
    groups = run.groups or {}
    needs: dict[str, set[str]] = {prefix: set() for prefix in groups.values()}
    for one, other in run.edges:
        if one in groups and other in groups and groups[one] != groups[other]:
            needs[groups[one]].add(groups[other])
    return [[prefix, *sorted(needed)] for prefix, needed in sorted(needs.items())]


def _key(*parts: object) -> str:
    return json.dumps(parts, ensure_ascii=False)
