"""Users' programs print, warn, raise and exit with daskscope as they do without it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from daskscope.containment import INTERNAL_ERROR
from tests.exporter import counted_preload
from tests.exporter.recorder import Recorder
from tests.programs import local, preludes, users

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
]

PROGRAMS = {
    f"{kind}: {name}": prelude + program
    for kind, prelude, programs in (
        ("code", preludes.LOCAL, users.CODE),
        ("tasks", preludes.LOCAL, users.TASKS),
        ("process", preludes.LOCAL, users.PROCESS),
        ("local", preludes.LOCAL, local.LOCAL),
        ("asynchronous", preludes.BARE, local.BARE),
    )
    for name, program in programs.items()
}
#: Those that run once more with a service that answers.
ANSWERED = list(PROGRAMS)[::10]
#: Those that run once more with one that hangs: not where its one warning is seen on stdout.
HANGING = [name for name in PROGRAMS if not name.startswith("local: ")][::8]

#: Those that end without what Python does at the end, which is when it is compared.
NOT_COUNTED = frozenset(["process: an exit without cleaning up"])

# What differs from run to run.
_VARYING = (
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22,27}"), "ID"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "TOKEN"),
    # Of a recursion without end, how deep it went.
    (re.compile(r"repeated \d+ more times"), "repeated more times"),
    (re.compile(r"\(pid=\d+\)"), "(pid)"),
    (re.compile(r"/[^ ]*/worker-\w{8}/"), "FOLDER OF A WORKER/"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+"), "TIME"),
)
# What Dask itself says at one run and not at another, and the one warning of each kind that is ours
# to give: that the service, or the folder of the spool, cannot be had.
_MAY_DIFFER = re.compile(
    r"^(TIME - distributed\."
    r"|daskscope: cannot (reach the service|read the spool|write undelivered data)"
    r"|daskscope: no data can be spooled"
    r"|Future exception was never|future: <|Task exception was never)"
)
_WARNING = re.compile(r"\w*Warning: ")
# Dask's own complaint while no file can be opened, if it looks at its memory just then.
_NO_FILES = re.compile(
    r"^TIME - tornado\.application - ERROR - Exception in callback functools\.partial\(<bound "
    r"method WorkerMemoryManager\..*?^OSError: \[Errno 24\][^\n]*\n",
    re.MULTILINE | re.DOTALL,
)
_OUR_FRAME = re.compile(
    r'^  File "[^"]*[\\/]daskscope[\\/][^\n]*\n(?:(?:    [^\n]*\n))*', re.MULTILINE
)


@dataclass(frozen=True)
class Outcome:
    """What a program has printed and warned of, how often, and how it has ended."""

    code: int
    stdout: str
    stderr: list[tuple[str, int]]


class Runner:
    """Has programs run, in copies of a process that has Dask imported."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.programs.runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = threading.Lock()
        #: How programs ended without daskscope.
        self.without: dict[str, Outcome] = {}
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def run(self, *requests: dict[str, Any]) -> dict[str, int]:
        """Run them side by side. Return how each has ended, by its id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            for request in requests:
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            ended = [json.loads(self._process.stdout.readline()) for _ in requests]
        return {answer["id"]: answer["code"] for answer in ended}

    def stop(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    runner = Runner()
    yield runner
    runner.stop()


@pytest.fixture(scope="session")
def hanging() -> Iterator[str]:
    """The address of a service that takes connections, and then says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture(scope="session")
def answering() -> Iterator[str]:
    """The address of a service that is, to which no error of daskscope's own may be reported."""
    with Recorder() as recorder:
        yield recorder.url
        drops = [beat.drops for beat in recorder.beats]
    assert drops
    assert [one for one in drops if INTERNAL_ERROR in one] == []


def read_outputs(folder: Path) -> tuple[str, str]:
    """Return what a program has printed to stdout and to stderr, without what always differs."""
    texts = []
    for name in ("stdout", "stderr"):
        file = folder / name
        text = file.read_text(errors="backslashreplace") if file.exists() else ""
        text = text.replace(str(folder), "FOLDER")
        for pattern, stands_for in _VARYING:
            text = pattern.sub(stands_for, text)
        texts.append(text)
    return texts[0], texts[1]


def outcome(code: int, folder: Path) -> Outcome:
    return outcome_of(code, *read_outputs(folder))


def outcome_of(code: int, stdout: str, stderr: str) -> Outcome:
    lines = _OUR_FRAME.sub("", _NO_FILES.sub("", stderr)).splitlines()
    # In any order: several threads say something. A warning is given as often as without.
    told = Counter(line for line in lines if not _MAY_DIFFER.match(line))
    often = {line: told[line] if _WARNING.search(line) else 1 for line in told}
    return Outcome(code, stdout, sorted(often.items()))


def compare(runner: Runner, program: str, tmp_path: Path, endpoint: str) -> None:
    """Run a program without daskscope, and with it, and compare.

    What it computes with it is counted beside the plugin, which must have handed over the same.
    Without daskscope it runs once, whatever services it runs with.
    """
    differs = tmp_path / "differs"
    known = runner.without.get(program)
    folders = {ends: tmp_path / ends for ends in ("without", "with") if ends == "with" or not known}
    requests = []
    for which, folder in folders.items():
        folder.mkdir()
        file = folder / "program.py"
        file.write_text(PROGRAMS[program])
        environment = {
            "ENDPOINT": endpoint if which == "with" else "",
            "XDG_STATE_HOME": str(folder / "state"),
        }
        requests.append(
            {
                "id": which,
                "folder": str(folder),
                "program": str(file),
                "environment": environment,
                **({"differs": str(differs)} if which == "with" else {}),
            }
        )
    codes = runner.run(*requests)
    ended = {which: outcome(codes[which], folder) for which, folder in folders.items()}
    without = runner.without.setdefault(program, known or ended["without"])
    assert without.code != -signal.SIGKILL, "it does not end, not even without daskscope"
    assert without.code != preludes.NOT_AS_NAMED
    assert ended["with"] == without
    if program not in NOT_COUNTED:
        counted_preload.assert_equal(differs)


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_runs_as_without_daskscope(
    runner: Runner, refusing: str, program: str, tmp_path: Path
) -> None:
    compare(runner, program, tmp_path, refusing)


@pytest.mark.parametrize("program", ANSWERED)
def test_it_runs_as_without_daskscope_where_the_service_answers(
    runner: Runner, answering: str, program: str, tmp_path: Path
) -> None:
    compare(runner, program, tmp_path, answering)


@pytest.mark.parametrize("program", HANGING)
def test_it_runs_as_without_daskscope_where_the_service_hangs(
    runner: Runner, hanging: str, program: str, tmp_path: Path
) -> None:
    compare(runner, program, tmp_path, hanging)
