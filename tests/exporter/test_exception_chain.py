"""What led to an exception: what is told of it, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from distributed import Client, wait
from distributed.core import error_message
from distributed.protocol.serialize import Serialized, serialize

from daskscope import protocol
from daskscope.observe.errors.exception_chain import (
    MAX_CAUSES,
    MAX_FRAMES,
    MAX_PICKLE,
    ExceptionChain,
    causes_of,
)
from daskscope.privacy import MAX_CAUSE
from daskscope.scrubbing import SCRUBBED, shortened
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

pytestmark = pytest.mark.contract

MARKER = "mark" + "er7"
CALLED: list[str] = []


def look_up(name: str) -> int:
    return {"nothing": 1}[name]


def load(name: str) -> int:
    try:
        return look_up(name)
    except KeyError as error:
        raise ValueError(f"cannot load {name}") from error


def load_while_handling(name: str) -> int:
    try:
        return load(name)
    except ValueError:
        raise RuntimeError("gave up")  # noqa: B904


def load_and_hide(name: str) -> int:
    try:
        return load(name)
    except ValueError:
        raise RuntimeError("gave up") from None


def fail_to_compile() -> None:
    try:
        exec("the secret = 1")
    except SyntaxError as error:
        raise RuntimeError("gave up") from error


def name_a_key(key: str) -> None:
    from distributed.client import FutureCancelledError

    try:
        raise FutureCancelledError(key, "lost dependencies")
    except FutureCancelledError as error:
        raise RuntimeError("gave up") from error


def fail_by_value() -> None:
    class NotFound(Exception):  # it has methods, and its module cannot be imported
        def __init__(self, path: str) -> None:
            super().__init__(path)
            self.path = path

        def __str__(self) -> str:
            return f"no {self.path}"

    NotFound.__module__ = "__main__"
    try:
        open("/nowhere/at/all").close()
    except FileNotFoundError as error:
        raise NotFound("file") from error


def fail_with_notes() -> None:
    def fetch() -> None:
        raise TimeoutError("too slow")

    try:
        fetch()
    except TimeoutError as error:
        group = ExceptionGroup("several", [error, KeyError("other")])
        group.add_note("while loading password = hunter2hunter2")
        raise group from None


def told(recorder: Recorder) -> protocol.Failure:
    return recorder.wait_for(lambda: next(iter(recorder.failures()), None), "the failure")


def lines(failure: protocol.Failure) -> list[str]:
    """Return the lines of its traceback, without paths and line numbers."""
    assert failure.traceback is not None
    kept = (line for line in failure.traceback.splitlines() if line.strip(" ^~"))
    return [
        line.rpartition(", ")[2] if line.startswith('  File "') and line.count(", line ") else line
        for line in kept
    ]


DIRECT = "The above exception was the direct cause of the following exception:"
HANDLING = "During handling of the above exception, another exception occurred:"
HEAD = "Traceback (most recent call last):"


def test_what_led_to_an_exception_whose_class_has_methods_is_sent(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait(client.submit(fail_by_value))
    found = lines(told(recorder))
    assert found[1] == "in fail_by_value"
    assert found[2].startswith("FileNotFoundError(")
    assert DIRECT in found


def test_notes_and_members_of_a_group_come_below_it(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait(client.submit(fail_with_notes))
    failure = told(recorder)
    assert failure.type == "ExceptionGroup"
    found = lines(failure)
    assert "in fetch" in found
    assert "TimeoutError('too slow')" in found
    assert found[-1] == f"Note: while loading password = {SCRUBBED}"


def test_what_led_to_an_exception_is_told_above_it_as_python_does(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait(client.submit(load_while_handling, "a name"))

    failure = told(recorder)
    assert (failure.type, failure.message) == ("RuntimeError", "RuntimeError('gave up')")
    assert lines(failure) == [
        HEAD,
        "in load",
        "in look_up",
        "KeyError('a name')",
        DIRECT,
        HEAD,
        "in load_while_handling",
        "in load",
        "ValueError('cannot load a name')",
        HANDLING,
        HEAD,
        "in load_while_handling",
        '    raise RuntimeError("gave up")  # noqa: B904',
    ]
    # Over OTLP, too.
    recorder.wait_for(
        lambda: any(DIRECT.encode() in r.body for r in recorder.requests if r.path == "/v1/logs"),
        "the log event",
    )


def test_what_an_exception_hides_is_not_told(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait(client.submit(load_and_hide, "a name"))
    assert lines(told(recorder)) == [
        "in load_and_hide",
        '    raise RuntimeError("gave up") from None',
    ]


def test_with_exceptions_refused_nothing_that_led_to_one_leaves(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__exceptions__transmit=False, computation__code__transmit=False)
    wait(client.submit(load_while_handling, MARKER))

    failure = told(recorder)
    assert (failure.type, failure.message, failure.traceback) == ("RuntimeError", None, None)
    recorder.wait_for(
        lambda: [r for r in recorder.requests if r.path == "/v1/logs" and b"RuntimeEr" in r.body],
        "the log event",
    )
    for text in (MARKER, "look_up", "KeyError"):
        assert text.encode() not in recorder.bytes


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (load, ("password=hunter2", MARKER), f"KeyError('password={SCRUBBED}')"),
        (load, (MARKER, MARKER), "KeyError('(key)')"),
        (name_a_key, (MARKER, "another"), "FutureCancelledError(…)"),
        (fail_to_compile, ("", ""), "SyntaxError('invalid syntax', …)"),
        (load, ("x" * 2_000, "long"), shortened(f"KeyError('{'x' * 2_000}", MAX_CAUSE)),
    ],
)
def test_of_what_led_to_an_exception_no_more_leaves_than_of_itself(
    function: Any,
    arguments: tuple[str, str],
    message: str,
    client: Client,
    register: Register,
    recorder: Recorder,
) -> None:
    register(computation__code__transmit=False)
    argument, key = arguments
    wait(client.submit(function, *filter(None, [argument]), key=key or None))

    assert message in lines(told(recorder))
    for text in (MARKER, "hunter2", "the secret"):
        assert text.encode() not in recorder.bytes


# --- how it is read -------------------------------------------------------------------------------


class Hides(Exception):
    """Says nothing of what it was made of."""

    def __str__(self) -> str:
        return "not to be shown"


class Calls(Exception):
    """Calls a function when it is unpickled."""

    def __reduce__(self) -> Any:
        return (called, (MARKER,))


def called(text: str) -> Exception:
    CALLED.append(text)
    return Calls(text)


def nest(depth: int) -> None:
    if not depth:
        raise KeyError("the first")
    try:
        nest(depth - 1)
    except Exception as error:
        raise ValueError(str(depth)) from error


def go_deep(depth: int) -> None:
    if not depth:
        raise KeyError(MARKER)
    go_deep(depth - 1)


def raise_from(cause: Exception | None, error: Exception) -> None:
    try:
        if cause is not None:
            raise cause
    except Exception as raised:
        raise error from raised
    raise error


def read(function: Any, *arguments: Any) -> ExceptionChain:
    """Return what led to what a function raises, by what Dask sends of it."""
    try:
        function(*arguments)
    except Exception as error:
        message = error_message(error)
    header, frames = serialize(message["exception"].data)
    found = causes_of(message["traceback_text"], Serialized(header, frames))
    # From a worker in the same process it comes as it is.
    assert found == causes_of(message["traceback_text"], message["exception"])
    return found


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (KeyError("a", 1, None, 2.5), "KeyError('a', 1, None, 2.5)"),
        (FileNotFoundError(2, "None", "of/it"), "FileNotFoundError(2, 'None', 'of/it')"),
        (ValueError(*range(10)), "ValueError(0, 1, 2, 3, 4, 5, …)"),
        (ValueError({"a": [Recorder]}, Recorder), "ValueError({'a': [Recorder]}, Recorder)"),
        (ValueError(KeyError("x")), "ValueError(<KeyError>)"),
        (ValueError(Hides(1), "x" * 2_000), f"ValueError(<Hides>, '{'x' * 2_000}')"),
        (Hides(MARKER), "Hides(…)"),
        (json.JSONDecodeError("what", MARKER, 1), "JSONDecodeError(…)"),
    ],
)
def test_an_exception_that_led_to_another_is_told_as_it_shows_itself(
    cause: Exception, message: str
) -> None:
    found = read(raise_from, cause, RuntimeError("gave up"))
    assert [cause.message for cause in found.causes] == [message]
    assert not found.cut


def test_without_anything_that_led_to_it_nothing_is_told_or_cut() -> None:
    assert read(raise_from, None, ValueError("alone")) == ExceptionChain()


def test_nothing_that_a_pickle_names_is_called() -> None:
    CALLED.clear()
    try:
        raise_from(Calls("x"), RuntimeError("gave up"))
    except RuntimeError as error:
        message = error_message(error)
    CALLED.clear()  # Dask itself tries
    found = causes_of(message["traceback_text"], message["exception"])
    assert CALLED == []
    assert [cause.message for cause in found.causes] == ["Exception(…)"]


def test_what_is_too_much_says_so() -> None:
    many = read(nest, MAX_CAUSES + 1)
    assert (len(many.causes), many.cut) == (MAX_CAUSES, True)
    assert not read(nest, MAX_CAUSES).cut

    def deep(depth: int) -> None:
        try:
            go_deep(depth)
        except KeyError as error:
            raise ValueError from error

    (cause,) = read(deep, MAX_FRAMES + 10).causes
    assert cause.frames.startswith("  [12 more calls before these]\n")
    assert cause.frames.count("in go_deep") == MAX_FRAMES
    assert read(raise_from, ValueError("x" * MAX_PICKLE), ValueError()) == ExceptionChain(cut=True)


class Unpicklable:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("not to be pickled")


@pytest.mark.parametrize("error", [ValueError("x" * 20_000), ValueError(Unpicklable())])
def test_where_dask_sends_another_in_its_place_it_says_that_something_may_have_led_to_it(
    error: Exception,
) -> None:
    assert read(raise_from, KeyError(1), error) == ExceptionChain(cut=True)
