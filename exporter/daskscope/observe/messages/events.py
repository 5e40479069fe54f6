"""Events of Dask's event log whose topics the settings allow."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Any

from distributed.metrics import time

from daskscope.observe.bounded import Bounded, Count
from daskscope.protocol import MAX_NAME
from daskscope.size import estimate

#: Events that are stored between two heartbeats. Beyond it the oldest are dropped and counted.
MAX_EVENTS = 1_000
#: The approximate bytes of their messages that are stored.
MAX_EVENT_BYTES = 4 << 20
#: Topics that are often misspelled, with the names that Dask uses.
MISSPELT = {"invalid-task-states": "invalid-worker-task-state"}
#: Topics that the metric counts separately.
MAX_TOPICS = 50


@dataclass(frozen=True, slots=True)
class RawEvent:
    """An event of Dask's. ``message`` may contain anything, and privacy rules have not been applied
    to it. It takes about ``size`` bytes.
    """

    id: str
    at: float
    topic: str
    message: Any
    size: int


class Events:
    """The allowed events since the last beat."""

    def __init__(self, allow: Iterable[str], drops: Counter[str]) -> None:
        patterns = set(allow)
        patterns |= {meant for misspelt, meant in MISSPELT.items() if misspelt in patterns}
        allowed = re.compile("|".join(map(translate, patterns)) or r"(?!)")
        # Each topic is matched once. Dask creates a topic for every worker and client.
        self._allows = lru_cache(maxsize=1_024)(lambda topic: bool(allowed.match(topic)))
        self._drops = drops
        self._events: deque[RawEvent] = deque()
        self._bytes = 0
        self._seen = 0
        self._topics = Bounded(Count, MAX_TOPICS, "event topic", drops)

    def add(self, topic: str, message: Any) -> None:
        """Store an event if its topic is allowed."""
        if not self._allows(topic):
            return
        now = time()
        topic = topic[:MAX_NAME]
        self._seen += 1
        self._topics[topic].value += 1
        size = estimate(message)
        self._bytes += size
        id = f"{int(now * 1000):x}-{self._seen:x}"
        self._events.append(RawEvent(id, now, topic, message, size))
        while len(self._events) > MAX_EVENTS or (
            self._bytes > MAX_EVENT_BYTES and len(self._events) > 1
        ):
            self._bytes -= self._events.popleft().size
            self._drops["event"] += 1

    def by_topic(self) -> dict[str, int]:
        """Return how many allowed events there were of each topic."""
        return {topic: count.value for topic, count in self._topics.values.items()}

    def take(self) -> tuple[RawEvent, ...]:
        """Return the events since the last call."""
        events = tuple(self._events)
        self._events.clear()
        self._bytes = 0
        return events
