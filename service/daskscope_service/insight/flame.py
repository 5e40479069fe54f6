"""Merges profiles into one tree of calls, and finds the lines of code that took the time."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from daskscope.protocol import ProfileLine

#: Who wrote the code of a file: the user, Dask, another library, or Python itself.
Origin = Literal["yours", "dask", "library", "python"]

_PACKAGES = re.compile(r"/(?:site|dist)-packages/([^/]+)")
_PYTHON = re.compile(r"/lib(?:64)?/python3?(?:\.\d+)?/|/Lib/|^<frozen ")
_DASK = ("dask", "distributed")

#: Calls that wait: for a clock, a lock, a process, a socket.
_CALLS_THAT_WAIT = re.compile(
    r"\b(sleep|recv\w*|sendall|select|poll|epoll|wait\w*|acquire|connect|accept|getaddrinfo|"
    r"urlopen|readinto|communicate|result|fetch\w*|requests\.\w+)\s*\("
)

#: Files whose code mostly waits.
_FILES_THAT_WAIT = re.compile(
    r"[/\\](socket|ssl|selectors|threading|subprocess|http[/\\]client)\.py$"
    r"|[/\\](urllib3|requests|httpx|aiohttp|botocore|s3fs|gcsfs|adlfs|fsspec|psycopg\w*)[/\\]"
)

#: The keys that each line of a profile must have.
_OF_LINE = frozenset(field.name for field in fields(ProfileLine))

#: A row of the table ``profile``.
Profile = Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Call:
    """A node of the tree: a function, called by its parent node. ``below`` are its callees.

    ``samples`` counts those of the function and its callees; ``seconds`` estimates their time.
    ``line`` is the line with the most samples in one profile, and ``heaviest`` their number.
    """

    function: str
    file: str
    line: int = 0
    samples: int = 0
    seconds: float = 0.0
    heaviest: int = 0
    below: dict[tuple[str, str], Call] = field(default_factory=dict)

    def matches(self, text: str) -> bool:
        """Return whether ``text``, in lower case, is part of the function's or the file's name."""
        return text in self.function.lower() or text in self.file.lower()


@dataclass(slots=True)
class CodeLine:
    """A line of code. ``self_samples`` and ``self_seconds`` leave out what the line called."""

    file: str
    function: str
    line: int
    text: str | None
    self_samples: int = 0
    samples: int = 0
    self_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Merged:
    """All ``profiles`` as one tree. Its root, ``top``, stands for all threads.

    For each profile, ``calls`` holds the call that each of its nodes became, and ``weights`` the
    seconds that one sample stands for. ``unsampled`` is the seconds of tasks of which no sample
    was taken, summed over the profiles that report it; None if no profile does.
    """

    top: Call
    profiles: Sequence[Profile]
    calls: Sequence[Sequence[Call]]
    weights: Sequence[float]
    unsampled: float | None

    @property
    def length(self) -> float:
        """The seconds from the start of the first profile to the end of the last."""
        return max((one["stopped_at"] for one in self.profiles), default=0.0) - min(
            (one["started_at"] for one in self.profiles), default=0.0
        )

    @property
    def unsampled_share(self) -> float:
        """The share of the tasks' time, 0 to 1, of which no sample was taken."""
        if not self.unsampled:
            return 0.0
        return self.unsampled / (self.unsampled + self.top.seconds)


def fits(profile: Profile) -> bool:
    """Return whether the columns of ``profile`` form a tree, so that :func:`merge` can read it."""
    parent, line, samples = profile["parent"], profile["line"], profile["samples"]
    return (
        len(parent) == len(line) == len(samples)
        and all(-1 <= above < node for node, above in enumerate(parent))
        and all(0 <= number < len(profile["lines"]) for number in line)
        and all(number >= 0 for number in samples)
        and all(one.keys() >= _OF_LINE for one in profile["lines"])
    )


def merge(profiles: Sequence[Profile]) -> Merged:
    """Merge ``profiles`` into one tree, in which a function is one call below each caller.

    All must pass :func:`fits`.
    """
    top = Call("all threads at work", "")
    all_calls: list[list[Call]] = []
    weights: list[float] = []
    for profile in profiles:
        whole = sum(samples for parent, _, samples in _nodes(profile) if parent < 0)
        weight = profile["seconds"] / whole if whole else 0.0
        keys = [(line["function"], line["file"]) for line in profile["lines"]]
        calls: list[Call] = []
        for parent, number, samples in _nodes(profile):
            below = (top if parent < 0 else calls[parent]).below
            key = keys[number]
            call = below.get(key)
            if call is None:
                call = below[key] = Call(*key)
            if samples > call.heaviest:
                call.heaviest, call.line = samples, profile["lines"][number]["line"]
            call.samples += samples
            call.seconds += samples * weight
            calls.append(call)
        top.samples += whole
        top.seconds += whole * weight
        all_calls.append(calls)
        weights.append(weight)
    known = [seconds for one in profiles if (seconds := one.get("unsampled")) is not None]
    return Merged(top, profiles, all_calls, weights, sum(known) if known else None)


def lines_of(merged: Merged, within: Call) -> list[CodeLine]:
    """Return the lines seen in ``within`` and what it called.

    A sample counts once for a line, even if the line stands several times in its stack.
    """
    lines: dict[tuple[str, str, int], CodeLine] = {}
    everywhere = within is merged.top
    each = zip(merged.profiles, merged.calls, merged.weights, strict=True)
    for profile, calls, weight in each:
        itself = list(profile["samples"])
        for parent, samples in zip(profile["parent"], profile["samples"], strict=True):
            if parent >= 0:
                itself[parent] -= samples
        totals, selfs = [0] * len(profile["lines"]), [0] * len(profile["lines"])
        bits = [1 << number for number in range(len(profile["lines"]))]
        # For each node: its line and those of its callers, as bits; 0 if it is not in ``within``.
        above: list[int] = []
        nodes = zip(
            profile["parent"], profile["line"], profile["samples"], itself, calls, strict=True
        )
        for parent, number, samples, own, call in nodes:
            seen = above[parent] if parent >= 0 else 0
            if seen or everywhere or call is within:
                bit = bits[number]
                if not seen & bit:
                    totals[number] += samples
                    seen |= bit
                if own > 0:
                    selfs[number] += own
            above.append(seen)
        for line, total, own in zip(profile["lines"], totals, selfs, strict=True):
            if total:
                key = (line["file"], line["function"], line["line"])
                one = lines.get(key)
                if one is None:
                    one = lines[key] = CodeLine(*key, text=line["text"])
                elif not one.text:
                    one.text = line["text"]
                one.samples += total
                one.seconds += total * weight
                if own:
                    one.self_samples += own
                    one.self_seconds += own * weight
    return list(lines.values())


def address_of(above: str, call: Call) -> str:
    """Return the address of ``call`` in a tree, a short hash. ``above`` is its caller's address."""
    content = f"{above}\0{call.function}\0{call.file}".encode(errors="replace")
    return hashlib.blake2b(content, digest_size=6).hexdigest()


def path_to(top: Call, address: str) -> list[tuple[str, Call]]:
    """Return the calls from below ``top`` to the one at ``address``, with their addresses.

    Return [] if the tree has no such address.
    """
    # Each step refers to the one before it: a stack may be thousands of calls deep, and a list of
    # all callers for each call would take hundreds of megabytes.
    stack: list[_Step] = [_Step(address_of("", call), call, None) for call in top.below.values()]
    while stack:
        step = stack.pop()
        if step.address == address:
            return step.path()
        stack += [
            _Step(address_of(step.address, call), call, step) for call in step.call.below.values()
        ]
    return []


@dataclass(frozen=True, slots=True)
class _Step:
    """A call on the way to another one, and the step to its caller."""

    address: str
    call: Call
    before: _Step | None

    def path(self) -> list[tuple[str, Call]]:
        """Return the addresses and calls of all steps up to this one, the outermost first."""
        steps: list[tuple[str, Call]] = []
        step: _Step | None = self
        while step is not None:
            steps.append((step.address, step.call))
            step = step.before
        return steps[::-1]


def seconds_matching(call: Call, text: str) -> float:
    """Return the seconds in ``call`` of functions that match ``text``, including their callees."""
    stack, seconds = [call], 0.0
    while stack:
        one = stack.pop()
        for below in one.below.values():
            if below.matches(text):
                seconds += below.seconds
            else:
                stack.append(below)
    return seconds


def own_seconds_by_origin(call: Call) -> dict[Origin, float]:
    """Return the seconds in ``call`` by whose code ran, without the time of its callees."""
    seconds: dict[Origin, float] = {"yours": 0.0, "library": 0.0, "dask": 0.0, "python": 0.0}
    stack = [call]
    while stack:
        one = stack.pop()
        own = one.seconds - sum(below.seconds for below in one.below.values())
        if one.file:
            seconds[origin_of(one.file)] += max(own, 0.0)
        stack += one.below.values()
    return seconds


@functools.lru_cache(maxsize=4096)
def origin_of(file: str) -> Origin:
    """Return who wrote the code of ``file``, as far as its path shows."""
    path = file.replace("\\", "/")
    if package := _PACKAGES.search(path):
        return "dask" if package[1] in _DASK else "library"
    if any(f"/{name}/{name}/" in path for name in _DASK):  # a checkout
        return "dask"
    return "python" if _PYTHON.search(path) else "yours"


def _nodes(profile: Profile) -> Iterator[tuple[int, int, int]]:
    return zip(profile["parent"], profile["line"], profile["samples"], strict=True)


def waits(line: CodeLine) -> bool | None:
    """Return whether ``line`` waits; None if its text is needed to know that and was not sent."""
    if _FILES_THAT_WAIT.search(line.file):
        return True
    return None if line.text is None else bool(_CALLS_THAT_WAIT.search(line.text))
