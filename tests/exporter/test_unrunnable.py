"""What tasks ask for that no worker can run is said in a few words, however much it is."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from daskscope.observe.tasks.unrunnable import asked_for


def task(**restrictions: Any) -> Any:
    none = dict.fromkeys(("resource_restrictions", "worker_restrictions", "host_restrictions"))
    return SimpleNamespace(**(none | restrictions))


@pytest.mark.parametrize(
    ("restrictions", "said"),
    [
        ({}, "any worker"),
        ({"resource_restrictions": {"GPU": 2.0}}, "GPU=2"),
        ({"worker_restrictions": {"tcp://b", "tcp://a"}}, "worker tcp://a, worker tcp://b"),
        ({"host_restrictions": {"a"}}, "host a"),
    ],
)
def test_a_few_are_named(restrictions: dict[str, Any], said: str) -> None:
    assert asked_for(task(**restrictions)) == said


class Many(set[str]):
    """Looked through for each of a hundred tasks, it would hold up the scheduler."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("it was looked through")


@pytest.mark.parametrize("kind", ["worker", "host"])
def test_many_are_counted(kind: str) -> None:
    many = Many(f"tcp://10.0.{number}" for number in range(10_000))
    assert asked_for(task(**{f"{kind}_restrictions": many})) == f"one of 10,000 {kind}s"
