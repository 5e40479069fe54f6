"""Computations, with their cluster, what became of them, and their code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import ColumnElement, Select, and_

from daskscope_service.db.last_entry import last_entry
from daskscope_service.db.schema import cluster, code, computation, failure, finding, task_group
from daskscope_service.db.scope import Item, Page, Scope, Selection, page, read_in_parts, total
from daskscope_service.insight.progress import done_in, done_of
from daskscope_service.insight.verdict import (
    OF_VERDICT,
    cluster_verdict,
    computation_seconds,
    computation_status,
    computation_verdict,
)
from daskscope_service.insight.wording import file_name
from daskscope_service.queries.causes import add_causes, among, with_finding
from daskscope_service.queries.statements import cut, statements_at
from daskscope_service.web.fields import Missing

_CLUSTER_COLUMNS = ("name", *OF_VERDICT)

#: Characters of a title, and of a call: lists have a thousand of them, files ten thousand.
_MOST_TITLE, _MOST_CALL = 300, 1_000
#: Prefixes of tasks that a title names, those of most tasks, where no code of the user's is known;
#: and those that are read for all titles of a list.
_NAMED, _MOST_PREFIXES = 3, 20_000

#: Computations that are named beside something else.
_MOST_NAMED = 100

#: Libraries that call Dask for their users, some in a thread of their own: there is no frame of the
#: user's above theirs then, and their line is the same for all. Jobs may be installed as packages,
#: too, and their lines say what they do.
_CALL_FOR_USERS = frozenset(
    ("dask_ml", "joblib", "lightgbm", "prefect", "prefect_dask", "sklearn", "xarray", "xgboost")
)

#: Task groups and failures of one computation that are read at most: the plugin sends 200 groups.
#: Whoever may send could store a million of them, and these are read as a whole.
MOST_GROUPS, MOST_FAILURES = 1_000, 500

#: What a heading is made of, beside the last frame.
_OF_HEADING = (
    *("cluster", "id", "user", "status", "tasks", "completed", "erred", "cancelled", "states"),
)

_OF_FAILURE = [column for column in failure.c if column is not failure.c.user]


@dataclass(frozen=True, slots=True)
class Heading:
    """What names a computation beside something else; ``title`` is "" if nothing is known."""

    title: str
    user: str
    status: str


def list_computations(scope: Scope, selection: Selection, rule: str | None = None) -> Page:
    """Return computations by the time they started; with ``rule``, those that have its finding."""
    query, at = _with_cluster(scope), computation.c.started_at
    if rule is not None:
        query, at = with_finding(query, rule), finding.c.at
    if selection.user is not None:
        query = query.where(computation.c.user == selection.user)
    query = query.where(scope.is_of(selection.cluster, computation.c.cluster))
    found = page(scope, query, selection, at, "id", "cluster")
    for item in found.items:
        item.pop("at", None)
    return Page(_completed(scope, found.items), found.next)


def one_computation(scope: Scope, cluster_id: str, id: str) -> Item:
    """Return one computation with its task groups, failures and code. Raises Missing.

    Each of ``frames`` has ``text``, ``first_line`` and ``cut`` of its code: None where it is not
    kept; and ``unreadable`` where it cannot be decrypted: see :meth:`Scope.items`. ``frames``
    itself is None where the cluster's settings refuse to send code. Of very many task groups or
    failures not all are there: ``more_task_groups`` and ``more_failures`` say so.
    """
    query = _with_cluster(scope).where(computation.c.cluster == cluster_id, computation.c.id == id)
    rows = scope.items(query)
    if not rows:
        raise Missing("computation", id)
    item = _completed(scope, rows)[0]
    # By their keys, so that no more than the first are looked at.
    item["task_groups"], item["more_task_groups"] = scope.first_items(
        scope.select(task_group)
        .where(task_group.c.cluster == cluster_id, task_group.c.computation == id)
        .order_by(task_group.c.name),
        MOST_GROUPS,
    )
    item["task_groups"].sort(
        key=lambda one: (one["started_at"] is None, one["started_at"] or 0.0, one["name"])
    )
    item["failures"], item["more_failures"] = scope.first_items(
        scope.select(failure, *_OF_FAILURE)
        .where(failure.c.cluster == cluster_id, failure.c.computation == id)
        .order_by(failure.c.fingerprint),
        MOST_FAILURES,
    )
    item["failures"].sort(key=lambda one: (one["first_at"], one["fingerprint"]))
    for group in item["task_groups"]:
        group["done"] = done_in(group, item)
    for part in (*item["task_groups"], *item["failures"]):
        del part["cluster"], part["computation"]
    _add_code(scope, item["frames"] or [])
    return item


def titles_of(scope: Scope, cluster_id: str, ids: Iterable[str]) -> dict[str, str]:
    """Return the titles of the computations of a cluster that have these ids, of a few at least."""
    asked = sorted(set(ids))[:_MOST_NAMED]
    if not asked:
        return {}
    found = headings_by_key(scope, [(cluster_id, id) for id in asked])
    return {id: heading.title for (_, id), heading in found.items()}


def headings_by_key(
    scope: Scope, keys: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], Heading]:
    """Return the headings of the computations of these clusters and ids that are there, by both."""
    columns = [computation.c[name] for name in _OF_HEADING]
    query = _with_cluster(scope, *columns, last_entry(computation.c.frames).label("frame"))
    key = (computation.c.cluster, computation.c.id)
    found: dict[tuple[str, str], Heading] = {}
    for _, items in read_in_parts(
        list(dict.fromkeys(keys)), lambda some: scope.items(among(query, key, some))
    ):
        for item in items:
            item["frames"] = None if item["frame"] is None else [item["frame"]]
        _add_calls(scope, items)
        _add_titles(scope, items)
        for item in items:
            of_cluster = cluster_verdict(_cluster_in(item), scope.now, scope.silent_after)
            found[item["cluster"], item["id"]] = Heading(
                item["title"], item["user"], computation_status(item, of_cluster)
            )
    return found


def frames_of(scope: Scope, cluster_id: str, id: str) -> list[Item]:
    """Return the user's frames of a computation, as :func:`one_computation` does; [] if none."""
    rows = scope.items(
        scope.select(computation, computation.c.frames).where(
            computation.c.cluster == cluster_id, computation.c.id == id
        )
    )
    frames = rows[0]["frames"] or [] if rows else []
    _add_code(scope, frames)
    return frames


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
    return scope.select(computation, *(own or computation.c), *columns).join(
        cluster,
        and_(cluster.c.workspace == computation.c.workspace, cluster.c.id == computation.c.cluster),
    )


def _cluster_in(item: Item) -> Item:
    """Take the columns of its cluster out of ``item``."""
    return {name: item.pop(f"cluster.{name}") for name in _CLUSTER_COLUMNS}


def _completed(scope: Scope, items: list[Item]) -> list[Item]:
    for item in items:
        its_cluster = _cluster_in(item)
        seconds = computation_seconds(item, its_cluster)
        verdict = computation_verdict(
            item, cluster_verdict(its_cluster, scope.now, scope.silent_after), seconds
        )
        item["cluster_name"] = its_cluster["name"]
        item["done"] = done_of(item)
        item["status"], item["sentence"] = verdict.status, verdict.sentence
        item["duration"], item["silence"] = seconds, verdict.silence
    _add_calls(scope, items)
    _add_titles(scope, items)
    return add_causes(scope, items)


def _add_calls(scope: Scope, items: list[Item]) -> None:
    """Give each of ``items`` its ``call``: the statement of its last frame, None if not known."""
    last = [item["frames"][-1] if item["frames"] else None for item in items]
    calls = statements_at(scope, [frame for frame in last if frame is not None], _MOST_CALL)
    for item, frame in zip(items, last, strict=True):
        item["call"] = None if frame is None else calls.get((frame["code"], frame["line"]))


def _add_titles(scope: Scope, items: list[Item]) -> None:
    """Give each of ``items`` its ``title``: by what a person knows it again, "" for by nothing."""
    untitled: dict[tuple[str, str], Item] = {}
    for item in items:
        frame = item["frames"][-1] if item["frames"] else None
        item["title"] = cut(item["call"] or "", _MOST_TITLE)
        if not item["title"] and frame is not None:
            item["title"] = cut(f"{file_name(frame['file'])}:{frame['line']}", _MOST_TITLE)
        if frame is None or _says_little(frame["file"]):
            untitled[item["cluster"], item["id"]] = item
    if not untitled:
        return
    key = (task_group.c.cluster, task_group.c.computation)
    query = (
        among(scope.select(task_group, *key, task_group.c.prefix), key, untitled)
        .group_by(*key, task_group.c.prefix)
        .order_by(total(task_group.c.tasks).desc(), task_group.c.prefix)
        .limit(_MOST_PREFIXES)
    )
    prefixes: dict[tuple[str, str], list[str]] = {}
    for cluster_id, id, prefix in scope.connection.execute(query):
        prefixes.setdefault((cluster_id, id), []).append(prefix)
    for which, named in prefixes.items():
        more = ", …" if len(named) > _NAMED else ""
        untitled[which]["title"] = f"tasks of {', '.join(named[:_NAMED])}{more}"


def _says_little(file: str) -> bool:
    """Return whether a call in ``file`` is one that a library makes for its users."""
    parts = file.replace("\\", "/").split("/")
    return any(
        folder in ("site-packages", "dist-packages") and package in _CALL_FOR_USERS
        for folder, package in pairwise(parts)
    )


def _add_code(scope: Scope, frames: list[Item]) -> None:
    sources = _sources(scope, frames)
    for frame in frames:
        source = sources.get(frame["code"], {})
        for name in ("text", "first_line", "cut"):
            frame[name] = source.get(name)
        if "unreadable" in source:
            frame["unreadable"] = source["unreadable"]


def _sources(scope: Scope, frames: list[Item]) -> dict[str, Item]:
    hashes = {frame["code"] for frame in frames} - {None}
    return {
        row["hash"]: row for row in scope.items(scope.select(code).where(code.c.hash.in_(hashes)))
    }
