"""The command: ``./dev stack``."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, cast

import click

from tests.stack import build
from tests.stack.build import CannotBuild
from tests.stack.collector import Collector, into
from tests.stack.demo import Demo
from tests.stack.influxdb import DATABASE, SPANS_DATABASE, InfluxDB, Major
from tests.stack.part import DidNotStart, Part

_LOOK_SECONDS = 0.2
_DATABASES = {1: build.INFLUXDB1, 2: build.INFLUXDB2}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--influxdb",
    "major",
    type=click.Choice(["1", "2"]),
    default="1",
    show_default=True,
    help="The InfluxDB to run: 1 is 1.8, which takes Go to build; 2 is 2.9, which takes Rust too.",
)
@click.option(
    "--seconds", type=click.FloatRange(1), help="End after this time. Default: on Ctrl-C."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Write one line of JSON with all addresses and secrets to standard output once it runs; "
    "what is for people goes to standard error.",
)
@click.option(
    "--build-only",
    is_flag=True,
    help="Only build: this, and what tests run besides: both InfluxDBs, Prometheus, Jaeger.",
)
def main(major: str, seconds: float | None, as_json: bool, build_only: bool) -> None:
    """Run the real stack on this machine, with the demo's cluster working on it.

    It is InfluxDB, the OpenTelemetry collector with the files of collector_config, the daskscope
    service, and a Dask cluster that reports to both: all of it on free loopback ports, in a folder
    that is removed at the end.

    InfluxDB and the collector are built from source the first time: some minutes each, into the
    cache folder ($XDG_CACHE_HOME, or ~/.cache). It takes Go; InfluxDB 2 also takes Rust and a C
    compiler. Nothing is fetched but Go modules and crates.
    """

    def tell(line: str) -> None:
        click.echo(line, file=stream)
        stream.flush()

    stream: IO[str] = sys.stderr if as_json else sys.stdout
    # SIGINT too: a shell that starts it in the background has it ignored.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    try:
        if build_only:
            for program in build.PROGRAMS:
                tell(str(build.built(program, tell)))
            return
        chosen = cast(Major, int(major))
        influxd = build.built(_DATABASES[chosen], tell)
        otelcol = build.built(build.COLLECTOR, tell)
        _run(chosen, influxd, otelcol, seconds, as_json, stream)
    except (CannotBuild, DidNotStart) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        tell("daskscope stack: ended.")


def _run(
    major: Major,
    influxd: Path,
    otelcol: Path,
    seconds: float | None,
    as_json: bool,
    stream: IO[str],
) -> None:
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="daskscope-stack-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            click.echo(
                "daskscope stack: starting InfluxDB, the collector and the demo …", file=stream
            )
            database = stack.enter_context(InfluxDB(major, influxd, folder / "influxdb"))
            collector = stack.enter_context(
                Collector(
                    otelcol,
                    folder / "collector",
                    ["base.yaml", into(database)],
                    # All of it: who looks at a demo looks for what just ran.
                    {**database.for_collector, "TRACE_PERCENT": "100", "TRACE_WAIT": "2s"},
                )
            )
            environment = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "DASKSCOPE_INFLUXDB_URL": database.url,
                "DASKSCOPE_INFLUXDB_TOKEN": database.token,
                "DASKSCOPE_INFLUXDB_DATABASE": DATABASE,
            }
            demo = stack.enter_context(Demo(environment, stream))
            parts: dict[str, Part | Demo] = {
                "influxdb": database.part,
                "collector": collector.part,
                "demo": demo,
            }
            where = {
                "service": demo.ready["url"],
                "token": demo.ready["token"],
                "collector": collector.url,
                "collector_metrics": collector.telemetry_url,
                "influxdb": database.url,
                "influxdb_version": _DATABASES[major].version,
                "influxdb_token": database.token,
                "databases": [DATABASE, SPANS_DATABASE],
                "folder": str(folder),
                "pids": {name: part.pids for name, part in parts.items()},
            }
            if as_json:
                click.echo(json.dumps(where))
                sys.stdout.flush()
            _show(where, stream)
            watch(parts.values(), seconds)
            click.echo("daskscope stack: ending …", file=stream)
        finally:
            # A second Ctrl-C must not leave a process behind.
            for ending in (signal.SIGINT, signal.SIGTERM):
                signal.signal(ending, signal.SIG_IGN)


def _show(where: dict[str, Any], stream: IO[str]) -> None:
    query = (
        f"curl -H 'Authorization: Token {where['influxdb_token']}' -G '{where['influxdb']}/query'"
    )
    query += f" -d db={DATABASE} --data-urlencode 'q=SHOW MEASUREMENTS'"
    for line in (
        "",
        f"  service    {where['service']}  (the sign-in link stands above)",
        f"  collector  {where['collector']}  (OTLP over HTTP; its own metrics: "
        f"{where['collector_metrics']})",
        f"  InfluxDB   {where['influxdb']}  ({where['influxdb_version']}; databases "
        f"{' and '.join(where['databases'])})",
        f"             {query}",
        f"  logs       {where['folder']}",
        "",
    ):
        click.echo(line, file=stream)
    stream.flush()


def watch(parts: Iterable[Part | Demo], seconds: float | None) -> None:
    """Return after ``seconds``. Raises ClickException if a part ends before."""
    deadline = None if seconds is None else time.monotonic() + seconds
    pause = threading.Event()
    while deadline is None or time.monotonic() < deadline:
        pause.wait(_LOOK_SECONDS)
        for part in parts:
            if not part.runs:
                raise click.ClickException(
                    f"{part.name} ended, which it should not have; {part.last_words()}"
                )


if __name__ == "__main__":
    main(prog_name="./dev stack")
