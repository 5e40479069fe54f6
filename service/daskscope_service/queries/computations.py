"""Computations, with their verdicts, their titles, and their code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from msgspec import structs
from sqlalchemy import ColumnElement, Select, and_, case, func

from daskscope import protocol
from daskscope_service.db.last_entry import last_entry
from daskscope_service.db.row_values import columns_in
from daskscope_service.db.schema import cluster, code, computation, failure, finding, task_group
from daskscope_service.db.scope import Item, Page, Scope, Selection, read_in_parts, total
from daskscope_service.db.wire import fields_of
from daskscope_service.insight.progress import done_in, done_of
from daskscope_service.insight.verdict import (
    OF_VERDICT,
    cluster_verdict,
    computation_seconds,
    computation_status,
    computation_verdict,
    waits,
)
from daskscope_service.insight.views import ComputationDetail, ComputationView
from daskscope_service.insight.wording import file_name
from daskscope_service.queries.among import among
from daskscope_service.queries.causes import Subject, causes_of, with_finding
from daskscope_service.queries.computation_filter import ALL, ComputationFilter, page_of
from daskscope_service.queries.statements import cut, statements_at
from daskscope_service.web.fields import Missing

_CLUSTER_COLUMNS = ("name", *OF_VERDICT)

#: The most characters of a title, and of a call: lists have a thousand of them, files ten thousand.
_MOST_TITLE, _MOST_CALL = 300, 1_000
#: If no code of the user is known, a title names this many prefixes of tasks: those that computed
#: longest or, if that is not known, have most tasks. Then the most prefixes that are read for all
#: titles of a list.
_NAMED, _MOST_PREFIXES = 3, 20_000

#: The most computations whose titles are read to be shown beside something else.
_MOST_NAMED = 100

#: Libraries that call Dask for their users, some in a thread of their own. No frame of the user is
#: above theirs then, and their line is the same for all users. Other packages are not here: users
#: also install their jobs as packages, and the lines of these say what they do.
_CALL_FOR_USERS = frozenset(
    ("dask_ml", "joblib", "lightgbm", "prefect", "prefect_dask", "sklearn", "xarray", "xgboost")
)

#: The most task groups and failures of one computation that are read. The plugin sends 200 groups,
#: but other senders could store a million, and all of these would be in memory at once.
MOST_GROUPS, MOST_FAILURES = 1_000, 500

#: The columns that a heading needs, besides the last frame.
_OF_HEADING = (
    *("cluster", "id", "user", "status", "tasks", "completed", "erred", "cancelled", "states"),
)

_OF_COMPUTATION = columns_in(computation, ComputationView)
_OF_GROUP = [task_group.c[name] for name in fields_of(protocol.TaskGroup) if name != "computation"]
_OF_FAILURE = [failure.c[name] for name in fields_of(protocol.Failure) if name != "computation"]


@dataclass(frozen=True, slots=True)
class Heading:
    """How to show a computation beside something else. ``title`` is "" if nothing is known."""

    title: str
    user: str
    status: str


def list_computations(
    scope: Scope, selection: Selection, which: ComputationFilter = ALL
) -> Page[ComputationView]:
    """Return computations as ``which`` says: by default all, by the time they started."""
    query, at = _with_cluster(scope), computation.c.started_at
    if which.finding is not None:
        query, at = with_finding(query, which.finding), finding.c.at
    if selection.user is not None:
        query = query.where(computation.c.user == selection.user)
    query = query.where(scope.is_of(selection.cluster, computation.c.cluster))
    listed = page_of(scope, query, selection, which, at)
    return Page(_views(scope, listed.items), listed.next)


def one_computation(scope: Scope, cluster_id: str, id: str) -> ComputationDetail:
    """Return one computation with its task groups, failures and code. Raises Missing."""
    query = _with_cluster(scope).where(computation.c.cluster == cluster_id, computation.c.id == id)
    rows = scope.items(query)
    if not rows:
        raise Missing("computation", id)
    # In the order of their keys, so that the database reads no more than the first.
    groups, more_groups = scope.first_items(
        scope.select(task_group, *_OF_GROUP)
        .where(task_group.c.cluster == cluster_id, task_group.c.computation == id)
        .order_by(task_group.c.name),
        MOST_GROUPS,
    )
    failures, more_failures = scope.first_items(
        scope.select(failure, *_OF_FAILURE)
        .where(failure.c.cluster == cluster_id, failure.c.computation == id)
        .order_by(failure.c.fingerprint),
        MOST_FAILURES,
    )
    [view] = _views(scope, rows)
    parts = {
        "frames": None if view.frames is None else _with_code(scope, view.frames),
        "task_groups": sorted(
            (group | {"done": done_in(group, rows[0]["status"])} for group in groups),
            key=lambda one: (one["started_at"] is None, one["started_at"] or 0.0, one["name"]),
        ),
        "more_task_groups": more_groups,
        "failures": sorted(failures, key=lambda one: (one["first_at"], one["fingerprint"])),
        "more_failures": more_failures,
    }
    return ComputationDetail.of(structs.asdict(view) | parts)


def titles_of(scope: Scope, cluster_id: str, ids: Iterable[str]) -> dict[str, str]:
    """Return the titles of a cluster's computations by id, for at most :data:`_MOST_NAMED`."""
    asked = sorted(set(ids))[:_MOST_NAMED]
    if not asked:
        return {}
    headings = headings_by_key(scope, [(cluster_id, id) for id in asked])
    return {id: heading.title for (_, id), heading in headings.items()}


def headings_by_key(
    scope: Scope, keys: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], Heading]:
    """Return headings by key, a cluster's and a computation's id, for those that are stored."""
    columns = [computation.c[name] for name in _OF_HEADING]
    query = _with_cluster(scope, *columns, last_entry(computation.c.frames).label("frame"))
    key = (computation.c.cluster, computation.c.id)
    headings: dict[tuple[str, str], Heading] = {}
    for _, rows in read_in_parts(
        list(dict.fromkeys(keys)), lambda some: scope.items(among(query, key, some))
    ):
        frames = [row["frame"] for row in rows]
        titles = _titles(scope, rows, frames, _calls(scope, frames))
        for row, title in zip(rows, titles, strict=True):
            of_cluster = cluster_verdict(_cluster_in(row), scope.now, scope.silent_after)
            headings[_key(row)] = Heading(title, row["user"], computation_status(row, of_cluster))
    return headings


def frames_of(scope: Scope, cluster_id: str, id: str) -> list[Item]:
    """Return the user's frames of a computation, as :func:`one_computation` does; [] if none."""
    rows = scope.items(
        scope.select(computation, computation.c.frames).where(
            computation.c.cluster == cluster_id, computation.c.id == id
        )
    )
    return _with_code(scope, rows[0]["frames"] or []) if rows else []


def trace_id_of(scope: Scope, cluster_id: str, id: str) -> str:
    """Return the id of a computation's trace, "" if it has none. Raises Missing."""
    rows = scope.items(
        scope.select(computation, computation.c.trace_id).where(
            computation.c.cluster == cluster_id, computation.c.id == id
        )
    )
    if not rows:
        raise Missing("computation", id)
    return rows[0]["trace_id"] or ""


def _with_cluster(scope: Scope, *own: ColumnElement[Any]) -> Select[Any]:
    columns = [cluster.c[name].label(f"cluster.{name}") for name in _CLUSTER_COLUMNS]
    return scope.select(computation, *(own or _OF_COMPUTATION), *columns).join(
        cluster,
        and_(cluster.c.workspace == computation.c.workspace, cluster.c.id == computation.c.cluster),
    )


def _cluster_in(row: Item) -> Item:
    """Return the columns of the cluster that are part of a computation's ``row``."""
    return {name: row[f"cluster.{name}"] for name in _CLUSTER_COLUMNS}


def _views(scope: Scope, rows: list[Item]) -> list[ComputationView]:
    frames = [row["frames"][-1] if row["frames"] else None for row in rows]
    calls = _calls(scope, frames)
    titles = _titles(scope, rows, frames, calls)
    causes = causes_of(scope, [_key(row) for row in rows])
    return [
        _view(scope, row, call=call, title=title, cause=causes.get(_key(row)))
        for row, call, title in zip(rows, calls, titles, strict=True)
    ]


def _view(scope: Scope, row: Item, **named: Any) -> ComputationView:
    its_cluster = _cluster_in(row)
    seconds = computation_seconds(row, its_cluster)
    of_cluster = cluster_verdict(its_cluster, scope.now, scope.silent_after)
    verdict = computation_verdict(row, of_cluster, seconds)
    made = {
        "cluster_name": its_cluster["name"],
        "status": verdict.status,
        "sentence": verdict.sentence,
        "duration": seconds,
        "silence": verdict.silence,
        "waits": waits(row, of_cluster.workers),
        "done": done_of(row),
    }
    return ComputationView.of(row | named | made)


def _key(row: Item) -> Subject:
    return row["cluster"], row["id"]


def _calls(scope: Scope, frames: list[Item | None]) -> list[str | None]:
    """Return the statement at each of ``frames``, None if it is not known."""
    calls = statements_at(scope, [frame for frame in frames if frame is not None], _MOST_CALL)
    return [
        None if frame is None else calls.get((frame["code"], frame["line"])) for frame in frames
    ]


def _titles(
    scope: Scope, rows: list[Item], frames: list[Item | None], calls: list[str | None]
) -> list[str]:
    """Return for each computation a title by which people recognise it, "" if nothing is known."""
    unnamed = [
        _key(row)
        for row, frame in zip(rows, frames, strict=True)
        if frame is None or _says_little(frame["file"])
    ]
    by_tasks = _titles_by_tasks(scope, unnamed) if unnamed else {}
    titles = []
    for row, frame, call in zip(rows, frames, calls, strict=True):
        title = call or (f"{file_name(frame['file'])}:{frame['line']}" if frame else "")
        titles.append(by_tasks.get(_key(row)) or cut(title, _MOST_TITLE))
    return titles


def _titles_by_tasks(scope: Scope, computations: list[Subject]) -> dict[Subject, str]:
    """Return titles that name the tasks, for the ``computations`` that have any."""
    key = (task_group.c.cluster, task_group.c.computation)
    took = task_group.c.seconds["compute"].as_float()
    # Values stored by versions without bounds could make the sum fail in PostgreSQL.
    computing = func.sum(case((took.between(1e-9, 1e15), took), else_=0.0))
    query = (
        among(scope.select(task_group, *key, task_group.c.prefix), key, computations)
        .group_by(*key, task_group.c.prefix)
        .order_by(computing.desc(), total(task_group.c.tasks).desc(), task_group.c.prefix)
        .limit(_MOST_PREFIXES)
    )
    prefixes: dict[Subject, list[str]] = {}
    for cluster_id, id, prefix in scope.connection.execute(query):
        prefixes.setdefault((cluster_id, id), []).append(prefix)
    return {
        which: f"tasks of {', '.join(named[:_NAMED])}{', …' if len(named) > _NAMED else ''}"
        for which, named in prefixes.items()
    }


def _says_little(file: str) -> bool:
    """Return whether ``file`` belongs to a library that calls Dask for its users."""
    parts = file.replace("\\", "/").split("/")
    return any(
        folder in ("site-packages", "dist-packages") and package in _CALL_FOR_USERS
        for folder, package in pairwise(parts)
    )


def _with_code(scope: Scope, frames: list[Item]) -> list[Item]:
    sources = _sources(scope, frames)
    shown = ("text", "first_line", "cut", "unreadable")
    unknown = dict.fromkeys(shown[:-1])
    of_frames = [sources.get(frame["code"], unknown) for frame in frames]
    return [
        frame | {name: source[name] for name in shown if name in source}
        for frame, source in zip(frames, of_frames, strict=True)
    ]


def _sources(scope: Scope, frames: list[Item]) -> dict[str, Item]:
    hashes = {frame["code"] for frame in frames} - {None}
    return {
        row["hash"]: row for row in scope.items(scope.select(code).where(code.c.hash.in_(hashes)))
    }
