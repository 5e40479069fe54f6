"""The command ``./dev matrix``: the exporter's tests at both ends of what it supports; Dask's own.

The oldest end is the least version of each of the exporter's dependencies, as ``pyproject.toml``
declares them, on the oldest supported Python that this machine has; the newest is what
``requirements.lock`` holds, on the newest. Each gets an environment of its own below ``.matrix``,
made once and again when either file changes. Dask's own tests run in ``.venv``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from tests.dask_suite import compare

ROOT = Path(__file__).parents[1]
OLDEST, NEWEST = "oldest", "newest"
DASK = "dask"

# What the pinned ones bring along has to be as old as they are.
_OF_THEIR_TIME = ("dask", "distributed", "importlib-metadata", "opentelemetry", "protobuf")

_PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?P<marker> ;[^\\]+)?", re.MULTILINE)
_DECLARED = re.compile(r"^(?P<name>[\w.-]+)(?:\[.*\])?>=(?P<version>[\w.]+)$")


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True}
)
@click.argument("end", type=click.Choice(["all", OLDEST, NEWEST, DASK]), default="all")
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--list", "only_list", is_flag=True, help="Say what would run, and end.")
@click.option(
    "--checkout",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Of dask: a clone of dask/distributed, at a version that goes with the dask of .venv.",
)
@click.option(
    "--again",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Of dask: how often to run again, both ways, what passes only without the plugin.",
)
def matrix(
    end: str, pytest_arguments: tuple[str, ...], only_list: bool, checkout: Path | None, again: int
) -> None:
    """Run the exporter's tests with the oldest and the newest dependencies that it supports.

    Each on the oldest and the newest supported Python that is found here. These are the tests that
    touch what Dask and OpenTelemetry may change (marked ``contract``); -m "" runs all. What follows
    the END goes to pytest.

    \b
      ./dev matrix
      ./dev matrix oldest -k spool -m ""

    With "dask" run Dask's own tests instead, a file at a time: first without the plugin, then with
    the plugin in every scheduler that they start. It fails if a test passes only without, or if the
    plugin counts an error of its own. All of them take hours; name files, tests and options of
    pytest to run some.

    \b
      git clone --branch 2026.7.1 https://github.com/dask/distributed
      ./dev matrix dask --checkout distributed
      ./dev matrix dask --checkout distributed distributed/tests/test_spans.py -k collections
    """
    if end == DASK:
        if checkout is None:
            raise click.UsageError(
                "'dask' runs the tests of a checkout: name it with --checkout PATH, a clone of "
                "https://github.com/dask/distributed"
            )
        if not compare(checkout, pytest_arguments, again):
            raise SystemExit("matrix: Dask's own tests do not pass with the plugin as without")
        return
    pythons = find_pythons()
    failed = []
    for name, (version, python), pins in (
        (OLDEST, pythons[0], floor()),
        (NEWEST, pythons[-1], {}),
    ):
        if end not in ("all", name):
            continue
        told = ", ".join(f"{pinned} {at}" for pinned, at in pins.items()) or "the lock's versions"
        click.echo(f"== {name}: Python {version[0]}.{version[1]}, {told}")
        if not only_list and not run_tests(environment(name, python, pins), pytest_arguments):
            failed.append(name)
    if failed:
        raise SystemExit(f"matrix: the tests failed with the {' and the '.join(failed)}")


def find_pythons() -> list[tuple[tuple[int, int], str]]:
    """Return (version, path) of the supported Pythons on this machine, the oldest first."""
    found: dict[tuple[int, int], str] = {}
    for candidate in _candidates():
        try:
            told = subprocess.run(
                [candidate, "-c", "import sys, venv; print(*sys.version_info[:2])"],
                capture_output=True,
                text=True,
                check=True,
                timeout=30,
            ).stdout.split()
        except (OSError, subprocess.SubprocessError):
            continue  # a shim of a version manager, or one without venv
        version = (int(told[0]), int(told[1]))
        if version >= _oldest_python():
            found.setdefault(version, candidate)
    return sorted(found.items())


def _candidates() -> Iterator[str]:
    yield sys.executable
    for minor in range(_oldest_python()[1], 20):
        path = shutil.which(f"python3.{minor}")
        if path:
            yield path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob("versions/3.*/bin/python")))


def _oldest_python() -> tuple[int, int]:
    major, minor = _project()["requires-python"].removeprefix(">=").split(".")
    return int(major), int(minor)


def floor() -> dict[str, str]:
    """Return the least version of each of the exporter's dependencies, its extra ``grpc`` too."""
    project = _project()
    pins = {}
    for line in [*project["dependencies"], *project["optional-dependencies"]["grpc"]]:
        declared = _DECLARED.match(line)
        if declared is None:
            raise SystemExit(f"pyproject.toml: {line!r} declares no least version: name>=version")
        pins[declared["name"]] = _release(declared["version"])
    return pins


def _release(version: str) -> str:
    # 1.40 means 1.40.0: pip takes the two for equal, people who read the line need not know it.
    return version if version.count(".") >= 2 else f"{version}.0"


def environment(end: str, python: str, pins: dict[str, str]) -> Path:
    """Return the interpreter of an environment with ``pins`` and the lock's other versions."""
    folder = ROOT / ".matrix" / end
    ours = folder / "bin" / "python"
    stamp = hashlib.sha256(
        b"".join((ROOT / name).read_bytes() for name in ("requirements.lock", "pyproject.toml"))
        + repr((python, pins)).encode()
    ).hexdigest()
    installed = folder / "installed"
    if installed.exists() and installed.read_text() == stamp:
        return ours
    print(f"matrix: setting up {folder.relative_to(ROOT)} (once) …", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    folder.joinpath("constraints.txt").write_text("\n".join(_constraints(pins)) + "\n")
    pip = [str(ours), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    project = ["--editable", f"{ROOT}[service,demo,grpc]"]
    constrained = ["--constraint", str(folder / "constraints.txt")]
    subprocess.run([*pip, *constrained, *project, *_tools()], check=True, cwd=folder)
    installed.write_text(stamp)
    return ours


def _tools() -> list[str]:
    needed = ("pytest", "hypothesis", "trustme")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    lines = (line for line in declared if isinstance(line, str))  # not groups that it includes
    return [line for line in lines if line.startswith(needed)]


def _constraints(pins: dict[str, str]) -> Iterator[str]:
    for name, version in pins.items():
        yield f"{name}=={version}"
    for pin in _PIN.finditer((ROOT / "requirements.lock").read_text()):
        if pin["name"] not in pins and not (pins and pin["name"].startswith(_OF_THEIR_TIME)):
            yield f"{pin['name']}=={pin['version']}{(pin['marker'] or '').rstrip()}"


def run_tests(python: Path, arguments: Sequence[str]) -> bool:
    """Run the exporter's tests; return whether they passed."""
    # As ``./dev test`` does it, side by side, and those that touch what others make.
    told = (
        *("--numprocesses", "auto", "--maxprocesses", "4", "--dist", "loadscope"),
        *("--no-loadscope-reorder", "--max-worker-restart", "0", "-m", "contract"),
        *arguments,
    )
    # What failed here is not what failed with ``./dev test``.
    cache = python.parents[1] / "pytest_cache"
    where = ("tests/exporter", "tests/service/test_python_versions.py")
    tests = [str(python), "-m", "pytest", "-o", f"cache_dir={cache}", *where, *told]
    return subprocess.run(tests, cwd=ROOT, check=False).returncode == 0


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


if __name__ == "__main__":
    matrix(prog_name="./dev matrix")
