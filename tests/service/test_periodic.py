"""Work for each workspace: one for which it fails keeps it from no other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from daskscope_service.accounts.change import Change
from daskscope_service.costs import usage_totals
from daskscope_service.db.engine import make_workspace, writing
from daskscope_service.notifications import notifier as notifying
from daskscope_service.notifications import targets
from daskscope_service.notifications.addresses import FitAddress
from daskscope_service.notifications.sending import Sender
from daskscope_service.periodic import Lease, PeriodicTask, SomeFailed, Stopped, in_each
from daskscope_service.policies import enforcer as policy_enforcer
from daskscope_service.policies import idle_policies as policies
from daskscope_service.policies.decision import Policy
from daskscope_service.retention import rounds as retention
from daskscope_service.retention.throttle import Throttle
from tests.patience import PATIENCE


def test_the_others_are_done_first_and_then_it_fails() -> None:
    done = list[str]()

    def work(name: str) -> int:
        if name == "b":
            raise ValueError("of no use")
        done.append(name)
        return 2

    with pytest.raises(SomeFailed, match="workspace b: ValueError: of no use"):
        in_each("abc", work)
    assert done == ["a", "c"]
    assert in_each("ac", work) == 4


def test_what_is_wrong_for_all_ends_it_at_once() -> None:
    asked = list[str]()

    def away(name: str) -> int:
        asked.append(name)
        raise OperationalError("", {}, Exception(), connection_invalidated=True)

    with pytest.raises(OperationalError):
        in_each("abc", away)

    def stopped(name: str) -> int:
        asked.append(name)
        raise KeyError

    with pytest.raises(KeyError):
        in_each("abc", stopped, ends_all=KeyError)
    assert asked == ["a", "a"]


class Watched(Lease):
    """A lease that says when a process has looked whether a round is due."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, "work")
        self.looked = threading.Event()

    def done_at(self) -> float | None:
        try:
            return super().done_at()
        finally:
            self.looked.set()


def one_look(engine: Engine, work: Callable[[], object]) -> list[Exception]:
    """Let a process look once whether its round is due; return what the round raised."""
    lease, raised = Watched(engine), list[Exception]()
    task = PeriodicTask("work", work, 3600.0, first_after=0.0, lease=lease, failed=raised.append)
    assert lease.looked.wait(PATIENCE)
    task.close()
    return raised


def test_with_a_lease_a_round_is_due_after_the_last_that_any_process_finished(
    engine: Engine,
) -> None:
    rounds = list[str]()

    def fails() -> None:
        rounds.append("failed")
        raise ValueError("of no use")

    def stops() -> None:
        rounds.append("stopped")
        raise Stopped

    held = Lease(engine, "work")
    assert held.take()
    assert one_look(engine, lambda: rounds.append("beside another")) == []
    held.give_back(done=False)
    assert [str(error) for error in one_look(engine, fails)] == ["of no use"]
    assert one_look(engine, stops) == []
    assert one_look(engine, lambda: rounds.append("finished")) == []
    assert one_look(engine, lambda: rounds.append("too soon")) == []

    assert rounds == ["failed", "stopped", "finished"]


def notify(engine: Engine) -> object:
    notifier = notifying.Notifier(
        engine, Sender([]), url="https://x", silent_after=60.0, up_since=0.0
    )
    try:
        return notifier.round()
    finally:
        notifier.close()


def remove(engine: Engine) -> object:
    lease = Lease(engine, retention.WORK)
    assert lease.take()
    return retention.run_round(engine, lease, Throttle(1.0))


#: Each with the step that fails, which gets the workspace after the engine or the connection.
ROUNDS: tuple[tuple[Callable[[Engine], object], Any, str], ...] = (
    (notify, notifying, "store_new_notices"),
    (remove, retention, "remove_old_data"),
    (usage_totals.sum_up, usage_totals, "_sum_up"),
    (lambda engine: policy_enforcer.enforce_policies(engine, 60.0), policy_enforcer, "_policies"),
)


def test_a_round_that_fails_for_one_workspace_is_done_for_the_others(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(engine) as connection:
        for name in ("a", "b", "c"):
            make_workspace(connection, name)
            address = FitAddress("jsons://hooks.example.org")
            change = Change(connection, name, "ada")
            targets.add(change, name="x", address=address)
            policy = Policy(id=name, name="x", after=60.0, action="notice")
            policies.add(change, policy)
    for one_round, module, step in ROUNDS:
        real, seen = getattr(module, step), set[str]()

        def failing(*args: Any, real: Any = real, seen: set[str] = seen, **fields: Any) -> Any:
            if args[1] == "a":
                raise ValueError("of no use")
            seen.add(args[1])
            return real(*args, **fields)

        monkeypatch.setattr(module, step, failing)
        with pytest.raises(SomeFailed, match="workspace a: ValueError"):
            one_round(engine)
        assert seen >= {"b", "c"}, step
