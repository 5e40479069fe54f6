"""Decides what an idle policy does about a cluster now, and says why.

The functions are pure. ``cluster`` has the columns of its table; times are seconds since the Unix
epoch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal
from zoneinfo import ZoneInfo

from daskscope_service.db.readable import Readable
from daskscope_service.insight.verdict import busy_by
from daskscope_service.insight.wording import duration

Action = Literal["notice", "shutdown"]

#: The result. The first two are actions; with the others there is nothing to do now.
Decided = Literal[
    "notice", "shutdown", "off", "gone", "at work", "not yet", "other hours", "own setting", "done"
]


class UnknownTimeZone(ValueError):
    """There is no time zone of this name."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule: what the service does about clusters that are idle for ``after`` seconds.

    It applies to clusters of ``users`` (one of the patterns must match; none: everyone) that have
    all of ``tags`` (patterns by tag). It works from ``begins`` to ``ends``, ``HH:MM`` in
    ``time_zone``, over midnight if the end is earlier; all day if they are None.
    """

    id: str
    name: str
    after: float
    action: Action
    users: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    begins: str | None = None
    ends: str | None = None
    time_zone: str = "UTC"
    enabled: bool = True

    def means(self, cluster: Readable) -> bool:
        """Return whether the policy applies to ``cluster``."""
        fits_user = not self.users or any(fnmatchcase(cluster["user"], one) for one in self.users)
        tags = cluster["tags"]
        return fits_user and all(
            name in tags and fnmatchcase(tags[name], pattern) for name, pattern in self.tags.items()
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a policy. ``sentence`` states the policy, the facts and the result."""

    outcome: Decided
    sentence: str

    @property
    def acts(self) -> bool:
        """Whether the policy acts now: it gives notice, or asks the cluster to shut down."""
        return self.outcome in ("notice", "shutdown")


def decide(
    policy: Policy,
    cluster: Readable,
    *,
    status: str,
    acted_at: float | None,
    now: float,
) -> Decision:
    """Return the decision of ``policy`` about ``cluster``, to which it applies.

    ``status`` is that of the cluster's verdict; ``acted_at`` is when the policy last acted on the
    cluster. It acts only once while the cluster stays idle.
    """
    says = f"policy {policy.name!r} {rule(policy)}"
    idle = cluster["idle_seconds"]
    if status != "running":
        return Decision("gone", f"{_capital(says)}, but the cluster is {status}.")
    if not policy.enabled:
        return Decision("off", f"{_capital(says)}, but is switched off.")
    signs = busy_by(cluster)
    if idle is None or signs:
        return Decision("at work", f"At work{f' ({signs})' if signs else ''}; {says}.")
    began = f"Idle for {duration(idle)}; {says}"
    own = cluster["idle_timeout"]
    if policy.action == "shutdown" and own is not None and own <= policy.after:
        return Decision(
            "own setting",
            f"{began}; the cluster's own idle.timeout of {duration(own)} is stricter, so the "
            "policy leaves it to that.",
        )
    if idle < policy.after:
        left = duration(policy.after - idle)
        return Decision("not yet", f"{began}, so the policy acts in {left} at the earliest.")
    if acted_at is not None and acted_at >= cluster["last_seen_at"] - idle:
        return Decision("done", f"{began}; the policy has already acted, once for this idle time.")
    if policy.begins is not None and policy.ends is not None:
        try:
            clock = local_time(now, policy.time_zone)
        except UnknownTimeZone:
            return Decision(
                "other hours", f"{began}, but that time zone is unknown here, so nothing is done."
            )
        began += f"; it is {clock} there"
        if not in_hours(clock, policy.begins, policy.ends):
            return Decision("other hours", f"{began}, so nothing is done now.")
    if policy.action == "notice":
        return Decision("notice", f"{began}, so the policy gives notice.")
    return Decision("shutdown", f"{began}, so the policy asks the cluster to shut down.")


def in_hours(clock: str, begins: str, ends: str) -> bool:
    """Return whether ``clock`` lies from ``begins`` to before ``ends``, all ``HH:MM``.

    They span midnight if the end is earlier, and the whole day if both are the same.
    """
    if begins < ends:
        return begins <= clock < ends
    return begins <= clock or clock < ends


def local_time(now: float, time_zone: str) -> str:
    """Return the local time in ``time_zone``, as ``HH:MM``.

    Raises
    ------
    UnknownTimeZone
        There is no time zone of this name.
    """
    return datetime.fromtimestamp(now, _zone(time_zone)).strftime("%H:%M")


#: Names that zoneinfo accepts, but which are not time zones of people: this machine's own setting,
#: placeholders, and copies of the zones, some with leap seconds.
_NO_ZONES = re.compile("localtime|posixrules|Factory|posix/.*|right/.*")


@cache
def _zone(name: str) -> ZoneInfo:
    if _NO_ZONES.fullmatch(name):
        raise UnknownTimeZone(name)
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # a missing file, a folder, or not a name
        raise UnknownTimeZone(name) from None


def rule(policy: Policy) -> str:
    """Return in words what ``policy`` does: ``shuts down after 30 min``."""
    does = "shuts down" if policy.action == "shutdown" else "gives notice"
    hours = ""
    if policy.begins is not None and policy.ends is not None:
        hours = f" between {policy.begins} and {policy.ends} {policy.time_zone}"
    return f"{does} after {duration(policy.after)}{hours}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
