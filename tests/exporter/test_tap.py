"""Log records are looked at without running the user's code once more, and left as they are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from daskscope import worker_logs
from daskscope.worker_logs import describe, tap


class Argument:
    """Counts how often a text is made of it."""

    def __init__(self) -> None:
        self.made = 0

    def __str__(self) -> str:
        self.made += 1
        return "the text"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger of a user's, without a handler."""
    logger = logging.getLogger("a_users")
    logger.propagate = False
    yield logger
    logger.handlers.clear()
    logger.propagate = True


def described(record: logging.LogRecord) -> str:
    return describe(record, exceptions=True)[3]


def record_of(message: str, *args: Any) -> logging.LogRecord:
    return logging.LogRecord("a_users", logging.WARNING, __file__, 1, message, args, None)


def test_the_text_that_a_handler_has_made_is_taken() -> None:
    argument = Argument()
    record = record_of("it is %s", argument)
    logging.Formatter().format(record)
    assert described(record) == "it is the text"
    assert argument.made == 1


def test_where_no_handler_has_made_a_text_the_users_code_makes_none() -> None:
    argument = Argument()
    assert described(record_of("%d and %s of %s", 1, "two", argument)) == "1 and two of …"
    assert described(record_of("%(one)s", {"one": argument})) == "…"
    assert argument.made == 0


def test_a_record_that_someone_keeps_has_nothing_of_ours_in_it(logger: logging.Logger) -> None:
    kept: list[logging.LogRecord] = []
    logger.addHandler(logging.NullHandler())
    logger.addFilter(lambda record: not kept.append(record))  # type: ignore[func-returns-value]
    untap = tap(lambda record: record.__dict__.setdefault(worker_logs._TAKER, object()))
    try:
        logger.warning("kept", extra={"theirs": 1})
    finally:
        untap()
        logger.filters.clear()
    plain = set(logging.makeLogRecord({}).__dict__)
    assert set(kept[0].__dict__) - plain - {"message"} == {"theirs"}
