"""How the time to scrub a text grows with its length: four times for four times as much, or so.

Texts of all kinds that people write and programs log, with secrets and without, and long texts of
what patterns look for, which searches go back in most.
"""

from __future__ import annotations

import time

from daskscope.scrubbing import Scrubber
from tests.bench.results import Figure
from tests.exporter.secret_texts import FIRST, INNOCENT_FIRST

#: Characters of the shorter text.
_LENGTH = 10_000
TIMES = 4
#: The most that ``TIMES`` as much may take: 16 times would be of the square of the length.
GOAL = 5.0

_AS_WRITTEN = "\n".join([*(row.text for row in FIRST), *INNOCENT_FIRST])
_TEXTS = {
    "as people write": _AS_WRITTEN,
    "of one word": "aB3",
    "of names": "password=",
    "of names and dashes": "--token-",
    "of base64": "A" * 60 + "\n",
    "of URLs": "https://a:",
    "of quotes": "token='x\\",
}


def measure(rounds: int) -> list[Figure]:
    """Return the ratios of ``rounds``, a short text and a long one in turn."""
    return [
        _figure(f"scrubbing {TIMES} × a text {kind}", text, rounds) for kind, text in _TEXTS.items()
    ]


def _figure(what: str, text: str, rounds: int) -> Figure:
    short, long = (
        (text * (characters // len(text) + 1))[:characters]
        for characters in (_LENGTH, TIMES * _LENGTH)
    )
    _seconds(short)  # to warm up
    pairs = [(_seconds(long), _seconds(short)) for _ in range(rounds)]
    return Figure.of_ratios(what, [one for one, _ in pairs], [one for _, one in pairs], goal=GOAL)


def _seconds(text: str) -> float:
    began = time.thread_time()
    for code in (False, True):
        Scrubber().scrub(text, len(text), code=code)
    return time.thread_time() - began
