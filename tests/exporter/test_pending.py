"""What waits for the service is counted when it goes without having been taken."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from daskscope import protocol
from daskscope.report import pending
from daskscope.report.pending import Pending


def _snapshot(**rows: Any) -> Any:
    none: dict[str, Any] = {kind.field: () for kind in pending._KINDS}
    told = {"code": (), "phase": "beat", "cluster": None, "status": None}
    return SimpleNamespace(**{**none, **told, **rows})


def _event(id: str, message: str) -> protocol.Event:
    return protocol.Event(id=id, at=1.0, topic="mine", message=message, cut=False)


def test_code_that_finds_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "_CODE", replace(pending._CODE, limit=2))
    drops: Counter[str] = Counter()
    code = [
        protocol.Code(hash=str(number), file="a.py", first_line=1, text="", cut=False)
        for number in range(5)
    ]
    Pending(1, drops).add(_snapshot(code=code))
    assert drops == {"unsent code": 3}


def test_of_what_is_refused_only_what_is_not_sent_again() -> None:
    drops: Counter[str] = Counter()
    waiting = Pending(1, drops)
    waiting.add(_snapshot(events=[_event("1", "a"), _event("2", "b")]))
    beat = waiting.beat(1.0)
    waiting.add(_snapshot(events=[_event("2", "changed meanwhile")]))
    waiting.refuse(beat)
    assert drops == {"refused row": 1}
    assert [event.message for event in waiting.beat(2.0).events] == ["changed meanwhile"]
