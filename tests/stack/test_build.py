"""How the programs are built: once, whole or not at all, and with an error that says what to do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stack import build
from tests.stack.build import CannotBuild, Program


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return build.cache_folder()


def program(script: str, before: Callable[[], None] = lambda: None) -> Program:
    """Return a program that a line of shell makes, as the file ``made``."""

    def recipe(shop: build._Workshop) -> Path:
        before()
        shop.run(["sh", "-c", script])
        return shop.folder / "made"

    return Program("thing", "1.0", ("sh",), script, recipe)


def test_two_that_want_it_at_once_build_it_once(cache: Path) -> None:
    begun, told = threading.Event(), threading.Event()
    builds: list[str] = []

    def begin() -> None:
        builds.append("built")
        begun.set()
        assert told.wait(30)

    def tell(line: str) -> None:
        if "another process builds it" in line:
            told.set()

    thing = program("echo yes > made", begin)
    first = threading.Thread(target=build.built, args=(thing, lambda _: None))
    first.start()
    assert begun.wait(30)
    place = build.built(thing, tell)
    first.join()
    assert place.read_text() == "yes\n"
    assert builds == ["built"]
    assert {file.suffix for file in cache.iterdir()} == {place.suffix, ".lock"}


def test_a_build_that_fails_says_why_and_leaves_nothing(cache: Path) -> None:
    with pytest.raises(CannotBuild, match="no such module"):
        build.built(program("echo no such module >&2; echo half > made; exit 1"), lambda _: None)
    assert [file.suffix for file in cache.iterdir()] == [".lock"]


def test_what_it_is_made_of_tells_one_build_from_another() -> None:
    one, other = (build.built(program(f"echo {n} > made"), lambda _: None) for n in (1, 2))
    assert one != other


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CannotBuild, match=r"go and cargo and cc is not installed: https://go\.dev"):
        build.built(build.INFLUXDB2, lambda _: None)
