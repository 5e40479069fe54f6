"""Dask's own tests, without and with the plugin in every scheduler that they start.

``./dev matrix dask`` runs them from a checkout of dask/distributed. The plugin comes as users may
have it come: by Dask's setting ``distributed.scheduler.preload``, which each scheduler reads, those
inside of a test's process as well. What it sends goes to a server that takes all of it.

The independent count of our tests does not stand beside it: Dask's tests look at all plugins.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from tests.exporter.recorder import Recorder

_BYTECODE = Path(__file__).parents[1] / ".matrix" / "bytecode"

#: Seconds that Dask's tests of one file may take.
DEADLINE = 3_600

_SOCKETS = (
    "it counts open files while the scheduler lives, and the plugin's connections to the service, "
    "three after five workers came and went, are among them; they close with the scheduler"
)
_LEFT_OPEN = (
    "it leaves its scheduler without closing it, so that nobody closes its plugins, and the thread "
    "of a plugin counts as leaked"
)

#: Tests that see a plugin, whatever it is like, and by what. They run, and are reported.
SEEN = {
    "distributed/deploy/tests/test_spec_cluster.py::test_shutdown_scheduler_disabled": _LEFT_OPEN,
    "distributed/tests/test_nanny.py::test_num_fds": _SOCKETS,
    "distributed/tests/test_nanny.py::test_scheduler_file": _LEFT_OPEN,
    "distributed/tests/test_scheduler.py::test_file_descriptors_dont_leak": _SOCKETS,
    "distributed/tests/test_worker.py::test_worker_fds": _SOCKETS,
}

#: The tests of a run, by their names: what became of each.
Outcomes = dict[str, str]


def compare(checkout: Path, arguments: Sequence[str], again: int) -> bool:
    """Run Dask's tests both ways, and tell what differs. Return whether nothing does.

    ``arguments`` go to pytest; those that name files or tests of the checkout say which to run.
    What passes only without the plugin is run ``again`` so often, both ways: Dask has tests that
    fail at times. It differs if it always passes without, and with the plugin fails twice. Without
    a test that passes, or a cluster that reports, nothing was compared.
    """
    if not (checkout / "distributed" / "utils_test.py").is_file():
        raise click.BadParameter(
            f"{checkout} is no checkout of dask/distributed: it has no distributed/utils_test.py; "
            "make one with `git clone --branch VERSION https://github.com/dask/distributed`",
            param_hint="--checkout",
        )
    options = [it for it in arguments if not _names_tests(checkout, it)]
    chosen = [it for it in arguments if _names_tests(checkout, it)]
    totals: dict[str, Counter[str]] = {"without": Counter(), "with": Counter()}
    differing: list[str] = []
    clusters = errors = 0
    for tests in chosen or _files(checkout):
        with _Runs(checkout, options) as runs:
            without, with_plugin = runs.run([tests], plugin=False), runs.run([tests], plugin=True)
            totals["without"].update(without.values())
            totals["with"].update(with_plugin.values())
            click.echo(f"{tests}: without {_told(without)}; with the plugin {_told(with_plugin)}")
            for name in sorted(_passes_only_without(without, with_plugin)):
                if why := SEEN.get(f"{tests.partition('::')[0]}::{name}"):
                    click.echo(f"  {name}: failed with the plugin, as it must: {why}")
                    continue
                passed = _repeated(runs, tests, name, again)
                differs = passed["without"] == again and passed["with"] < again
                click.echo(
                    f"  {name}: failed with the plugin; again, it passed {passed['without']} times "
                    f"of {again} without, {passed['with']} with{': DIFFERS' if differs else ''}"
                )
                if differs:
                    differing.append(name)
            counted = runs.internal_errors()
            clusters += len(counted)
            errors += sum(counted.values())
            if any(counted.values()):
                click.echo(f"  the plugin counted {sum(counted.values())} errors of its own")
    for how, outcomes in totals.items():
        click.echo(f"{how:>8}: {_told(outcomes)}")
    click.echo(f"{clusters} clusters reported, with {errors} errors of the plugin's own")
    click.echo("\n  ".join([f"{len(differing)} tests differ", *differing]))
    return not differing and not errors and clusters > 0 and totals["without"]["passed"] > 0


def _names_tests(checkout: Path, argument: str) -> bool:
    return not argument.startswith("-") and (checkout / argument.partition("::")[0]).exists()


def _files(checkout: Path) -> Iterator[str]:
    for file in sorted(checkout.glob("distributed/**/test_*.py")):
        yield str(file.relative_to(checkout))


def _passes_only_without(without: Outcomes, with_plugin: Outcomes) -> set[str]:
    # One that is missing was not reached: the run broke off before.
    return {
        name
        for name, outcome in without.items()
        if outcome == "passed" and with_plugin.get(name) != "passed"
    }


def _repeated(runs: _Runs, tests: str, name: str, again: int) -> Counter[str]:
    passed: Counter[str] = Counter()
    test = f"{tests.partition('::')[0]}::{name}"
    for _ in range(again):
        for how, plugin in (("without", False), ("with", True)):
            passed[how] += runs.run([test], plugin=plugin).get(name) == "passed"
    return passed


def _told(outcomes: Mapping[str, str] | Counter[str]) -> str:
    counts = outcomes if isinstance(outcomes, Counter) else Counter(outcomes.values())
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "no test"


class _Runs:
    """Runs tests of a ``checkout``, and has a service for the plugin meanwhile."""

    def __init__(self, checkout: Path, options: Sequence[str]) -> None:
        self._checkout = checkout
        self._options = options
        self._service = Recorder()
        self._folder = Path(tempfile.mkdtemp(prefix="daskscope-matrix-"))

    def __enter__(self) -> _Runs:
        self._service.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._service.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, tests: Sequence[str], *, plugin: bool) -> Outcomes:
        """Run ``tests``, and return what became of each."""
        report = self._folder / "report.xml"
        report.unlink(missing_ok=True)
        # Marks of plugins that are not here are no error. The thread method of pytest-timeout ends
        # the process, and all tests that are to come.
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        pytest += ["-p", "no:asyncio", "-p", "no:legacypath", "-o", "addopts="]
        # These come for other tests of ours, and take three seconds to import.
        pytest += ["-p", "no:schemathesis", "-p", "no:anyio"]
        pytest += ["-W", "ignore::pytest.PytestUnknownMarkWarning", "-o", "timeout_method=signal"]
        told = self._folder / f"{'with' if plugin else 'without'}.log"
        with told.open("ab") as output:
            try:
                subprocess.run(
                    [*pytest, f"--junitxml={report}", *self._options, *tests],
                    cwd=self._checkout,
                    env=self._environment(plugin=plugin),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=DEADLINE,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                click.echo(f"  {' '.join(tests)} did not end within {DEADLINE} seconds")
        return dict(_read(report)) if report.exists() else {}

    def internal_errors(self) -> dict[str, int]:
        """Return how many errors of its own the plugin counted, by cluster."""
        counted: dict[str, int] = {}
        for beat in self._service.beats:
            errors = (beat.drops or {}).get("internal error", 0)
            counted[beat.cluster.id] = max(counted.get(beat.cluster.id, 0), errors)
        return counted

    def _environment(self, *, plugin: bool) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DASK_", "OTEL_")) and name != "PYTHONDONTWRITEBYTECODE"
        }
        kept |= {
            # The checkout's code goes before what is installed, also in processes of the tests.
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(self._checkout), os.environ.get("PYTHONPATH")))
            ),
            # Not into the checkout; and no process of the tests compiles all of Dask anew.
            "PYTHONPYCACHEPREFIX": str(_BYTECODE),
            "XDG_STATE_HOME": str(self._folder / "state"),
        }
        if not plugin:
            return kept
        return kept | {
            "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "daskscope",
            "DASK_DASKSCOPE__ENDPOINT": self._service.url,
            "DASK_DASKSCOPE__TOKEN": "dsk_of_dasks_own_tests",
            "DASK_DASKSCOPE__INTERVAL": "1s",
        }


def _read(report: Path) -> Iterator[tuple[str, str]]:
    """Return what became of each test: its name, within its file, and one word."""
    for case in ET.parse(report).getroot().iter("testcase"):
        # The module, and the classes if there are any: pytest writes dots between them.
        module, name = case.get("classname", ""), case.get("name", "")
        classes = [part for part in module.split(".") if part.startswith("Test")]
        found = {child.tag for child in case}
        outcome = next((it for it in ("error", "failure", "skipped") if it in found), "passed")
        yield "::".join([*classes, name]), outcome
