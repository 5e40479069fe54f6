"""Merges the workers' profiles into one call tree, and cuts it to the size of a row."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from typing import Any

from daskscope import protocol

#: Calls that are stored separately while profiles are merged, and the heaviest calls, of which a
#: row is made.
MAX_MERGED = 20_000
MAX_CALLS = 1_000
#: The most bytes of a row on the wire. A source line counts with at most MAX_SOURCE_LINE.
MAX_BYTES = 200_000
#: The most characters of a source line that are sent.
MAX_SOURCE_LINE = 300

#: A node of Dask's profile: ``identifier``, ``count``, ``children`` and ``description``.
Node = Mapping[str, Any]


class CallTree:
    """Profiles of many workers, merged. Dask's profile distinguishes functions, not their lines."""

    def __init__(self) -> None:
        self._top = _Call(protocol.ProfileLine("", "", 0, None))
        self._size = 0
        self._cut = False
        self._lines: dict[protocol.ProfileLine, protocol.ProfileLine] = {}

    @property
    def samples(self) -> int:
        """How many samples showed a thread at work."""
        return self._top.samples

    def add(self, profile: Node) -> int:
        """Merge one worker's profile. Return how many nodes it had."""
        nodes = 0
        self._top.samples += profile["count"]
        stack = [(profile, self._top)]
        while stack:
            node, call = stack.pop()
            for child, samples in _called(node):
                nodes += 1
                below = call.below.get(child["identifier"])
                if below is None:
                    if self._size == MAX_MERGED:
                        self._cut = True
                        continue
                    self._size += 1
                    below = call.below[child["identifier"]] = _Call(self._line(child))
                elif samples > below.heaviest:
                    below.line = self._line(child)
                below.heaviest = max(below.heaviest, samples)
                below.samples += samples
                stack.append((child, below))
        return nodes

    def row(
        self,
        id: str,
        started_at: float,
        stopped_at: float,
        *,
        workers: int,
        seconds: float,
        unsampled: float | None,
    ) -> protocol.Profile:
        """Return the heaviest calls. No caller is missing: it is at least as heavy as a callee."""
        lines: dict[protocol.ProfileLine, int] = {}
        columns: list[tuple[int, int, int]] = []
        heap: list[tuple[int, int, int, _Call]] = []
        pushed = 0

        def push(caller: int, call: _Call) -> None:
            nonlocal pushed
            for below in call.below.values():
                # Breaks ties, because calls themselves cannot be compared.
                pushed += 1
                heapq.heappush(heap, (-below.samples, pushed, caller, below))

        push(-1, self._top)
        size = 0
        while heap and len(columns) < MAX_CALLS:
            _, _, caller, call = heap[0]
            line = lines.get(call.line, len(lines))
            column = (caller, line, call.samples)
            size += sum(len(str(number)) + 1 for number in column)
            if line == len(lines):
                size += _size(call.line)
            if size > MAX_BYTES:
                break
            heapq.heappop(heap)
            lines[call.line] = line
            push(len(columns), call)
            columns.append(column)
        return protocol.Profile(
            id=id,
            started_at=started_at,
            stopped_at=stopped_at,
            workers=workers,
            seconds=seconds,
            lines=tuple(lines),
            parent=tuple(column[0] for column in columns),
            line=tuple(column[1] for column in columns),
            samples=tuple(column[2] for column in columns),
            cut=self._cut or bool(heap),
            unsampled=unsampled,
        )

    def _line(self, node: Node) -> protocol.ProfileLine:
        seen = node["description"]
        line = protocol.ProfileLine(
            file=seen["filename"],
            function=seen["name"],
            line=seen["line_number"],
            text=seen["line"].strip(),
        )
        # Each profile has its own copies of texts: store equal lines once.
        return self._lines.setdefault(line, line)


class _Call:
    """A node of the tree: a function with a certain chain of callers."""

    __slots__ = ("below", "heaviest", "line", "samples")

    def __init__(self, line: protocol.ProfileLine) -> None:
        #: The line in the profile with the most samples of the call, and that number of samples.
        self.line = line
        self.heaviest = 0
        self.samples = 0
        self.below: dict[str, _Call] = {}


def _called(node: Node) -> Iterator[tuple[Node, int]]:
    """Yield the calls below ``node``, each with its samples, including those of its own callees.

    Dask's profile counts a call only while that calls another one, so it counts the innermost call
    of a sample only at its caller. A caller's samples beyond the sum of its callees' belong to the
    callees: to those that never called another if there are any, else to all by their counts.
    """
    children = list(node["children"].values())
    counts = [child["count"] for child in children]
    rest = node["count"] - sum(counts)
    weights = [count == 0 for count in counts] if 0 in counts else counts
    whole = sum(weights)
    # Whole numbers that add up to ``rest``: each child takes its part of the remainder.
    for child, count, weight in zip(children, counts, weights, strict=True):
        share = rest * weight // whole if whole else 0
        rest -= share
        whole -= weight
        yield child, count + share


def _size(line: protocol.ProfileLine) -> int:
    text = (line.text or "")[:MAX_SOURCE_LINE]
    fields = {"file": line.file, "function": line.function, "line": line.line, "text": text}
    return len(json.dumps(fields, ensure_ascii=False).encode(errors="replace"))
