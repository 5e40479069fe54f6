"""``daskscope export`` and ``daskscope delete``: data of a user, a cluster or a workspace."""

from __future__ import annotations

import errno
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from daskscope.one_line import one_line
from daskscope_service.cli.options import check_workspace, database, extra, settings_options

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from daskscope_service.db.data_ownership import Whose
    from daskscope_service.export.files import Sink
    from daskscope_service.retention.throttle import Throttle

#: Seconds between two lines of progress.
_SAY_EVERY = 2.0
#: Ids that an error names.
_IDS_SHOWN = 10


class _Moment(click.ParamType[float]):
    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return ``value`` in seconds since the epoch."""
        if isinstance(value, float):
            return value
        try:
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            pass
        from dask.utils import parse_timedelta

        try:
            return time.time() - float(parse_timedelta(value))
        except (ValueError, KeyError):
            self.fail(
                f'{value!r} is not a time; for example 2026-01-31, or "7 days" for 7 days ago'
            )


@click.command("export")
@click.argument("directory")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "parquet"]),
    default="jsonl",
    show_default=True,
    help="JSON lines, or Parquet, which needs the extra 'parquet' of daskscope.",
)
@click.option("--only", multiple=True, help="Only this table. Repeat it for several.")
@click.option(
    "--since",
    type=_Moment(),
    help='Only data from this time on: 2026-01-31, or "7 days" for 7 days ago.',
)
@click.option("--until", type=_Moment(), help="Only data from before this time.")
@click.option("--cluster", help="Only data of the cluster with this name or id.")
@click.option("--user", help="Only data of this user, by the name in clusters and computations.")
@click.option("--workspace", default="default", show_default=True)
@settings_options("data_dir", "database_url")
def export(
    directory: str,
    form: str,
    only: tuple[str, ...],
    since: float | None,
    until: float | None,
    cluster: str | None,
    user: str | None,
    workspace: str,
    **options: Any,
) -> None:
    """Write the data of a workspace to files in DIRECTORY, one for each table.

    \b
    For example:
      daskscope export backup-of-may --since 2026-05-01 --until 2026-06-01
      daskscope export ada --user ada --format parquet
      daskscope export - --only computation --since "7 days" | jq .status

    \b
    The tables:
      activity  cluster  code  command  computation  decision  event  failure  finding
      group_run  log_record  mute  notice  profile  series  shutdown  span  task_group
      task_stream  usage  worker_loss

    "-" writes one table to standard output. The service may keep running. The files hold
    everything that clusters sent, including users' code; only their owner can read them.
    """
    with extra("service"):
        from daskscope_service.db.data_ownership import Whose, some_of
        from daskscope_service.export.rows import NAMES, Choice, blank_unreadable, columns, parts
    names = list(dict.fromkeys(only)) or list(NAMES)
    for name in names:
        if name not in NAMES:
            raise click.UsageError(
                f"there is no table {name!r}; the tables are: {', '.join(NAMES)}"
            )
    if directory == "-" and (form != "jsonl" or len(names) != 1):
        raise click.UsageError(
            "standard output holds one table, as JSON lines: choose it with --only NAME"
        )
    folder = Path(directory)
    for name in names:
        if directory != "-" and (folder / f"{name}.{form}").exists():
            raise click.UsageError(f"{folder} already has a {name}.{form}; name another folder")
    since, until = since or 0.0, float("inf") if until is None else until
    if since >= until:
        raise click.UsageError("--since is not before --until, so no data would be exported")
    with database(options) as (_, engine), _writing_to(directory):
        check_workspace(engine, workspace)
        whose = Whose(workspace, cluster=_cluster_id(engine, workspace, cluster), user=user)
        choice = Choice(whose, since, until)
        if (cluster or user) is not None and not some_of(engine, whose):
            raise click.ClickException(_nothing_of(engine, whose))
        if directory != "-":
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in names:
            part = folder / f"{name}.{form}.part"
            with extra("parquet"):
                sink = _sink(part, form, None if directory == "-" else columns(name))
            rows, said = 0, time.monotonic()
            unreadable: Counter[str] = Counter()
            for some in parts(engine, name, choice):
                unreadable.update(blank_unreadable(some))
                sink.write(some)
                rows += len(some)
                if time.monotonic() - said > _SAY_EVERY:
                    said = time.monotonic()
                    click.echo(f"{name}: {rows:,} rows so far", err=True)
            sink.close()
            if directory != "-":
                part.rename(folder / f"{name}.{form}")
            click.echo(f"{name}: {rows:,} rows", err=True)
            for why, count in unreadable.items():
                click.echo(f"{name}: {count:,} values are null, because each is {why}", err=True)


@contextmanager
def _writing_to(directory: str) -> Iterator[None]:
    # For a full disk, or a folder that is a file. A closed pipe is not an error of ours.
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise click.ClickException(f"cannot write to {directory}: {error}") from error


def _sink(part: Path, form: str, columns: dict[str, Any] | None) -> Sink:
    from daskscope_service.export import files

    if columns is None:
        return files.JsonLines(_Unclosed(sys.stdout))  # type: ignore[arg-type]
    files.private(part)
    if form == "parquet":
        return files.Parquet(part, columns)
    return files.JsonLines(part.open("w", encoding="utf-8"))


class _Unclosed:
    # Standard output stays open.
    def __init__(self, file: IO[str]) -> None:
        self.write, self.flush = file.write, file.flush

    def close(self) -> None:
        """Do nothing."""


@click.command("delete")
@click.option("--cluster", help="The name or the id of a cluster: deletes everything that it sent.")
@click.option("--user", help="A user, by the name in clusters and computations.")
@click.option("--workspace", default="default", show_default=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@settings_options("data_dir", "database_url")
def delete(
    cluster: str | None, user: str | None, workspace: str, yes: bool, **options: Any
) -> None:
    """Permanently delete the data of a cluster, or of a user, in a workspace.

    \b
    For example:
      daskscope delete --user ada --workspace research
      daskscope delete --cluster Scheduler-1f0c… --yes

    A user's data are the clusters that they started, with everything in them, and their
    computations on other people's clusters, with everything that refers to these. The command
    shows how much that is and asks first. The service may keep running. If the command is
    interrupted, run it again.

    A cluster that still runs comes back with the data that it sends later: stop it first. Backups
    keep their data. The audit log records whose data was deleted, and when.
    """
    if (cluster is None) == (user is None):
        raise click.UsageError("choose whose data to delete: --cluster ID or --user NAME")
    with database(options) as (settings, engine):
        from sqlalchemy.exc import DBAPIError

        from daskscope_service.db.data_ownership import Whose
        from daskscope_service.retention import deletion
        from daskscope_service.retention.code import remove_unused_code
        from daskscope_service.retention.throttle import Throttle

        check_workspace(engine, workspace)
        cluster = _cluster_id(engine, workspace, cluster)
        whose = Whose(workspace, cluster=cluster, user=user)
        pace = Throttle(0.5)
        counts = deletion.count(engine, whose)
        if not counts:
            # An interrupted deletion may have left this.
            for _ in pace.run(remove_unused_code(engine, workspace, pace)):
                pass
            _give_back(engine, pace)
            raise click.ClickException(_nothing_of(engine, whose))
        of = f"cluster {cluster}" if user is None else f"user {user}"
        click.echo(f"{of} has in the workspace {workspace}:")
        for name, rows in sorted(counts.items()):
            click.echo(f"  {rows:>12,} {name}")
        running = deletion.running(engine, whose, time.time() - settings.silent_after)
        if running:
            click.echo(
                "Still running, so their data comes back with their next heartbeat: "
                f"{one_line(', '.join(running))}"
            )
        if settings.influxdb_url:
            click.echo(f"Not deleted: the data in the InfluxDB {settings.influxdb_url}.")
        if not yes:
            click.confirm("Delete all of this permanently?", abort=True)
        total = sum(counts.values())
        deletion.note(engine, whose, f"{of}: {total} rows")
        gone: Counter[str] = Counter()
        said = time.monotonic()
        try:
            for step in pace.run(deletion.delete(engine, whose, pace)):
                gone[step.table] += step.rows
                if time.monotonic() - said > _SAY_EVERY:
                    said = time.monotonic()
                    click.echo(f"{gone.total():,} of {total:,} rows so far", err=True)
        except DBAPIError as error:
            # PostgreSQL also raises this if a running cluster writes the same rows.
            raise click.ClickException(
                f"{gone.total():,} rows were deleted, then the database stopped: "
                f"{error.orig}; run the command again"
            ) from error
        click.echo(f"Deleted {gone.total():,} rows.")
        _give_back(engine, pace)


def _give_back(engine: Engine, pace: Throttle) -> None:
    from daskscope_service.db.space import empty_log
    from daskscope_service.retention.rounds import give_back_room

    for _ in pace.run(give_back_room(engine)):
        pass
    if not empty_log(engine):
        click.echo(
            "SQLite's log (the file that ends in -wal) was in use and still holds some of "
            "the data, until the service overwrites it or stops."
        )


def _cluster_id(engine: Engine, workspace: str, cluster: str | None) -> str | None:
    """Return the id of the cluster with this id or name. Raises a usage error for several."""
    from daskscope_service.db.scope import Scope

    if cluster is None:
        return None
    with engine.connect() as connection:
        ids = Scope(connection, workspace, time.time(), silent_after=0.0).called(cluster)
    if len(ids) > 1:
        raise click.UsageError(
            f"several clusters in the workspace {workspace} are called {cluster!r}; choose one by "
            f"its id, the newest first: {one_line(', '.join(ids[:_IDS_SHOWN]))}"
            f"{', …' if len(ids) > _IDS_SHOWN else ''}"
        )
    return ids[0]


def _nothing_of(engine: Engine, whose: Whose) -> str:
    from daskscope_service.db.data_ownership import users

    if whose.user is None:
        return (
            f"there is no data of a cluster {whose.cluster!r} in the workspace "
            f"{whose.workspace}; 'daskscope list clusters' and the pages show names and ids"
        )
    known = users(engine, whose.workspace)
    there = "no user has data there"
    if known:
        there = f"users with data are: {one_line(', '.join(known))}"
    where = "" if whose.cluster is None else f" on a cluster {whose.cluster!r}"
    return (
        f"there is no data of a user {whose.user!r}{where} in the workspace "
        f"{whose.workspace}; {there}"
    )
