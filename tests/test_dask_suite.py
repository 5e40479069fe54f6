"""``./dev matrix dask`` finds what passes only without the plugin, and that alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import dask_suite
from tests.dask_suite import compare
from tests.matrix import matrix

#: As Dask's own are: some start a scheduler, in their own process.
TESTS = """
import asyncio
import os

from distributed import Scheduler

PLUGIN = "DASK_DISTRIBUTED__SCHEDULER__PRELOAD" in os.environ


def test_the_same_both_ways():
    pass


def test_breaks_with_the_plugin():
    assert not PLUGIN


def test_broken_anyway():
    raise ValueError


def test_the_plugin_is_there():
    async def look():
        async with Scheduler(port=0, dashboard_address=":0") as scheduler:
            return "daskscope" in scheduler.plugins

    assert asyncio.run(look()) == PLUGIN
"""


#: Of which none starts a scheduler.
OTHER_TESTS = """
def test_nothing():
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    tests = tmp_path / "distributed" / "tests"
    tests.mkdir(parents=True)
    tests.joinpath("test_some.py").write_text(TESTS)
    tests.joinpath("test_other.py").write_text(OTHER_TESTS)
    tests.parent.joinpath("utils_test.py").touch()
    return tmp_path


@pytest.mark.slow
def test_a_test_that_passes_only_without_the_plugin_is_named(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    some, other = "distributed/tests/test_some.py", "distributed/tests/test_other.py"
    # A test of this name that may fail is in another file.
    monkeypatch.setitem(dask_suite.SEEN, f"{other}::test_breaks_with_the_plugin", "as it must")
    assert not compare(checkout, [some], again=1)
    told = capsys.readouterr().out
    assert "without 1 failure, 3 passed; with the plugin 2 failure, 2 passed" in told
    assert "1 tests differ\n  test_breaks_with_the_plugin\n" in told
    assert "1 clusters reported, with 0 errors" in told

    with monkeypatch.context() as patch:
        patch.setitem(dask_suite.SEEN, f"{some}::test_breaks_with_the_plugin", "as it must")
        assert compare(checkout, [some], again=1)
        assert "test_breaks_with_the_plugin: failed with the plugin" in capsys.readouterr().out

    # All files, where none is named.
    assert compare(checkout, ["-k", "same or there or nothing"], again=1)
    told = capsys.readouterr().out
    assert f"{other}: without 1 passed; with the plugin 1 passed" in told
    assert f"{some}: without 2 passed; with the plugin 2 passed" in told
    # It cannot be told whether the plugin was there.
    assert not compare(checkout, [other], again=1)


def test_what_is_no_checkout_of_dask_is_told_what_would_be_one(tmp_path: Path) -> None:
    told = CliRunner().invoke(matrix, ["dask", "--checkout", str(tmp_path)])
    assert told.exit_code == 2
    assert "no checkout of dask/distributed" in told.output
    assert "git clone" in told.output
    assert "--checkout PATH" in CliRunner().invoke(matrix, ["dask"]).output
