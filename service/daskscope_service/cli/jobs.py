"""``daskscope job``: merges, splits and names jobs, and undoes that."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from daskscope.errors import DaskscopeError
from daskscope.one_line import one_line

if TYPE_CHECKING:
    from daskscope.api_types import JobCorrection


@click.group("job")
def job_group() -> None:
    """Merge, split and name jobs, if the service is wrong about which runs are one job.

    \b
    The commands need a token of scopes read and admin; corrections needs read alone.
    For example, after a file was renamed:
      daskscope list jobs
      daskscope job merge 0f3c9ab17c55d0e2 77ab01c5c55d4e2a
    """


_yes = click.option("--yes", is_flag=True, help="Do it without asking.")


@job_group.command("merge")
@click.argument("job")
@click.argument("into")
@_yes
def merge(job: str, into: str, yes: bool) -> None:
    """Make the runs of JOB, and all that come, runs of the job INTO. Both are ids."""
    _correct(job, yes, merge_into=into)


@job_group.command("split")
@click.argument("job")
@click.option(
    "--by",
    type=click.Choice(["code", "shape"]),
    required=True,
    help="Make one job of all runs with the same code, or the same kinds of tasks, and user.",
)
@_yes
def split(job: str, by: str, yes: bool) -> None:
    """Make several jobs of JOB, an id."""
    _correct(job, yes, split_by=by)


@job_group.command("name")
@click.argument("job")
@click.argument("name")
@_yes
def name(job: str, name: str, yes: bool) -> None:
    """Call JOB, an id, by NAME on pages and in lists."""
    _correct(job, yes, name=name)


@job_group.command("corrections")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each.")
def corrections(as_json: bool) -> None:
    """List merges, splits and names of jobs, and who made them, newest first."""
    import daskscope.job_corrections

    try:
        rows: Any = daskscope.job_corrections.list_job_corrections()
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, default=datetime.isoformat))
        return
    click.echo(rows.table() if rows else "There are none.")


@job_group.command("undo")
@click.argument("id")
@_yes
def undo(id: str, yes: bool) -> None:
    """Undo the correction ID, which 'daskscope job corrections' lists.

    To undo a split ends the corrections of the jobs that it made, too.
    """
    import daskscope.job_corrections as corrections

    try:
        before = {one["id"]: one for one in corrections.list_job_corrections()}
        if id in before:  # else the service says that there is none
            click.echo(_in_words(before[id]))
            if not yes:
                click.confirm("Undo it?", abort=True)
        corrections.undo_job_correction(id)
        left = {one["id"] for one in corrections.list_job_corrections()}
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
    ended = len(before.keys() - left)
    if ended > 1:
        click.echo(f"{ended} corrections ended")
    click.echo("undone; the service gives the runs their jobs in the background")


def _in_words(correction: JobCorrection) -> str:
    did, to = {"merge": ("merged", " into job"), "split": ("split", " by")}.get(
        correction["kind"], ("named", "")
    )
    words = f"{correction['by']} {did} job {correction['job']}{to} {correction['value']}."
    if correction["kind"] == "split":
        words += " The corrections of the jobs that it made end, too."
    return one_line(words)


def _correct(job: str, yes: bool, **requested: str) -> None:
    import daskscope.job_corrections

    try:
        click.echo(daskscope.job_corrections.preview_job_correction(job, **requested))
        if not yes:
            click.confirm("Do it?", abort=True)
        made = daskscope.job_corrections.correct_job(job, **requested)
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"done; undo it with: daskscope job undo {one_line(str(made['id']))}")
