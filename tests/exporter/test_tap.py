"""Log records are looked at without running the user's code once more, and left as they are."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import textwrap
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from daskscope import record_text, worker_logs
from daskscope.record_text import describe
from daskscope.worker_logs import tap


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
    assert described(record_of("all: %s and %s", [{"a": argument}], [1])) == "all: … and [1]"
    assert argument.made == 0


class Several(Exception):
    def __len__(self) -> int:
        raise AssertionError("nobody asks how many they are")


def test_an_exception_that_is_like_a_list_is_not_asked_for_its_length() -> None:
    error = ValueError("it")
    error.__cause__ = Several("they")
    record = record_of("failed")
    record.exc_info = Several, Several("all"), None
    assert describe(record, exceptions=True)[5] == "all"
    record.exc_info = ValueError, error, None
    assert "Several: they" in str(describe(record, exceptions=True)[6])


PRIVATE = "the customer is Ada Lovelace"


class Failed(Exception):
    def __init__(self, output: str | bytes | Exception) -> None:
        super().__init__("a command")
        self.output = output


class Admission(Exception):
    born = 1815


def group() -> ExceptionGroup[Exception]:
    return ExceptionGroup("many", [KeyError(1), ExceptionGroup("some", [ValueError(PRIVATE)])])


def ended(error: Exception) -> asyncio.Future[None]:
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    future.set_exception(error)
    future.exception()  # Python would say that nobody asked
    loop.close()
    return future


def noted() -> Exception:
    error = ValueError("a")
    error.add_note(f"about {PRIVATE}")
    return error


def from_none() -> Exception:
    error = KeyError("b")
    error.__context__, error.__suppress_context__ = ValueError(PRIVATE), True
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (group(), lambda error: str(error.exceptions[1].exceptions[0])),
        (group(), lambda error: "".join(traceback.format_exception(error))),
        (noted(), lambda error: f"it says {error.__notes__}"),
        (noted(), lambda error: "".join(traceback.format_exception(error))),
        (from_none(), lambda error: f"before: {error.__context__}"),
        (Failed(PRIVATE), lambda error: f"it printed {error.output}"),
        (ValueError({"of": [1, {"row": PRIVATE}]}), lambda error: error.args[0]["of"][1]["row"]),
        (ValueError(f"{PRIVATE}\nin row 3"), lambda error: str(error).splitlines()[0]),
        (ValueError("e", PRIVATE), lambda error: "".join(error.args)),
        (Failed(PRIVATE.encode()), lambda error: f"it printed {error.output}"),
        (Failed(PRIVATE.encode()), lambda error: f"it printed {error.output.decode()}"),
        (Failed(ValueError(PRIVATE)), lambda error: f"it failed: {error.output}"),
        (ValueError("a line\n" * 200 + PRIVATE), lambda error: str(error).splitlines()[-1]),
        (ValueError([*range(200), PRIVATE]), lambda error: error.args[0][-1]),
        (ValueError([["many"] * 100] * 100), lambda error: PRIVATE),
    ],
    ids=[
        *("a member", "a group", "a note", "a note below it", "what it hides", "an attribute"),
        *("deep in it", "a line", "behind a short one", "bytes", "what bytes say"),
        "another that it holds",
        *("the last of many lines", "the last of many texts", "one of too many texts"),
    ],
)
def test_a_message_that_is_made_of_a_handled_exception_has_none_of_its_texts_where_refused(
    error: Exception, message: Callable[[Any], str]
) -> None:
    try:
        raise error
    except Exception:
        record = record_of(f"failed: {message(error)}")
        text = describe(record, exceptions=False)[3]
    assert "Ada" not in text
    assert record_text.REFUSED in text


@pytest.mark.parametrize(
    "part",
    [
        lambda error: str(error)[:22],
        lambda error: repr(error)[:34],
        lambda error: textwrap.shorten(str(error), 25),
        lambda error: str(error).upper(),
        lambda error: str(error).partition(" is ")[2],
        lambda error: json.dumps({"why": f'"{error}" ü'}, ensure_ascii=False),
        lambda error: error.born,
    ],
    ids=["cut", "cut repr", "shortened", "upper", "the end", "JSON", "a number"],
)
def test_of_a_message_made_of_a_handled_exception_only_the_code_is_sent_where_refused(
    part: Callable[[Any], object],
) -> None:
    def log() -> None:
        logging.getLogger("a_users").warning("attempt %d, reason: %s", 2, part(error))
        logging.getLogger("a_users").warning(f"the reason is {part(error)}")

    told: list[str] = []
    untap = tap(lambda record: told.append(describe(record, exceptions=False)[3]))
    try:
        raise Admission(PRIVATE)
    except Admission as raised:
        error = raised
        log()
    finally:
        untap()
    assert told == [
        "attempt [refused], reason: [refused]",
        "the reason is [refused]",
    ]


@pytest.mark.parametrize(
    "argument",
    [
        [ValueError(PRIVATE)],
        {"a": (1, ValueError(PRIVATE))},
        group().exceptions,
        [1] * 200 + [ValueError(PRIVATE)],
        [[[[[ValueError(PRIVATE)]]]]],
        deque([ValueError(PRIVATE)]),
        {ValueError(PRIVATE): 1},
        ended(ValueError(PRIVATE)),
    ],
    ids=[
        *("a list", "a mapping", "the members of a group", "the last of many", "deep in it"),
        *("a deque", "the key of a mapping", "a future of asyncio's"),
    ],
)
def test_exceptions_inside_of_arguments_lose_their_texts_where_refused(argument: Any) -> None:
    record = record_of("of %d: %s", 1, argument)
    logging.Formatter().format(record)
    assert PRIVATE in record.message
    assert "Ada" not in describe(record, exceptions=False)[3]


class Lazy:
    """Stands for another object, which it makes as soon as someone asks for its class."""

    made = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        Lazy.made = True
        return str


@pytest.mark.parametrize("exceptions", [True, False])
def test_what_stands_for_an_object_that_is_yet_to_be_made_is_not_asked_for_it(
    exceptions: bool,
) -> None:
    Lazy.made = False
    lazy = Lazy()
    describe(record_of("%s and %s", lazy, ValueError(lazy, [lazy])), exceptions)
    assert not Lazy.made


def test_of_more_exceptions_than_are_looked_at_nothing_is_sent_where_refused() -> None:
    argument = [ValueError(f"{PRIVATE} {number}") for number in range(record_text.MAX_FAMILY + 1)]
    record = record_of("all: %s", argument)
    logging.Formatter().format(record)
    assert describe(record, exceptions=False)[3] == record_text.REFUSED
    assert PRIVATE in describe(record, exceptions=True)[3]


@pytest.mark.parametrize("output", [PRIVATE * 200_000, PRIVATE.encode() * 200_000])
def test_of_an_exception_that_holds_more_than_is_looked_through_nothing_is_sent_where_refused(
    output: str | bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = record_of("failed: %s", subprocess.CalledProcessError(1, "make", stderr=output))
    logging.Formatter().format(record)
    with monkeypatch.context() as patch:
        patch.setattr(record_text, "_texts", None)  # it is not even begun
        assert describe(record, exceptions=False)[3] == record_text.REFUSED
    assert "make" in describe(record, exceptions=True)[3]


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


class Looks(logging.Handler):
    """Keeps what is on the stack while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[tuple[str, int, str]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        frames = traceback.walk_stack(sys._getframe())
        self.seen.append([(f.f_code.co_filename, line, f.f_code.co_name) for f, line in frames])


def test_handlers_meet_no_frame_of_ours(logger: logging.Logger) -> None:
    taken: list[logging.LogRecord] = []
    looks = Looks()
    logger.addHandler(looks)
    for is_tapped in (False, True):
        untap = tap(taken.append) if is_tapped else print
        logger.warning("text")
        untap()
    without, with_tap = looks.seen
    assert [record.getMessage() for record in taken] == ["text"]
    assert with_tap == without


def test_what_another_has_put_in_place_of_loggings_own_is_followed_too(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[logging.LogRecord] = []
    original = logging.Logger.callHandlers

    def of_another(self: logging.Logger, record: logging.LogRecord) -> None:
        record.seen_by_another = True
        original(self, record)

    monkeypatch.setattr(logging.Logger, "callHandlers", of_another)
    untap = tap(taken.append)
    logger.addHandler(logging.NullHandler())
    logger.warning("text")
    untap()
    assert [record.seen_by_another for record in taken] == [True]  # type: ignore[attr-defined]
    assert logging.Logger.callHandlers is of_another
