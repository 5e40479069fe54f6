"""Builds the collector, InfluxDB, Prometheus and Jaeger from source, once, into a cache outside of
the checkout.

Only package registries are asked: Go's module proxy and, for InfluxDB 2, Rust's crates. A build is
known by all that it is made of, so a changed version or manifest is built anew. Two that want the
same build at once wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MANIFEST = Path(__file__).parents[2] / "collector_config" / "builder.yaml"

#: Seconds between two signs of life where the output is no terminal; a build takes minutes.
_SIGN_OF_LIFE = 20.0
_LAST_LINES = 30

Tell = Callable[[str], None]


class CannotBuild(Exception):
    """A compiler is missing, or the build failed; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is built. ``compilers`` are the commands that it takes."""

    name: str
    version: str
    compilers: tuple[str, ...]
    ingredients: str
    recipe: Callable[[_Workshop], Path]


class _Workshop:
    """A folder in which one program is built; its commands tell that they are alive."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self.folder = folder
        self._tell = tell

    def run(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Run ``command`` and return what it wrote to standard output.

        Raises
        ------
        CannotBuild
            It failed. The message has the last lines of what it said.
        """
        # No compiler is fetched that is not here; and the machine stays usable meanwhile.
        variables = {"GOTOOLCHAIN": "local", "GOBIN": str(self.folder / "bin"), "GOFLAGS": ""}
        journal = self.folder / "log"
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as output,
            journal.open("a", encoding="utf-8") as log,
        ):
            process = subprocess.Popen(
                ["nice", *map(str, command)],
                cwd=cwd or self.folder,
                env=os.environ | variables | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
            )
            try:
                with _signs_of_life(self._tell, journal):
                    process.wait()
            finally:
                process.kill()
                process.wait()
            output.seek(0)
            written = output.read()
        if process.returncode:
            said = (journal.read_text(encoding="utf-8") + written).splitlines()
            raise CannotBuild(
                f"'{' '.join(map(str, command))}' failed:\n" + "\n".join(said[-_LAST_LINES:])
            )
        return written


def cache_folder() -> Path:
    """Return where builds are kept: ``daskscope/stack`` in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "daskscope" / "stack"


def is_built(program: Program) -> bool:
    """Return whether ``program`` is in the cache."""
    return _place(program).exists()


def missing_compilers(program: Program) -> list[str]:
    """Return what ``program`` takes and is not installed; nothing if it is built already."""
    if is_built(program):
        return []
    return [name for name in program.compilers if shutil.which(name) is None]


def built(program: Program, tell: Tell) -> Path:
    """Return the executable of ``program``, which is built if it is not in the cache.

    Raises
    ------
    CannotBuild
        A compiler is missing, or the build failed.
    """
    place = _place(program)
    if place.exists():
        return place
    if missing := missing_compilers(program):
        raise CannotBuild(
            f"{program.name} {program.version} is built from source, and {' and '.join(missing)} "
            "is not installed: https://go.dev/dl for go, https://rustup.rs for cargo"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"{program.name} {program.version}: another process builds it, waiting …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _build(program, place, tell)
    return place


def _build(program: Program, place: Path, tell: Tell) -> None:
    began = time.monotonic()
    tell(f"{program.name} {program.version}: building it (once; some minutes) …")
    # Beside its place, so that it can be moved there in one step.
    with tempfile.TemporaryDirectory(prefix="build-", dir=place.parent) as folder:
        made = program.recipe(_Workshop(Path(folder), tell))
        os.replace(made, place)
    tell(f"{program.name} {program.version}: built in {time.monotonic() - began:.0f} s: {place}")


def _place(program: Program) -> Path:
    parts = (program.name, program.version, program.ingredients, platform.platform(terse=True))
    key = hashlib.sha256("\n".join((*parts, platform.machine())).encode()).hexdigest()[:12]
    return cache_folder() / f"{program.name}-{program.version}-{key}"


@contextmanager
def _signs_of_life(tell: Tell, log: Path) -> Iterator[None]:
    """Tell now and then how much was compiled: one line of the log is one package."""
    over = threading.Event()

    def watch() -> None:
        began = time.monotonic()
        while not over.wait(_SIGN_OF_LIFE):
            lines = log.read_text(encoding="utf-8").splitlines()
            last = lines[-1][:60] if lines else "starting"
            tell(f"  {time.monotonic() - began:.0f} s, {len(lines)} steps, last: {last}")

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


# --- recipes --------------------------------------------------------------------------------------

_BUILDER = "go.opentelemetry.io/collector/cmd/builder@v0.150.0"
_PKG_CONFIG = "github.com/influxdata/pkg-config@v0.3.0"


def _collector(shop: _Workshop) -> Path:
    shop.run(["go", "install", "-v", _BUILDER])
    manifest = shop.folder / "builder.yaml"
    shutil.copyfile(MANIFEST, manifest)
    # The builder makes sources; compiled here, it tells package by package.
    shop.run([shop.folder / "bin" / "builder", "--config", manifest, "--skip-compilation"])
    made = shop.folder / "otelcol"
    options = ("-v", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", made)
    shop.run(["go", "build", *options, "."], cwd=shop.folder / "_build")
    return made


def _influxdb1(shop: _Workshop) -> Path:
    package = f"github.com/influxdata/influxdb/cmd/influxd@v{INFLUXDB1.version}"
    shop.run(["go", "install", "-v", "-ldflags", f"-X main.version={INFLUXDB1.version}", package])
    return shop.folder / "bin" / "influxd"


def _influxdb2(shop: _Workshop) -> Path:
    shop.run(["go", "install", "-v", _PKG_CONFIG])
    module = f"github.com/influxdata/influxdb/v2@v{INFLUXDB2.version}"
    found = json.loads(shop.run(["go", "mod", "download", "-json", module]))
    sources = shop.folder / "sources"  # the module cache cannot be written, and the build writes
    shutil.copytree(found["Dir"], sources)
    for folder, _, _ in os.walk(sources):
        Path(folder).chmod(0o755)
    environment = {"PKG_CONFIG": str(shop.folder / "bin" / "pkg-config")}
    if toolchain := _rust_toolchain():
        # Else a file of Flux asks for one that is not installed.
        environment["RUSTUP_TOOLCHAIN"] = toolchain
    made = shop.folder / "influxd"
    flags = f"-ldflags=-s -w -X main.version={INFLUXDB2.version}"
    options = ("-v", "-tags=sqlite_foreign_keys,sqlite_json", flags, "-o", made)
    shop.run(["go", "build", *options, "./cmd/influxd"], cwd=sources, environment=environment)
    return made


def _prometheus(shop: _Workshop) -> Path:
    # Without what finds targets in clouds, which is most of it: nothing is scraped here.
    package = f"github.com/prometheus/prometheus/cmd/prometheus@v{PROMETHEUS.version}"
    shop.run(["go", "install", "-v", "-tags=remove_all_sd", "-ldflags=-s -w", package])
    return shop.folder / "bin" / "prometheus"


def _jaeger(shop: _Workshop) -> Path:
    module = f"github.com/jaegertracing/jaeger@v{JAEGER.version}"
    found = json.loads(shop.run(["go", "mod", "download", "-json", module]))
    # It replaces modules, which Go heeds in a folder only.
    made = shop.folder / "jaeger"
    options = ("-v", "-trimpath", "-ldflags=-s -w", "-o", made)
    shop.run(["go", "build", *options, "./cmd/all-in-one"], cwd=Path(found["Dir"]))
    return made


def _rust_toolchain() -> str:
    """Return the toolchain that rustup uses by itself, "" without rustup."""
    if shutil.which("rustup") is None:
        return ""
    told = subprocess.run(
        ["rustup", "show", "active-toolchain"], capture_output=True, text=True, cwd="/", check=False
    )
    return told.stdout.split()[0] if told.stdout else ""


COLLECTOR = Program(
    "otelcol", "0.150.0", ("go",), MANIFEST.read_text(encoding="utf-8") + _BUILDER, _collector
)
INFLUXDB1 = Program("influxd", "1.8.10", ("go",), "", _influxdb1)
# Flux, its query language, has a part in Rust, which a C compiler's linker joins to the rest.
INFLUXDB2 = Program("influxd", "2.9.1", ("go", "cargo", "cc"), _PKG_CONFIG, _influxdb2)
# Its modules count from 0 what it counts from 3.
PROMETHEUS = Program("prometheus", "0.316.0", ("go",), "", _prometheus)
# The last one whose modules Go can find by a version: those of 2 are named as those of 1.
JAEGER = Program("jaeger", "1.76.0", ("go",), "", _jaeger)

PROGRAMS = (INFLUXDB1, COLLECTOR, INFLUXDB2, PROMETHEUS, JAEGER)
