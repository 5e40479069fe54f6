"""The command line: ``daskscope serve | login | list | token | user | retention | export | …``.

Only click is imported here: without the extra ``daskscope[service]``, the commands name what is
missing instead of failing to start.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from daskscope.errors import ConfigurationError
from daskscope.one_line import printable
from daskscope.version import __version__
from daskscope_service.cli.address import note_address
from daskscope_service.cli.audit import audit
from daskscope_service.cli.budget import budget
from daskscope_service.cli.compare import compare
from daskscope_service.cli.data import delete, export
from daskscope_service.cli.database import database_group, say_upgrade
from daskscope_service.cli.findings import findings_group
from daskscope_service.cli.jobs import job_group
from daskscope_service.cli.keys import key_group
from daskscope_service.cli.lists import list_group
from daskscope_service.cli.login import login
from daskscope_service.cli.mcp import mcp
from daskscope_service.cli.options import database, extra, settings_options
from daskscope_service.cli.report import report
from daskscope_service.cli.retention import retention_group
from daskscope_service.cli.tokens import token_group
from daskscope_service.cli.trace import trace
from daskscope_service.cli.users import user_group
from daskscope_service.cli.why import why
from daskscope_service.settings import Settings


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="daskscope")
def cli() -> None:
    """Observability for every Dask cluster that a team runs.

    \b
    Try it out, with a cluster and work on it:
      daskscope demo
    Run the service, then get a token for your clusters:
      daskscope serve
      daskscope login
    Query it from anywhere:
      daskscope list clusters
    """


@cli.command()
@settings_options()
def serve(**options: Any) -> None:
    """Run the service until Ctrl-C.

    \b
    On this machine only:
      daskscope serve
    For others on the network, over HTTPS:
      daskscope serve --host 0.0.0.0 --public-url https://monitor.example:8690 \\
          --tls-cert fullchain.pem --tls-key privkey.pem
    Behind a proxy that does TLS:
      daskscope serve --host 0.0.0.0 --public-url https://monitor.example \\
          --trusted-proxy 10.0.0.7

    Without TLS the service listens on this machine only.

    Each option can also be set by the environment variable in brackets.
    """
    with extra("service"):
        from daskscope_service.accounts import sign_in
        from daskscope_service.db import key_register, sealing
        from daskscope_service.db.engine import DEFAULT_WORKSPACE, alone, upgrade_database
        from daskscope_service.server import logs
        from daskscope_service.server.process import check
        from daskscope_service.server.process import serve as run
    settings = Settings.from_environment(**options)
    logs.set_up(settings)
    check(settings)
    if settings.migrate == "apply":
        say_upgrade(upgrade_database(settings))
    with database(options) as (_, engine):
        with alone(engine) as connection:
            key_register.check(connection)
        keys = sealing.keys_of(engine.dialect).source
        link = sign_in.make_link(engine, settings.url, DEFAULT_WORKSPACE)
    note_address(settings)
    # The database is closed again: its connections must not pass into the serving process.
    data = "in the database given" if settings.database_url else settings.data_dir
    same_data = f" --data-dir {settings.data_dir}" if options.get("data_dir") else ""
    click.echo(f"daskscope {__version__} on {settings.url}")
    click.echo(f"  sign in  {link}  (works for one hour)")
    click.echo(f"  data     {data}")
    click.echo(f"  keys     {keys}  (users' code is encrypted with them: keep a copy)")
    click.echo(f"  tokens   daskscope login --url {settings.url}")
    click.echo(f"           or, on this machine: daskscope token create --label NAME{same_data}")
    sys.stdout.flush()
    run(settings)
    click.echo("daskscope stopped")


@cli.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the service. Default: a free one."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="End after this time. Default: on Ctrl-C.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the database, which stays. Default: a new folder, removed at the end.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one line of JSON (url, token, workspace) once ready.",
)
def demo(port: int | None, seconds: float | None, data_dir: Path | None, as_json: bool) -> None:
    """Try daskscope out, with real work on this machine.

    \b
    Starts the service with SQLite and a cluster of two worker processes, and registers the cluster.
    First it runs one job 18 times, as if on 18 nights, but seconds apart: the job becomes slower
    and is repaired, and its page shows what the repair saves. Then it works in rounds until Ctrl-C:
    it parses installed Python files (some are not valid), joins tables, decomposes a matrix, and
    sometimes leaves the cluster idle. Open the address that it prints and watch.

    \b
    For example, for a script that needs a minute of real data:
      daskscope demo --seconds 60 --json
    """
    with extra("demo"):
        from daskscope_service.demo import run
    run(port=port, seconds=seconds, data_dir=data_dir, as_json=as_json)


@cli.command()
@click.argument("scheduler", envvar="DASK_SCHEDULER_ADDRESS")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with all rows.")
@click.option(
    "--brief",
    is_flag=True,
    help="Print only where the data goes, and how many bytes each setting sends.",
)
def explain(scheduler: str, as_json: bool, brief: bool) -> None:
    """Show which data the cluster of SCHEDULER sends, by setting, with its number of bytes.

    \b
    For example:
      daskscope explain tcp://127.0.0.1:8786 --brief

    The scheduler needs daskscope, through register() or a preload. You can also set SCHEDULER in
    the environment [DASK_SCHEDULER_ADDRESS].
    """
    from distributed import Client

    import daskscope

    try:
        with Client(scheduler, timeout=10) as client:
            explanation = daskscope.explain(client)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"no scheduler answers at {scheduler}: {error}") from None
    if explanation.problem is not None:
        raise click.ClickException(str(explanation))
    if as_json:
        click.echo(explanation.to_json())
    else:
        click.echo(printable(explanation.overview() if brief else str(explanation)))


cli.add_command(login)
cli.add_command(token_group)
cli.add_command(user_group)
cli.add_command(list_group)
cli.add_command(job_group)
cli.add_command(why)
cli.add_command(compare)
cli.add_command(budget)
cli.add_command(report)
cli.add_command(trace)
cli.add_command(audit)
cli.add_command(retention_group)
cli.add_command(findings_group)
cli.add_command(mcp)
cli.add_command(export)
cli.add_command(delete)
cli.add_command(database_group)
cli.add_command(key_group)


def main() -> None:
    """Run the command line: the entry of the ``daskscope`` script."""
    try:
        cli(prog_name="daskscope")
    except ConfigurationError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
