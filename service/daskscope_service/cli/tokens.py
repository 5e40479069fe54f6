"""``daskscope token``: the tokens with which clusters report and programs read."""

from __future__ import annotations

import time
from typing import Any

import click

from daskscope_service.cli.options import database, settings_options

_workspace = click.option("--workspace", default="default", show_default=True)


@click.group("token")
def token_group() -> None:
    """Create, list and revoke the tokens that clusters and programs use.

    \b
    If you can sign in to the service, 'daskscope login' gets a token for you. Otherwise:
      daskscope token create --label nightly --scope ingest --days 90
      daskscope token list
      daskscope token revoke x7k2mq9abc
    """


@token_group.command("create")
@click.option("--label", default="", help="The purpose of the token, shown in lists of tokens.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["ingest", "read", "admin"]),
    help="ingest: send data. read: read data. admin: change, through the API, what an owner "
    "may change. Repeat it for several. Default: ingest and read.",
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    help="Expires after this many days. Default: never.",
)
@click.option(
    "--workspace",
    default="default",
    show_default=True,
    help="Workspace of the token; created if it is missing.",
)
@settings_options("data_dir", "database_url")
def create_token(
    label: str, scopes: tuple[Any, ...], days: float | None, workspace: str, **options: Any
) -> None:
    """Create a token and print it. It is not shown again.

    \b
    For example, a token for clusters, which may send but not read:
      daskscope token create --label nightly --scope ingest --days 90
    Then, where clusters are created:
      export DASK_DASKSCOPE__TOKEN=dsk_…
    """
    with database(options) as (_, engine):
        from daskscope_service.accounts import tokens

        if len(label) > tokens.LONGEST_LABEL:
            raise click.ClickException(
                f"the label has {len(label)} characters; at most {tokens.LONGEST_LABEL} are allowed"
            )
        expires_at = None if days is None else time.time() + days * 86_400
        click.echo(
            tokens.create(
                engine,
                workspace=workspace,
                label=label,
                scopes=scopes or tokens.USUAL,
                expires_at=expires_at,
            )
        )


@token_group.command("list")
@_workspace
@settings_options("data_dir", "database_url")
def list_tokens(workspace: str, **options: Any) -> None:
    """List a workspace's tokens, newest first.

    Their secrets are not stored, so they cannot be shown.
    """
    with database(options) as (_, engine):
        from daskscope_service.accounts import tokens

        rows = tokens.list_in(engine, workspace)
    now = time.time()
    by = max([len(one.made_by or "") for one in rows], default=0) + 2
    row = f"{{:<12}}{{:<10}}{{:<19}}{{:<18}}{{:<18}}{{:<{max(by, 14)}}}{{}}"
    click.echo(row.format("ID", "STATE", "SCOPES", "LAST USED", "EXPIRES", "MADE BY", "LABEL"))
    for one in rows:
        click.echo(
            row.format(
                one.id,
                one.state(now),
                "+".join(one.scopes),
                "never" if one.last_used_at is None else _time(one.last_used_at),
                "never" if one.expires_at is None else _time(one.expires_at),
                one.made_by or "-",
                one.label,
            ).rstrip()
        )


@token_group.command("revoke")
@click.argument("id", required=False)
@click.option("--all", "every", is_flag=True, help="Revoke all tokens of the workspace.")
@click.option("--user", help="Revoke all tokens that this user made, in all workspaces.")
@_workspace
@settings_options("data_dir", "database_url")
def revoke_token(
    id: str | None, every: bool, user: str | None, workspace: str, **options: Any
) -> None:
    """Permanently revoke the token ID; 'daskscope token list' shows ids.

    \b
    Or many at once:
      daskscope token revoke --all --workspace finance
      daskscope token revoke --user maria@example.org
    """
    if [id is not None, every, user is not None].count(True) != 1:
        raise click.UsageError("give the ID of one token, or --all, or --user NAME")
    with database(options) as (_, engine):
        from daskscope_service.accounts import tokens, users

        if id is not None:
            if not tokens.revoke(engine, workspace, id):
                raise click.ClickException(
                    f"the workspace {workspace} has no token {id}; 'daskscope token list' shows "
                    "them"
                )
            click.echo(f"revoked {id}")
            return
        if user is None:
            count, whose = tokens.revoke_all(engine, workspace=workspace), workspace
        else:
            account = users.find(engine, user)
            if account is None:
                raise click.ClickException(
                    f"there is no user {user}; 'daskscope user list' shows them"
                )
            count, whose = tokens.revoke_all(engine, workspace=None, user=account.id), user
    click.echo(f"revoked {count} token{'' if count == 1 else 's'} of {whose}")


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
