"""Finds the code that heartbeats refer to and the service lacks, so that the answer asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice, zip_longest

from sqlalchemy import BindParameter, Connection, Dialect, bindparam

from daskscope_service.db import schema
from daskscope_service.db.rows import select_in
from daskscope_service.db.statements import Lookup

#: The parameters for hashes in the query: few call stacks have more. With a fixed number, databases
#: have the statement prepared.
_PLACES = tuple(f"hash{number}" for number in range(8))

#: How many hashes of one heartbeat are looked up, because everyone waits for the writer meanwhile.
#: A plugin keeps no more code than that.
MOST_HASHES = 1000

_places: list[BindParameter[str]] = [bindparam(name) for name in _PLACES]
_BY_HASH = select_in(bindparam("workspace"), schema.code, schema.code.c.hash).where(
    schema.code.c.hash.in_(_places),
    schema.code.c.unused_since.is_(None),
)


class CodeWanted:
    """Looks up code by hash. ``keyed`` turns a hash of a heartbeat into the one that is stored."""

    def __init__(self, dialect: Dialect, keyed: Callable[[str], str]) -> None:
        self._keyed = keyed
        self._by_hash = Lookup(dialect, _BY_HASH)

    def ask(
        self, connection: Connection, wanted: Sequence[tuple[str, set[str]]]
    ) -> list[tuple[str, ...]]:
        """Return, for each workspace and a heartbeat's hashes, those whose code is not stored.

        At most :data:`MOST_HASHES` of one heartbeat are looked up.

        Call this only once the heartbeats are committed. Unused code is removed after a second look
        at the computations (:mod:`daskscope_service.retention.code`), which must see them.
        """
        wanted = [(workspace, _some(named)) for workspace, named in wanted]
        together: dict[str, set[str]] = {}
        for workspace, named in wanted:
            together.setdefault(workspace, set()).update(named)
        known = {
            workspace: self._known(connection, workspace, named)
            for workspace, named in together.items()
        }
        return [tuple(sorted(named - known[workspace])) for workspace, named in wanted]

    def _known(self, connection: Connection, workspace: str, hashes: set[str]) -> set[str]:
        by_key = {self._keyed(hash): hash for hash in hashes}
        keys = list(by_key)
        known: set[str] = set()
        for first in range(0, len(keys), len(_PLACES)):
            some = keys[first : first + len(_PLACES)]
            places = dict(zip_longest(_PLACES, some, fillvalue=some[0]))
            rows = self._by_hash.within(connection, workspace=workspace, **places)
            known.update(by_key[key] for (key,) in rows)
        return known


def _some(named: set[str]) -> set[str]:
    if len(named) <= MOST_HASHES:
        return named
    return set(islice(named, MOST_HASHES))
