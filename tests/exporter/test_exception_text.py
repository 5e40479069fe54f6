"""``exception.message`` is the text of an exception, as OpenTelemetry means it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, wait
from distributed.core import error_message

from daskscope import names
from daskscope.observe.errors.failures import Failures
from daskscope.otlp.exception_text import text_of
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

#: Whose texts are not made of their arguments alone.
IN_THEIR_OWN_WORDS = {UnicodeDecodeError, ExceptionGroup}


class OddError(Exception):
    def __repr__(self) -> str:
        return "OddError: it says so itself"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such 'thing'\nand a second line"),
        ValueError(),
        ValueError(""),
        ValueError(3),
        ValueError("é\udce9"),
        ValueError("two", 2),
        ValueError(["a", {"b": None}]),
        KeyError("a key"),
        OSError(2, "No such file or directory"),
        FileNotFoundError(2, "No such file or directory", "a file"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ExceptionGroup("several", [ValueError("one")]),
    ],
    ids=repr,
)
def test_the_text_is_what_python_shows_or_at_worst_the_repr(error: Exception) -> None:
    found = text_of(repr(error), type(error).__name__)
    if getattr(error, "filename", None) is not None:
        # The repr does not have it.
        error = type(error)(*error.args)
    assert found == (repr(error) if type(error) in IN_THEIR_OWN_WORDS else str(error))


def read_missing(path: str) -> None:
    with open(path):
        pass


def stat_missing(path: str) -> None:
    Path(path).stat()


def move_missing(path: str) -> None:
    os.rename(path, "elsewhere")


def raise_without_file(path: str) -> None:
    raise TimeoutError(110, "it took too long")


class QuotaError(OSError):
    """Does not show its file."""

    def __str__(self) -> str:
        return "over quota"


def raise_own(path: str) -> None:
    raise QuotaError(122, "over quota", path)


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (read_missing, "[Errno 2] No such file or directory: '/nowhere/sales'"),
        (stat_missing, "[Errno 2] No such file or directory: '/nowhere/sales'"),
        (move_missing, "[Errno 2] No such file or directory: '/nowhere/sales' -> 'elsewhere'"),
        (raise_without_file, "[Errno 110] it took too long"),
        (raise_own, "QuotaError(122, 'over quota')"),
    ],
)
def test_an_error_of_the_systems_says_which_file_it_is_about(
    function: Callable[[str], None], shown: str
) -> None:
    try:
        function("/nowhere/sales")
    except OSError as error:
        details: Any = error_message(error)
    failures = Failures(Counter())
    failures.add("a computation", "load", "a-key", details)
    (raw,) = failures.changed(10)
    assert text_of(str(raw.row.message), raw.row.type) == shown


@pytest.mark.parametrize(
    "message",
    [
        "OddError: it says so itself",
        "ValueError('cut in the mid…",
        "ValueError(<object of a user's own>)",
        "ValueError(" + "(" * 500 + ")" * 500 + ")",
        "TypeError('of another type')",
        "The workers that ran this task died, more often than Dask allows.",
        "",
    ],
)
def test_what_shows_no_text_is_the_text(message: str) -> None:
    assert text_of(message, "ValueError") == message


def raise_it(number: int) -> None:
    raise ValueError(f"no row {number}")


@pytest.mark.usefixtures("sends_soon")
def test_log_events_of_exceptions_have_the_text(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait(client.submit(raise_it, 7, pure=False))
    record = recorder.wait_for(
        lambda: recorder.log_records(names.LOG_EXCEPTION.name), "the exception"
    )[0]
    told: dict[str, Any] = {pair.key: pair.value.string_value for pair in record.attributes}
    assert told[names.EXCEPTION_TYPE] == "ValueError"
    assert told[names.EXCEPTION_MESSAGE] == "no row 7"
