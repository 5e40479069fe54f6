"""Profiles to be merged: the newest of a selection, whole."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import tuple_

from daskscope_service.db.schema import profile
from daskscope_service.db.scope import Item, Scope, Selection, weight
from daskscope_service.insight.flame import fits

#: Profiles, and calls and bytes in them, that are read at most: what a page can merge while someone
#: waits. Many lines may be of few calls.
MOST_PROFILES = 60
MOST_CALLS = 12_000
_MOST_BYTES = 16 * 1024 * 1024
#: Profiles that are read at a go.
_AT_ONCE = 10
#: In seconds. No cluster sends one of a longer time.
_LONGEST = 600.0


@dataclass(frozen=True, slots=True)
class Profiles:
    """The newest profiles of a selection, those first that began last.

    ``more`` says that there are others, ``unreadable`` how many cannot be decrypted, ``misfits``
    how many are no tree: an earlier version stored what it was sent.
    """

    items: list[Item]
    more: bool
    unreadable: int
    misfits: int


def newest_profiles(scope: Scope, selection: Selection, most: int = MOST_PROFILES) -> Profiles:
    """Return profiles that overlap the time asked for, at most ``most``."""
    query = scope.select(profile)
    at, id, of = profile.c.started_at, profile.c.id, profile.c.cluster
    if selection.user is not None:
        query = query.where(profile.c.user == selection.user)
    query = query.where(scope.is_of(selection.cluster, of))
    if selection.since is not None:
        query = query.where(
            at >= selection.since - _LONGEST, profile.c.stopped_at > selection.since
        )
    if selection.kept_until is not None:
        query = query.where(at < selection.kept_until)
    query = query.order_by(at.desc(), id.desc(), of.desc()).limit(_AT_ONCE)
    items: list[Item] = []
    calls = size = unreadable = misfits = 0
    rows = scope.items(query)
    while rows:
        for row in rows:
            size += weight(row)
            full = len(items) == most or calls + len(row["parent"]) > MOST_CALLS
            if (full or size > _MOST_BYTES) and items:
                return Profiles(items, True, unreadable, misfits)
            if "unreadable" in row:
                unreadable += 1
            elif not fits(row):
                misfits += 1
            else:
                items.append(row)
                calls += len(row["parent"])
        last = rows[-1]
        after = (last["started_at"], last["id"], last["cluster"])
        more = len(rows) == _AT_ONCE and unreadable + misfits < MOST_PROFILES
        rows = scope.items(query.where(tuple_(at, id, of) < tuple_(*after))) if more else []
    return Profiles(items, False, unreadable, misfits)


def has_profiles(scope: Scope, selection: Selection) -> bool:
    """Return whether a cluster sent any profile of a time."""
    query = scope.select(profile, profile.c.id).where(profile.c.cluster == selection.cluster)
    if selection.since is not None:
        query = query.where(profile.c.stopped_at > selection.since)
        query = query.where(profile.c.started_at >= selection.since - _LONGEST)
    if selection.until is not None:
        query = query.where(profile.c.started_at < selection.until)
    return bool(scope.items(query.limit(1)))
