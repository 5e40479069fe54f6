"""Of a labelled corpus: how many secrets leave by each channel, and how many others are touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from daskscope import protocol
from daskscope.config import settings
from daskscope.observe.cluster.opt_outs import OptOuts
from daskscope.observe.errors.exception_chain import Cause, ExceptionChain
from daskscope.observe.errors.failures import RawFailure
from daskscope.observe.messages.events import RawEvent
from daskscope.observe.messages.logs import LogRecord
from daskscope.observe.snapshot import Observed, Snapshot
from daskscope.privacy import Cleared, Privacy
from daskscope.scrubbing import SCRUBBED
from tests.exporter.dask_texts import INNOCENT_THIRD, THIRD
from tests.exporter.secret_texts import (
    FIRST,
    INNOCENT_FIRST,
    INNOCENT_SECOND,
    SECOND,
    SecretText,
)

#: The share of secrets that has to be gone, in each channel, and of others that may be touched.
GONE, TOUCHED = 0.97, 0.02

#: Characters of a secret in a row that are too many to be told.
TELLING = 8

PRIVACY = Privacy(settings(events__allow=["*"]), OptOuts(Counter()), Counter())


def _snapshot(text: str, code: str) -> Observed:
    """Return a snapshot that has ``text`` wherever a text can be, and ``code`` where code can."""
    absent = cast(Any, None)
    lines = code.splitlines()
    frame = '  File "/a/b.py", line 3, in f\n'
    failure = protocol.Failure(
        computation=None,
        fingerprint="v1-0",
        type="ValueError",
        function="f",
        message=text,
        traceback=frame + "".join(f"    {line}\n" for line in lines),
        count=1,
        first_at=1.0,
        last_at=1.0,
        worker=None,
    )
    return Snapshot(
        phase="beat",
        cluster=protocol.Cluster(
            id="c",
            name="c",
            kind="LocalCluster",
            user="u",
            host="h",
            started_at=1.0,
            interval=1.0,
            environment=absent,
            tags={},
        ),
        status=protocol.Status(
            at=1.0,
            workers=1,
            threads=1,
            memory_used=0,
            memory_limit=0,
            worker_seconds={},
            tasks={},
            clients=1,
            idle_seconds=None,
            peak_workers=1,
            peak_threads=1,
            peak_memory_used=0,
            instances=(protocol.InstanceUse(text, 1.0, 1.0, 1.0),),
        ),
        workers=absent,
        prefixes=(),
        times=(),
        measured=absent,
        computations_running=0,
        exceptions={},
        events_by_topic={},
        losses_by_reason={},
        drops={},
        hook_seconds=0.0,
        computations=(
            protocol.Computation(
                id="x",
                status="running",
                user="u",
                started_at=1.0,
                stopped_at=None,
                tasks=1,
                completed=0,
                erred=0,
                retried=0,
                states={},
                seconds={},
                frames=None,
                spans=(text,),
                annotations={"note": text},
            ),
        ),
        task_groups=(),
        traced={},
        failures=(
            RawFailure(failure, ExceptionChain((Cause("KeyError", text, frame, direct=True),))),
        ),
        worker_losses=(
            protocol.WorkerLoss(
                id="w",
                address="tcp://h:1",
                name="w",
                at=1.0,
                reason="r",
                expected=False,
                processing=0,
                memory_used=None,
                lifetime=1.0,
                log=(text,),
            ),
        ),
        events=(RawEvent("e", 1.0, "mine", {"note": [text]}, 100),),
        code=(protocol.Code(hash="", file="/a/b.py", text=f"before()\n{code}\n", first_line=1),),
        logs=(LogRecord(1.0, 30, "mine", text, "ValueError", text, f"{frame}ValueError: {text}"),),
        activities=(),
        shutdowns=(protocol.Shutdown("s", "bob", "announced", 1.0, None, text),),
        profiles=(
            protocol.Profile(
                id="p",
                started_at=1.0,
                stopped_at=2.0,
                workers=1,
                seconds=1.0,
                # Each is seen alone.
                lines=tuple(protocol.ProfileLine("/a/b.py", "f", 3, line) for line in lines),
                parent=(),
                line=(),
                samples=(),
            ),
        ),
    )


def _told(cleared: Cleared) -> dict[str, str]:
    """Return what is told, by channel."""
    (failure,), (log,), (computation,) = cleared.failures, cleared.logs, cleared.computations
    return {
        "exception": failure.message or "",
        "traceback": failure.traceback or "",
        "code": cleared.code[0].text,
        "log": f"{log.text}\n{log.exception}\n{log.traceback}\n{cleared.worker_losses[0].log}",
        "profile": "\n".join(line.text or "" for line in cleared.profiles[0].lines),
        "event": cleared.events[0].message,
        "names": f"{computation.annotations}\n{computation.spans}\n{cleared.status.instances}",
        "shutdown": cleared.shutdowns[0].detail,
    }


def _leaks(row: SecretText) -> Iterator[str]:
    """Yield the channels that tell a secret."""
    code = row.text if row.code else f"line = {row.text!r}"
    width = min(len(row.secret), TELLING)
    parts = {row.secret[at : at + width] for at in range(len(row.secret) - width + 1)}
    for channel, told in _told(PRIVACY.clear(_snapshot(row.text, code))).items():
        assert told, channel
        if any(part in told for part in parts):
            yield channel


def _leaking(rows: Sequence[SecretText]) -> dict[str, list[str]]:
    leaking: dict[str, list[str]] = {}
    for row in rows:
        for channel in _leaks(row):
            leaking.setdefault(channel, []).append(row.kind)
    return leaking


@pytest.mark.parametrize("rows", [FIRST, SECOND, THIRD, FIRST + SECOND + THIRD])
def test_of_secrets_hardly_any_leaves_by_any_channel(rows: Sequence[SecretText]) -> None:
    leaking = _leaking(rows)
    assert all(len(kinds) <= (1 - GONE) * len(rows) for kinds in leaking.values()), leaking


@pytest.mark.parametrize("code", [False, True])
@pytest.mark.parametrize("texts", [INNOCENT_FIRST, INNOCENT_SECOND, INNOCENT_THIRD])
def test_of_other_texts_hardly_any_is_touched(texts: Sequence[str], code: bool) -> None:
    touched = []
    for text in texts:
        told = _told(PRIVACY.clear(_snapshot("-" if code else text, text if code else "-")))
        if any(SCRUBBED in said for said in told.values()):
            touched.append(text)
    assert len(touched) <= TOUCHED * len(texts), touched


def test_the_corpus_is_as_large_as_it_is_said_to_be() -> None:
    rows = FIRST + SECOND + THIRD
    assert len({row.kind for row in rows}) >= 40
    assert len(set(INNOCENT_FIRST + INNOCENT_SECOND + INNOCENT_THIRD)) >= 100
    assert all(row.secret in row.text for row in rows)
