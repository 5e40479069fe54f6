"""What the workers' threads did: seconds by task prefix and activity, and profiles."""

from __future__ import annotations

from sqlalchemy import and_

from daskscope_service.db.schema import activity, cluster, profile
from daskscope_service.db.scope import Item, Page, Scope, Selection, page
from daskscope_service.web.fields import Missing

#: The most prefixes of one cluster that are read: the plugin sends 500, and joins the rest.
MOST_PREFIXES = 1_000

_WITHOUT_TREE = (
    *("cluster", "id", "started_at", "stopped_at"),
    *("workers", "seconds", "cut", "unsampled"),
)


def list_activities(scope: Scope, cluster_id: str) -> list[Item]:
    """Return the thread-seconds of each prefix by activity; prefix ``""`` belongs to no task.

    Return the first :data:`MOST_PREFIXES` prefixes, in the order of their names.
    """
    activities, _ = scope.first_items(
        scope.select(activity, activity.c.prefix, activity.c.seconds)
        .where(activity.c.cluster == cluster_id)
        .order_by(activity.c.prefix),
        MOST_PREFIXES,
    )
    return activities


def list_profiles(scope: Scope, selection: Selection) -> Page[Item]:
    """Return profiles by the time they began, without their trees: see :func:`one_profile`."""
    columns = [profile.c[name] for name in _WITHOUT_TREE]
    query = scope.select(profile, *columns, cluster.c.name.label("cluster_name")).join(
        cluster,
        and_(cluster.c.workspace == profile.c.workspace, cluster.c.id == profile.c.cluster),
    )
    if selection.user is not None:
        query = query.where(profile.c.user == selection.user)
    query = query.where(scope.is_of(selection.cluster, profile.c.cluster))
    return page(scope, query, selection, profile.c.started_at, "id", "cluster")


def one_profile(scope: Scope, cluster_id: str, id: str) -> Item:
    """Return one profile with its tree, in columns as in the protocol. Raises Missing."""
    columns = [column for column in profile.c if column is not profile.c.user]
    rows = scope.items(
        scope.select(profile, *columns).where(profile.c.cluster == cluster_id, profile.c.id == id)
    )
    if not rows:
        raise Missing("profile", id)
    [row] = rows
    if "unreadable" not in row:
        return row
    # Nodes refer to lines by index, so each index needs a line, if only an empty one.
    empty = {"file": "", "function": "", "line": 0, "text": None}
    return row | {"lines": [empty] * (max(row["line"], default=-1) + 1)}
