"""Holds tests to budgets, in pytest: an option, a marker and a fixture; docs/jobs.md has examples.

pytest imports it wherever daskscope is installed, so Dask is imported only for what is used.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from daskscope.spending import BlockUsage, Limits

_MARKER = "daskscope_budget"
#: What a marker and the fixture take.
_LIMITS = frozenset({"seconds", "memory", "tasks"})
_ABOUT = (
    f"{_MARKER}(seconds=None, memory=None, tasks=None): what the Dask computations of the test may "
    "take in all: seconds in which one ran, bytes of any worker's process, tasks. Numbers, or "
    'texts such as "2 minutes" and "4 GiB".'
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--daskscope-budget``."""
    parser.getgroup("daskscope").addoption(
        "--daskscope-budget",
        metavar="SECONDS",
        help="Fail tests whose Dask computations take longer than that, and have no marker "
        f"{_MARKER} of their own.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker, and look at the option."""
    config.addinivalue_line("markers", _ABOUT)
    asked = config.getoption("daskscope_budget")
    if asked is not None:
        _limits({"seconds": asked}, "--daskscope-budget")


@pytest.fixture
def daskscope_budget() -> Callable[..., AbstractContextManager[BlockUsage]]:
    """Hold a block to a budget: ``with daskscope_budget(seconds=2, tasks=100) as spent:``."""

    def budget(**limits: Any) -> AbstractContextManager[BlockUsage]:
        from daskscope.spending import held_to

        return held_to(_limits(limits, "daskscope_budget"))

    return budget


# Older pytest knows no such hook.
if pytest.version_tuple >= (8,):

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
        """Hold the test to its marker, or to the option."""
        limits = _of_test(item)
        if limits is None:
            return (yield)
        from daskscope.errors import DaskscopeError
        from daskscope.spending import Holding

        holding = Holding(limits)
        with ExitStack() as on_failure:
            on_failure.callback(holding.give_up)
            result = yield
            on_failure.pop_all()
        failure = None
        try:
            holding.end()
        except DaskscopeError as error:
            failure = str(error)
        if failure is not None:  # not while the other is handled: pytest would show both
            pytest.fail(failure, pytrace=False)
        return result


def _of_test(item: pytest.Item) -> Limits | None:
    marker = item.get_closest_marker(_MARKER)
    if marker is not None:
        if marker.args:
            raise pytest.UsageError(f"{_MARKER} takes its limits by name: seconds=2")
        return _limits(marker.kwargs, f"the marker {_MARKER}")
    asked = item.config.getoption("daskscope_budget")
    return (
        None if asked is None else _limits({"seconds": asked}, "--daskscope-budget", optional=True)
    )


def _limits(given: Mapping[str, Any], where: str, *, optional: bool = False) -> Limits:
    from daskscope.budget import bytes_of, seconds_of, whole_number
    from daskscope.errors import ConfigurationError
    from daskscope.spending import Limits

    try:
        if unknown := sorted(given.keys() - _LIMITS):
            known = ", ".join(sorted(_LIMITS))
            raise ConfigurationError(f"it has no limit {unknown[0]!r}; the limits are: {known}")
        limits = Limits(
            seconds_of("seconds", given.get("seconds")),
            bytes_of("memory", given.get("memory")),
            whole_number("tasks", given.get("tasks")),
            optional,
        )
        limits.check()
    except ConfigurationError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    return limits
