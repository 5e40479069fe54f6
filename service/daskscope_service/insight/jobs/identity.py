"""What makes runs one job: a name, else the code of the calls, else the shape of the graph.

The first of these that a run has is its level. Two kinds of work in one job would show changes that
nobody made, so jobs are split rather too much than too little: the call counts even if there is a
name, and the shape counts, too, if a call alone says too little.
"""

from __future__ import annotations

import io
import json
import keyword
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from daskscope.own_code import is_of_library
from daskscope.protocol import UNREGISTERED
from daskscope_service.insight.jobs.corrections import SplitBy

Level = Literal["name", "code", "shape"]

#: The key of the annotation, and of the cluster's tag, that name a job.
JOB = "job"

#: Dask's span for work that the user put into no span.
_NO_SPAN = "default"
#: Joins the parts of a name.
_WITHIN = " / "

#: File names of code that was typed in: they differ for each cell and each start of Python.
_TYPED_IN = re.compile(r"^<|[\\/]ipykernel_\d+[\\/]")
#: Parts of a path that vary from run to run: in names of temporary folders, checkouts, versions.
_VARIES = re.compile(r"[0-9a-f]{7,}|\d+", re.IGNORECASE)
_INSTALLED = re.compile(r"^.*[\\/](?:site|dist)-packages[\\/]")

#: The most characters of a statement that is tokenized: Python's tokenizer takes a tenth of a
#: second for some statements of 20,000.
_MOST_TEXT = 2_000

_SKIPPED = frozenset(
    getattr(tokenize, name)
    for name in ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")
)
# Since Python 3.12, f-strings consist of several tokens; before, each was one string token.
_OPENS = getattr(tokenize, "FSTRING_START", None)
_CLOSES = getattr(tokenize, "FSTRING_END", None)


@dataclass(frozen=True, slots=True)
class Call:
    """A frame of the user's stack: its file and its statement, None if that is not known."""

    file: str
    statement: str | None


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of one run, to find its job.

    ``deployment`` says where the cluster's program ran, and in which pipeline.
    ``calls`` are outermost first. ``groups`` are prefixes by the name of their task group;
    ``edges`` are pairs of a group's name and the name of a group that it depends on.
    """

    user: str
    spans: Sequence[str] = ()
    annotations: Mapping[str, str] | None = None
    tags: Mapping[str, str] | None = None
    deployment: Mapping[str, str] | None = None
    calls: Sequence[Call] = ()
    groups: Mapping[str, str] | None = None
    edges: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """What a run has in common with the others of its job. The job's id is made from ``key``.

    ``name`` is the name that users gave the job, "" unless ``level`` is "name".
    """

    level: Level
    name: str
    key: str


def identity_of(run: Traits) -> Identity | None:
    """Return the identity of the job of ``run``, None if the run has none of the traits."""
    name = _name(run)
    calls = _calls(run)
    if name:
        # One name may cover several computations, so the innermost call is part of the key.
        within = [statement for _, statement in calls[-1:]] or _shape(run)
        return Identity("name", name, _key("name", name, within))
    shape = _shape(run)
    code: list[object] = []
    if calls and not all(is_of_library(call.file) for call in run.calls):
        typed_in = any(place == "" for place, _ in calls)
        code = [calls, shape if typed_in else []]
    if name := _scheduled(run):
        # A cluster may run work of others, too, so all counts that would without the name.
        return Identity("name", name, _key("scheduled", name, _user(run), code or shape))
    if code:
        return Identity("code", "", _key("code", _user(run), *code))
    if shape:
        return Identity("shape", "", _key("shape", _user(run), shape))
    return None


def part_key(run: Traits, by: SplitBy) -> str:
    """Return what runs have in common that stay together if their job is split."""
    return _key("part", by, _user(run), _calls(run) if by == "code" else _shape(run))


def _user(run: Traits) -> str:
    # Their hosts may be pods, of which each run has another.
    return UNREGISTERED if run.user.startswith(UNREGISTERED) else run.user


#: Names of the tasks of orchestrators and CI, each of what a cluster reports about its deployment.
_SCHEDULED = (
    ("airflow.dag.id", "airflow.task.id"),
    ("dagster.job.name", "dagster.step.key"),
    ("prefect.flow.name",),
    ("github.repository.name", "github.workflow.name", "github.job.name"),
    ("gitlab.project.name", "gitlab.job.name"),
)


def _scheduled(run: Traits) -> str:
    """Return the name of the orchestrator's task that started the program, "" without one.

    A part of a name is none: a repository has many jobs, and ids of tasks are unique within a DAG.
    """
    attributes = run.deployment or {}
    for names in _SCHEDULED:
        if all(attributes.get(name) for name in names):
            return _WITHIN.join(attributes[name] for name in names)
    return ""


def needs_groups(run: Traits) -> bool:
    """Return whether the identity of ``run`` depends on its task groups, so must wait for them."""
    bare = replace(run, groups={}, edges=())
    groups = {"daskscope": "daskscope"}
    full = replace(run, groups=groups, edges=())
    return identity_of(bare) != identity_of(full)


@lru_cache(256)
def normalised(statement: str) -> str:
    """Return ``statement`` with placeholders for numbers and strings, and uniform spaces.

    The same call with other arguments, such as a date, is then equal. In code that is not valid
    Python, or very long, only the spaces are made uniform.
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
    """Return the places and known statements of calls; [] if the innermost one is unknown."""
    if not run.calls or run.calls[-1].statement is None:
        return []
    return [
        (_place(call.file), normalised(call.statement))
        for call in run.calls
        if call.statement is not None
    ]


def _place(file: str) -> str:
    """Return a path without what varies from run to run; "" for code that was typed in."""
    if _TYPED_IN.search(file):
        return ""
    return _VARIES.sub("#", _INSTALLED.sub("", file).replace("\\", "/"))


def _shape(run: Traits) -> list[list[str]]:
    """Return the prefixes of the groups, each followed by the prefixes that it depends on.

    The numbers of groups and tasks are left out, because they depend on the amount of data.
    """
    groups = run.groups or {}
    needs: dict[str, set[str]] = {prefix: set() for prefix in groups.values()}
    for one, other in run.edges:
        if one in groups and other in groups and groups[one] != groups[other]:
            needs[groups[one]].add(groups[other])
    return [[prefix, *sorted(needed)] for prefix, needed in sorted(needs.items())]


def _key(*parts: object) -> str:
    return json.dumps(parts, ensure_ascii=False)
