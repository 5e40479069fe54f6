"""What waits for the service is counted when it goes without having been taken."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from daskscope import protocol
from daskscope.delivery import queue
from daskscope.delivery.queue import DeliveryQueue


def snapshot(**rows: Any) -> Any:
    none: dict[str, Any] = {kind.field: () for kind in queue._KINDS}
    told = {"code": (), "phase": "beat", "cluster": None, "status": None}
    return SimpleNamespace(**{**none, **told, **rows})


def _code(*hashes: str) -> list[protocol.Code]:
    return [
        protocol.Code(hash=hash, file="a.py", first_line=1, text="", cut=False) for hash in hashes
    ]


def _computation(code: str) -> protocol.Computation:
    """One that was called from that code."""
    return protocol.Computation(
        id=code,
        status="finished",
        user="ada",
        started_at=1.0,
        stopped_at=2.0,
        tasks=1,
        completed=1,
        erred=0,
        retried=0,
        cancelled=0,
        states={},
        seconds={},
        frames=(protocol.CodeFrame(file="a.py", line=1, code=code),),
        spans=(),
        trace_id=None,
        annotations={},
        graph_bytes=None,
    )


def event(id: str, message: str) -> protocol.Event:
    return protocol.Event(id=id, at=1.0, topic="mine", message=message, cut=False)


def test_a_count_to_which_others_add_is_one_that_can_be_sent() -> None:
    pending = DeliveryQueue(1, Counter({"rejected span": 10**5_000, "refused row": 2}))
    pending.add(snapshot())
    assert pending.beat(1.0).drops == {"rejected span": protocol.MAX_COUNT, "refused row": 2}


def test_code_that_finds_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_CODE", replace(queue._CODE, limit=2))
    drops: Counter[str] = Counter()
    DeliveryQueue(1, drops).add(snapshot(code=_code("0", "1", "2", "3", "4")))
    assert drops == {"unsent code": 3}


def test_code_that_the_service_has_is_none_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_CODE", replace(queue._CODE, limit=2))
    drops: Counter[str] = Counter()
    waiting = DeliveryQueue(1, drops)
    for number in range(5):
        code = str(number)
        waiting.add(snapshot(computations=[_computation(code)], code=_code(code)))
        waiting.acknowledge(waiting.beat(1.0), ["4"])
    assert not drops
    assert [code.hash for code in waiting.beat(2.0).code] == ["4"]


def test_code_that_was_sent_is_not_sent_again_because_the_answer_asks_for_it() -> None:
    waiting = DeliveryQueue(1, Counter())
    waiting.add(snapshot(code=_code("1", "2")))
    waiting.acknowledge(waiting.beat(1.0), ["1"])
    beat = waiting.beat(2.0)
    assert [code.hash for code in beat.code] == ["1"]
    # As a service, or what stands between, does that gives one answer to all.
    waiting.acknowledge(beat, ["1"])
    assert not waiting.beat(3.0).code
    assert not waiting.rows_wait()


def test_what_is_in_the_spool_alone_is_delivered_from_there_code_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue, "_CODE", replace(queue._CODE, limit=2))
    drops: Counter[str] = Counter()
    waiting = DeliveryQueue(1, drops)
    waiting.add(snapshot(code=_code("0", "1")))
    waiting.spooled(waiting.beat_to_spool(1.0))
    assert not waiting.overflowed
    waiting.add(snapshot(code=_code("2")))
    assert waiting.overflowed
    assert not drops


def test_of_what_is_refused_only_what_is_not_sent_again() -> None:
    drops: Counter[str] = Counter()
    waiting = DeliveryQueue(1, drops)
    waiting.add(snapshot(events=[event("1", "a"), event("2", "b")]))
    beat = waiting.beat(1.0)
    waiting.add(snapshot(events=[event("2", "changed meanwhile")]))
    waiting.refuse(beat)
    assert drops == {"refused row": 1}
    assert [event.message for event in waiting.beat(2.0).events] == ["changed meanwhile"]
