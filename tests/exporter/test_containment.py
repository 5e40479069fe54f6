"""Errors of daskscope's own are counted and end there; those of others go on their way."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from opentelemetry import trace

from daskscope.containment import INTERNAL_ERROR, Contained
from daskscope.propagate import send_context_with_graphs


def fail(error: BaseException) -> None:
    raise error


def in_a_block(contained: Contained, function: Callable[[], None]) -> None:
    with contained:
        function()


def in_a_function(contained: Contained, function: Callable[[], None]) -> None:
    assert contained.around(function, otherwise="other")() == "other"


ways = pytest.mark.parametrize("run", [in_a_block, in_a_function])


@ways
@pytest.mark.parametrize("kind", [ValueError, RecursionError, MemoryError, TimeoutError])
def test_an_error_is_counted_and_ends_there(run: Any, kind: type[Exception]) -> None:
    drops: Counter[str] = Counter()
    for _ in range(2):
        run(Contained(drops), partial(fail, kind()))
    assert drops == {INTERNAL_ERROR: 2}


@ways
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_ends_a_program_goes_on_its_way(run: Any, kind: type[BaseException]) -> None:
    drops: Counter[str] = Counter()
    with pytest.raises(kind):
        run(Contained(drops), partial(fail, kind()))
    assert not drops


class Handler:
    def __call__(self, number: int, frame: Any) -> None:
        raise TimeoutError("the user's")


def handle(number: int, frame: Any) -> None:
    Handler()(number, frame)


@ways
@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no such signal")
@pytest.mark.parametrize("handler", [handle, Handler(), Handler().__call__, partial(handle)])
def test_what_the_users_signal_handler_raises_goes_on_its_way(run: Any, handler: Any) -> None:
    drops: Counter[str] = Counter()
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError, match="the user's"):
            run(Contained(drops), lambda: signal.raise_signal(signal.SIGUSR1))
        # The same error of ours is none of a handler's.
        run(Contained(drops), partial(fail, TimeoutError()))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert drops == {INTERNAL_ERROR: 1}


def test_a_contained_function_returns_and_takes_what_it_would() -> None:
    def add(one: int, *, other: int) -> int:
        return one + other

    contained = Contained({}).around(add, otherwise=None)
    assert contained(1, other=2) == 3
    assert contained.__name__ == "add"


def deepest(call: Callable[[], object]) -> int:
    """Return at how many frames below here ``call`` still returns."""

    def descend(depth: int) -> int:
        try:
            reached = descend(depth + 1)
        except RecursionError:
            return -1
        if reached < 0:
            try:
                call()
            except RecursionError:
                return -1
            return depth
        return reached

    return descend(0)


def test_a_contained_function_needs_no_more_of_the_stack_than_one_that_does_nothing() -> None:
    drops: Counter[str] = Counter()

    def deep() -> None:
        return deep()

    def nothing() -> None:
        pass

    found: list[int] = []
    contained = Contained(drops).around(deep, otherwise=None)
    # In a thread of its own, whose stack is no deeper than this.
    for call in (nothing, contained):
        thread = threading.Thread(target=lambda call=call: found.append(deepest(call)))
        thread.start()
        thread.join()
    assert found[0] == found[1]


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no such signal")
@pytest.mark.parametrize(
    ("raises", "sent"),
    [(lambda: fail(ValueError()), True), (lambda: signal.raise_signal(signal.SIGUSR1), False)],
)
def test_a_graph_is_sent_without_a_context_that_cannot_be_read_but_not_past_a_timeout(
    monkeypatch: pytest.MonkeyPatch, raises: Callable[[], None], sent: bool
) -> None:
    class Submits:
        submitted = 0

        def _graph_to_futures(self) -> None:
            self.submitted += 1

    monkeypatch.setattr(trace, "get_current_span", raises)
    before = signal.signal(signal.SIGUSR1, handle)
    client, drops = Submits(), Counter[str]()
    send_context_with_graphs(client, {}, drops)  # type: ignore[arg-type]
    try:
        client._graph_to_futures()
    except TimeoutError:
        assert not sent
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (client.submitted, drops[INTERNAL_ERROR]) == ((1, 1) if sent else (0, 0))
