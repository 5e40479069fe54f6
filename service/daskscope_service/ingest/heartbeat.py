"""Turns heartbeats from JSON into rows, and stores them.

Values are absolute and rows have natural keys, so a heartbeat that comes twice, late or after its
successor is harmless: only a row of the same or a later heartbeat replaces a row.

Over 400 lines: what is checked of a heartbeat and how it is stored depend on each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Engine, Table

from daskscope.protocol import MAX_AHEAD, MAX_STREAM, PROTOCOL, CodeFrame, Heartbeat
from daskscope_service.costs.price_list import PriceList
from daskscope_service.db import schema
from daskscope_service.db.key_register import hasher
from daskscope_service.db.rows import select_in
from daskscope_service.db.statements import Columns, Condition, Upsert
from daskscope_service.db.wire import RowMaker, to_json
from daskscope_service.ingest.beat_schema import entries_of, is_within, make_decoder, problem_in
from daskscope_service.ingest.cluster_rows import (
    OPERATOR_COST,
    Labels,
    UsageDue,
    UsageUpsert,
    cluster_row,
)
from daskscope_service.ingest.code_wanted import CodeWanted
from daskscope_service.ingest.computation_rows import END, has_ended, is_due, runs
from daskscope_service.ingest.correction import MOST_OF_MISMATCHES, Corrected, correct, fit
from daskscope_service.ingest.notices import notices_of
from daskscope_service.ingest.quotas import Quotas
from daskscope_service.ingest.senders import Senders
from daskscope_service.ingest.writer import Writer
from daskscope_service.web.body import depth
from daskscope_service.web.problems import Problem

_MAJOR = PROTOCOL.partition(".")[0]

#: How many keyed hashes are cached.
_HASHES_KEPT = 4096

#: Heartbeats of up to so many bytes are decoded by the writer, larger ones by the request threads:
#: no one should wait for those.
SMALL_BYTES = 64 * 1024


#: Seconds by which the number of a heartbeat may be ahead of the service's clock. Schedulers number
#: heartbeats by the milliseconds of their own clock. If numbers are further ahead, the last
#: heartbeat to arrive wins: otherwise rows would never change again once such a clock is set right.
_NUMBER_AHEAD = 600.0

#: How deeply a heartbeat that is corrected may be nested: the protocol needs a tenth of it.
_MOST_DEPTH = 50

#: The character NUL in JSON. A backslash before it that is itself escaped does not count.
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
_PERHAPS_NUL = rb"\u0000"

_MISSING = re.compile(r"missing required field `(\w+)`")

_decode = make_decoder().decode


class _Version(msgspec.Struct):
    protocol: str


_version_decoder = msgspec.json.Decoder(_Version)


class TakesLong(Exception):
    """A heartbeat takes far longer than it takes to read its JSON.

    It has values out of bounds, which are corrected, or task streams with many entries.
    """


def parse(body: bytes, now: float, *, at_once: bool = False) -> Corrected:
    """Return the heartbeat in ``body``, or its valid parts. ``now``: the service's clock.

    Raises
    ------
    TakesLong
        It does, and ``at_once`` is True.
    Problem
        400: the body is not JSON, or is of another major version of the protocol; or a field is
        missing or holds something that it cannot, and belongs to no row that could be left out.
        ``detail`` and ``field`` name it as a JSON path.
    """
    try:
        parsed = _parse(body, now, at_once)
    except msgspec.ValidationError as error:
        # Another version may have other fields: then report the version instead.
        _check_version(_version_of(body))
        what, path = problem_in(error)
        missing = _MISSING.search(what)
        field = path + (f".{missing[1]}" if missing else "")
        raise Problem(400, f"Not a heartbeat, at {field}: {what}.", field=field) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"The body is not JSON: {error}.") from None
    except RecursionError:  # in an unknown field, which is skipped
        raise Problem(400, "Not a heartbeat: it is nested too deeply.") from None
    _check_version(parsed.beat.protocol)
    if len(body) > MOST_OF_MISMATCHES:
        parsed = fit(parsed)
    if _PERHAPS_NUL in body and _NUL.search(body):  # the first is a hundred times faster
        # PostgreSQL's text cannot hold NUL, which occurs in messages that were made of bytes.
        parsed.beat = _decode(_NUL.sub(rb"\1\\ufffd", msgspec.json.encode(parsed.beat)))
    return parsed


def _parse(body: bytes, now: float, at_once: bool) -> Corrected:
    try:
        beat = _decode(body)
    except msgspec.ValidationError:
        if at_once:
            raise TakesLong from None
        if depth(body) > _MOST_DEPTH:
            raise
        return correct(msgspec.json.decode(body), now)
    if at_once and entries_of(beat) > MAX_STREAM:
        raise TakesLong
    if is_within(beat, now + MAX_AHEAD):
        return Corrected(beat)
    if at_once:
        raise TakesLong
    return correct(msgspec.json.decode(msgspec.json.encode(beat)), now)


class _Delivery:
    """A heartbeat on its way into the database. ``beat`` and more are set with its rows."""

    __slots__ = (
        *("beat", "corrected", "labelled", "named", "now", "places", "text", "token", "usage"),
        "workspace",
    )

    beat: Heartbeat
    corrected: Corrected | None
    labelled: bool
    named: set[str]
    usage: dict[str, Any] | None

    def __init__(self, text: bytes, workspace: str, token: str, now: float) -> None:
        self.text = text
        self.corrected = None
        self.places = 0
        self.workspace = workspace
        self.token = token
        self.now = now


class BeatStore:
    """Stores heartbeats: turns them into rows and hands those to the writer.

    ``prices`` are the operator's, by which clusters without prices of their own get a cost.
    ``keeps_costs``: such costs come from elsewhere, so that heartbeats leave them as they are.
    """

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        quotas: Quotas,
        prices: PriceList | None = None,
        *,
        keeps_costs: bool = False,
    ) -> None:
        self._engine = engine
        self._writer = writer
        self._quotas = quotas
        self._senders = Senders(engine)
        # Columns that never change are kept: otherwise SQLite would write their indexes again.
        costs = OPERATOR_COST if keeps_costs else ()
        kept = ("first_seen_at", "started_at", "user", *costs)
        whose = ((("token",), _is_known),)
        same = self._cluster = _latest(engine, schema.cluster, keep=kept, settled=whose)
        if engine.dialect.name == "sqlite":
            labels = ("kind", "tags")
            same = _latest(engine, schema.cluster, keep=(*kept, *labels), settled=whose)
        self._cluster_same_labels = same
        self._labels = Labels()
        self._usage = UsageUpsert(engine, keep=costs)
        self._prices = prices
        self._usage_due = UsageDue(prices)
        with engine.connect() as connection:
            # The same few hashes come again and again: a loop refers to its code in each heartbeat.
            self._keyed = lru_cache(_HASHES_KEPT)(hasher(connection))
        convert: dict[str, dict[str, Callable[[Any], Any]]] = {
            "computations": {"frames": self._frames},
            "failures": {"computation": lambda id: id or ""},
            "code": {"hash": self._keyed},
        }
        self._rows = {
            field: (_upsert(engine, table), RowMaker(table, **convert.get(field, {})))
            for field, table in TABLES.items()
        }
        self._notice = Upsert(engine, schema.notice)
        self._code_wanted = CodeWanted(engine.dialect, self._keyed)

    def keep(
        self, text: bytes, workspace: str, now: float, token: str, parsed: Corrected | None = None
    ) -> tuple[Corrected, tuple[str, ...]]:
        """Store the heartbeat in ``text``, JSON, and return once it is committed.

        ``now`` is the service's clock, ``token`` the id of the token of ``workspace`` that it came
        with, ``parsed`` the result of :func:`parse`, if that was called. Return the heartbeat as it
        is stored, and the hashes of the code that it refers to and no one has sent yet.

        Raises
        ------
        TakesLong
            It has to be parsed first, by :func:`parse`, while no one waits for that.
        Problem
            As :func:`parse`; 403 for a heartbeat that is meant for another workspace, or whose
            cluster another token reports; 429 for a new cluster that the workspace has no room for.
        Exception
            What :meth:`Writer.write` raises.
        """
        delivery = _Delivery(text, workspace, token, now)
        delivery.corrected = parsed
        make = partial(self._make, delivery)
        with self._settling(delivery):
            wanted: tuple[str, ...] = self._writer.write(
                make if len(text) <= SMALL_BYTES else make(), self._wanted, delivery, token=token
            )
        return self._kept(delivery, wanted)

    async def keep_soon(
        self, text: bytes, workspace: str, now: float, token: str
    ) -> tuple[Corrected, tuple[str, ...]]:
        """Do as :meth:`keep`, on an event loop. ``text`` has no more than ``SMALL_BYTES``."""
        delivery = _Delivery(text, workspace, token, now)
        make = partial(self._make, delivery)
        with self._settling(delivery):
            wanted = await self._writer.write_soon(make, self._wanted, delivery, token=token)
        return self._kept(delivery, wanted)

    @contextmanager
    def _settling(self, delivery: _Delivery) -> Iterator[None]:
        """Give back the place of a cluster that was not stored in the block after all."""
        used = 0
        try:
            yield
            used = delivery.places
        finally:
            self._quotas.settle(delivery.workspace, "clusters", delivery.places, used)

    def _kept(
        self, delivery: _Delivery, wanted: tuple[str, ...]
    ) -> tuple[Corrected, tuple[str, ...]]:
        if delivery.usage:
            self._usage_due.written(delivery.usage)
        if delivery.labelled:
            self._labels.written(delivery.beat, delivery.workspace)
        assert delivery.corrected is not None
        return delivery.corrected, wanted

    def _make(self, delivery: _Delivery) -> dict[Upsert, list[tuple[Any, ...]]]:
        if delivery.corrected is None:
            delivery.corrected = parse(delivery.text, delivery.now, at_once=True)
        delivery.beat = beat = delivery.corrected.beat
        seq = min(beat.seq, int((delivery.now + _NUMBER_AHEAD) * 1000))
        workspace, meant = delivery.workspace, beat.cluster.workspace
        if meant is not None and meant != workspace:
            raise Problem(
                403,
                f"The cluster is configured for the workspace {meant!r}, but its token is of the "
                f"workspace {workspace!r}. Use a token of {meant!r}, or leave out "
                "daskscope.workspace.",
                field="$.cluster.workspace",
            )
        changed = self._labels.changed(beat, workspace)  # those of a new cluster, too
        if changed:
            delivery.places = self._quotas.take(workspace, "clusters", 1)
            if not delivery.places and not self._is_known(delivery):
                raise self._quotas.problem(workspace, "clusters")
        if not self._senders.may_report(workspace, beat.cluster.id, delivery.token):
            raise Problem(
                403,
                f"Another token reported the cluster {beat.cluster.id!r} first. While that token "
                "is valid, only it and other tokens of the same user may report the cluster.",
                field="$.cluster.id",
            )
        delivery.named = {
            frame.code
            for computation in beat.computations
            for frame in computation.frames or ()
            if frame.code is not None
        }
        delivery.usage = usage = self._usage_due.row(beat, seq, workspace, delivery.now)
        delivery.labelled = changed or usage is not None
        of_cluster = self._cluster if delivery.labelled else self._cluster_same_labels
        made = cluster_row(beat, seq, workspace, delivery.token, delivery.now, self._prices)
        rows = {of_cluster: [made]}
        if usage is not None:
            rows[self._usage] = [self._usage.row(usage)]
        given = {
            "workspace": workspace,
            "cluster": beat.cluster.id,
            "seq": seq,
            "user": beat.cluster.user,
            "unused_since": None,
            "judge_at": delivery.now,
            "job": None,
            "job_due_at": delivery.now,
        }
        for field, (upsert, maker) in self._rows.items():
            if sent := getattr(beat, field):
                rows[upsert] = maker.rows(sent, given)
        if notices := notices_of(beat, workspace, delivery.now):
            rows[self._notice] = list(map(self._notice.row, notices))
        return rows

    def _is_known(self, delivery: _Delivery) -> bool:
        cluster, table = delivery.beat.cluster.id, schema.cluster
        query = select_in(delivery.workspace, table, table.c.id).where(table.c.id == cluster)
        with self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def _wanted(
        self, connection: Connection, deliveries: Sequence[_Delivery]
    ) -> list[tuple[str, ...]]:
        named = [(one.workspace, one.named) for one in deliveries]
        return self._code_wanted.ask(connection, named)

    def _frames(self, frames: Sequence[CodeFrame] | None) -> str:
        if not frames:
            return to_json(frames)
        return to_json(
            [
                {
                    "file": frame.file,
                    "line": frame.line,
                    "code": None if frame.code is None else self._keyed(frame.code),
                }
                for frame in frames
            ]
        )


#: The tables of the rows in a heartbeat, by its fields.
TABLES = {
    "computations": schema.computation,
    "task_groups": schema.task_group,
    "failures": schema.failure,
    "worker_losses": schema.worker_loss,
    "events": schema.event,
    "activities": schema.activity,
    "profiles": schema.profile,
    "task_streams": schema.task_stream,
    "shutdowns": schema.shutdown,
    "code": schema.code,
}


def _is_known(old: Columns, _: Columns) -> ColumnElement[bool]:
    """Return the condition that the token that reports the cluster is known."""
    token: ColumnElement[Any] = old["token"]
    return token.is_not(None)


def _upsert(engine: Engine, table: Table) -> Upsert:
    if table is schema.code:
        # Code that was marked as unused, and was sent again for that reason, stays.
        return Upsert(engine, table, replace=["unused_since"])
    if table is schema.computation:
        return _latest(
            *(engine, table),
            keep=("started_at", "user", "job"),
            settled=((END, has_ended), (("judge_at",), is_due), (("job_due_at",), runs)),
        )
    return _latest(engine, table)


def _latest(
    engine: Engine,
    table: Table,
    keep: tuple[str, ...] = (),
    settled: Sequence[tuple[Sequence[str], Condition]] = (),
) -> Upsert:
    # Replaces the row of an earlier heartbeat, except for its key and the columns ``keep``.
    keys = {column.name for column in table.primary_key}
    replace = [c.name for c in table.columns if c.name not in keys and c.name not in keep]
    return Upsert(engine, table, replace=replace, unless_newer="seq", settled=settled)


def _version_of(body: bytes) -> str:
    try:
        return _version_decoder.decode(body).protocol
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return PROTOCOL  # unreadable: report the earlier error


def _check_version(version: str) -> None:
    if version.partition(".")[0] != _MAJOR:
        raise Problem(
            400,
            f"Not a heartbeat, at $.protocol: this service supports version {_MAJOR}.x of the "
            f"protocol, the heartbeat has version {version[:40]}. Install matching versions "
            "of daskscope on the scheduler and the service.",
            field="$.protocol",
        )
