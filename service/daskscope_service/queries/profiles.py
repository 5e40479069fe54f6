"""Reads the newest profiles of a selection, with their trees, to be merged."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import tuple_

from daskscope_service.db.schema import profile
from daskscope_service.db.scope import Item, Scope, Selection, weight
from daskscope_service.insight.flame import fits

#: The most profiles, and the most calls and bytes in them, that are read: as many as a page can
#: merge while someone waits. Bytes are counted, too, because a few calls may have many lines.
MOST_PROFILES = 60
MOST_CALLS = 12_000
_MOST_BYTES = 16 * 1024 * 1024
#: Profiles that are read by one query.
_AT_ONCE = 10
#: The longest time, in seconds, of a profile that a cluster sends.
_LONGEST = 600.0


@dataclass(frozen=True, slots=True)
class Profiles:
    """The newest profiles of a selection, the newest first.

    ``more`` says whether there are older ones, ``unreadable`` counts those that cannot be
    decrypted, and ``misfits`` those that are no tree: earlier versions stored them unchecked.
    """

    items: list[Item]
    more: bool
    unreadable: int
    misfits: int


def newest_profiles(scope: Scope, selection: Selection, most: int = MOST_PROFILES) -> Profiles:
    """Return the newest profiles that overlap the time of ``selection``, at most ``most``."""
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
    """Return whether there is a profile of the cluster and the time of ``selection``."""
    query = scope.select(profile, profile.c.id).where(profile.c.cluster == selection.cluster)
    if selection.since is not None:
        query = query.where(profile.c.stopped_at > selection.since)
        query = query.where(profile.c.started_at >= selection.since - _LONGEST)
    if selection.until is not None:
        query = query.where(profile.c.started_at < selection.until)
    return bool(scope.items(query.limit(1)))
