"""The command: ``./dev bench``."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from tests.bench import (
    dribble,
    exporter,
    first_data,
    insight,
    page_tables,
    pages,
    scrubbing,
    service,
    service_tables,
    snapshot,
    soak,
    stack,
    submitting,
)
from tests.bench.results import as_data, of_machine, table


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument(
    "what",
    type=click.Choice(["all", "exporter", "soak", "service", "pages", "stack", "insight"]),
    default="all",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=40,
    show_default=True,
    help="How much is measured. Of the exporter's each ten are a sitting: 128 rounds of large "
    "graphs, in nine minutes. Below 20 the figures mean little.",
)
@click.option(
    "--tasks",
    type=click.IntRange(4),
    default=600,
    show_default=True,
    help="Trivial tasks of each large graph of the exporter's: of futures and of a collection in "
    "turn.",
)
@click.option(
    "--soak-tasks",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Tasks of the soak.",
)
@click.option(
    "--scale",
    type=click.FloatRange(0.02, 10),
    default=1.0,
    show_default=True,
    help="Of the service's stock: 1 is 10,000 clusters, beside a tenth of them.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Of pages: leave the filled SQLite databases in the user's cache folder, and use those "
    "that a run of the same half day has left there.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=5.0,
    show_default=True,
    help="How long the service is under load in each of its rounds, which are a quarter of "
    "--rounds.",
)
@click.option(
    "--json",
    "record",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write all that was measured to this file, too.",
)
def bench(
    what: str,
    rounds: int,
    tasks: int,
    soak_tasks: int,
    scale: float,
    keep: bool,
    seconds: float,
    record: Path | None,
) -> None:
    """Measure what daskscope promises of its speed, beside the goal.

    \b
    exporter  CPU time and memory of a scheduler with daskscope (metrics, traces, logs and
              heartbeats to a real service) against none, and CPU time of its worker and client, for
              trivial tasks, in large graphs and submitted one by one; for comparison, a span per
              task; how soon there is data, how large the beats are, how long a goodbye takes;
              for how long a beat holds up the event loop that has 1,000 workers; what submit()
              costs a client that has registered against one that has not; and how the time to
              scrub a text grows with its length
    soak      memory of a scheduler with daskscope over a million tasks, with the service killed
              for half of them; and whether all that was done is stored at the end
    service   heartbeats (also against a bare prototype) and metric points per second that are
              committed before they are acknowledged, with 10,000 clusters, a million computations
              and ten million points, and with a tenth of that; on SQLite and, where its server is
              installed, on PostgreSQL. As tables in Markdown. Then how long pages take while 200
              connections send a byte a second, stack, where it has been built, and the pages
    pages     of every page, and of every list of the API: how long it takes, how it grows with ten
              times the data, how large it is, and what a first visit fetches; likewise
    stack     metric points per second that are stored by the service, and by the real collector and
              InfluxDB 1.8, which are built the first time: that takes Go
    insight   workloads with one known cause each, and healthy ones, run now: whether the service's
              first sentence names the cause and nothing else, and whether its numbers are those of
              a second, independent count; some 30 seconds each

    The first takes some 45 minutes as it is, the next two half an hour each, and the third five
    gigabytes of the disk, too.
    Ratios compare what ran side by side, so other work on the machine widens the quartiles but does
    not move the median much; figures of two machines do not compare. Results go to standard output,
    progress beside it.

    \b
    A quick look:
      ./dev bench exporter --rounds 8
      ./dev bench soak --soak-tasks 50000
      ./dev bench service --scale 0.05 --rounds 8 --seconds 2
      ./dev bench pages --scale 0.1 --rounds 20
      ./dev bench insight
    For the record:
      ./dev bench --json figures.json
    """
    # Clusters that are ended on purpose would say so; who calls this from a process of his own
    # hears them again afterwards.
    logger = logging.getLogger("distributed")
    click.get_current_context().call_on_close(partial(logger.setLevel, logger.level))
    logger.setLevel(logging.CRITICAL)
    measured: dict[str, Any] = {}
    if what in ("all", "exporter"):
        figures, measured["exporter"] = exporter.measure(
            max(rounds // 10, 1), min(rounds, exporter.ROUNDS), tasks, _tell
        )
        number = sum(map(len, measured["exporter"]["seconds"]))
        click.echo(
            f"{number} rounds, each of a graph of {tasks:,} tasks; ratios to no plugin in the "
            "same round, and overall, which has the beats in it"
        )
        figures += first_data.measure(rounds=min(rounds, 5))
        _tell("beats of 1,000 workers …")
        figures += snapshot.measure(rounds=min(2 * rounds, 40))
        _tell("a client's submit(), and scrubbing …")
        figures += submitting.measure(rounds, min(tasks, submitting.TASKS))
        figures += scrubbing.measure(max(rounds // 8, 1))
        measured["exporter"]["figures"] = as_data(figures)
        click.echo(table(figures))
    if what in ("all", "soak"):
        figures, measured["soak"] = soak.measure(soak_tasks, _tell)
        click.echo(f"{soak_tasks:,} tasks, half of them while the service is gone")
        click.echo(table(figures))
    if what in ("all", "service"):
        of_service: service_tables.BySize = {}
        clusters = round(10_000 * scale)
        for number in (clusters // 10, clusters):
            of_service[number] = service.measure(
                number, rounds=max(rounds // 4, 1), seconds=seconds, tell=_tell
            )
        measured["service"] = of_machine() | {"by clusters": of_service}
        click.echo(f"{service_tables.overview(of_service)}\n")
        figures = dribble.measure(max(rounds // 4, 1), max(rounds // 2, 1), _tell)
        measured["dribble"] = {"figures": as_data(figures)}
        click.echo(f"{table(figures)}\n")
        if stack.is_here():
            _, measured["stack"] = stack.measure(max(rounds // 4, 1), seconds, _tell)
            click.echo(f"{service_tables.points(measured['stack']['points per second'])}\n")
        else:
            click.echo("Not measured: points through the collector and InfluxDB, which are not")
            click.echo("built here. ./dev stack --build-only does.\n")
    if what in ("all", "service", "pages"):
        of_pages = pages.measure(
            round(10_000 * scale), asks=rounds, keep=_cache_folder() if keep else None, tell=_tell
        )
        measured["pages"] = of_machine() | {"by database": of_pages}
        click.echo(f"{page_tables.summary(of_pages)}\n")
        click.echo(page_tables.pages(of_pages))
    if what == "stack":
        figures, measured["stack"] = stack.measure(max(rounds // 4, 1), seconds, _tell)
        measured["stack"] |= of_machine() | {"figures": as_data(figures)}
        click.echo(table(figures))
    if what == "insight":
        judged = insight.measure(_tell)
        measured["insight"] = of_machine() | {"runs": [asdict(one) for one in judged]}
        click.echo(insight.table(judged))
    if record is not None:
        record.write_text(json.dumps(measured, indent=1, default=asdict) + "\n", encoding="utf-8")


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "daskscope", "bench")


def _tell(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    # Whoever ends it wants all that it has started to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    bench(prog_name="./dev bench")
