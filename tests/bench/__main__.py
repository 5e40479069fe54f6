"""The command: ``./dev bench``."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import click

from tests.bench import exporter
from tests.bench.results import table


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("what", type=click.Choice(["all", "exporter"]), default="all")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=40,
    show_default=True,
    help="How often each variant has its turn. Below 20 the figures mean little.",
)
@click.option(
    "--tasks",
    type=click.IntRange(4),
    default=600,
    show_default=True,
    help="Trivial tasks that each variant runs in a round.",
)
@click.option(
    "--json",
    "record",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write all that was measured to this file, too.",
)
def bench(what: str, rounds: int, tasks: int, record: Path | None) -> None:
    """Measure what daskscope promises of its speed, beside the goal.

    \b
    exporter  CPU time of a scheduler with daskscope (metrics, traces, logs and heartbeats to a
              real service) against none, for trivial tasks; for comparison, a span per task

    Takes some five minutes as it is. Ratios compare rounds that ran side by side, so other work on
    the machine widens the quartiles but does not move the median much; figures of two machines do
    not compare. Results go to standard output, progress beside it.

    \b
    A quick look:
      ./dev bench exporter --rounds 8
    For the record:
      ./dev bench --json figures.json
    """
    # Clusters that are ended on purpose would say so.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    assert what in ("all", "exporter"), "there is one so far"
    figures, measured = exporter.measure(rounds, tasks, lambda line: click.echo(line, err=True))
    click.echo(f"{rounds} rounds of {tasks} tasks; ratios to no plugin in the same round")
    click.echo(table(figures))
    if record is not None:
        record.write_text(json.dumps({"exporter": measured}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    bench(prog_name="./dev bench")
