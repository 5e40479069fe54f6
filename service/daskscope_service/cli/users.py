"""``daskscope user``: who may sign in, and their role in each workspace."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from daskscope_service.cli.address import address_for_links
from daskscope_service.cli.options import database, settings_options

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from daskscope_service.accounts.users import User

_ROLES = ("owner", "member", "viewer")

_password_stdin = click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the password from standard input instead of asking for it.",
)


@click.group("user")
def user_group() -> None:
    """Manage users, their roles and their sessions.

    \b
    For example:
      daskscope user create maria@example.org --workspace finance --role member
      daskscope user role maria@example.org viewer --workspace research
      daskscope user disable maria@example.org

    Changes take effect at the user's next request.
    """


@user_group.command("create")
@click.argument("name")
@click.option(
    "--workspace",
    default="default",
    show_default=True,
    help="Workspace of the user; created if it is missing.",
)
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    default="member",
    show_default=True,
    help="The user's role in the workspace.",
)
@click.option("--display-name", default="", help="The name that others see. Default: NAME.")
@_password_stdin
@settings_options("data_dir", "database_url")
def create(
    name: str,
    workspace: str,
    role: Any,
    display_name: str,
    password_stdin: bool,
    **options: Any,
) -> None:
    """Create a user who signs in as NAME; the command asks for the password.

    \b
    For example, for a script that keeps passwords elsewhere:
      pass show daskscope/maria | daskscope user create maria --password-stdin

    NAME is an e-mail address or any other name; case does not matter. A user can be in several
    workspaces: see 'daskscope user role --help'.
    """
    with database(options) as (_, engine):
        from daskscope_service.accounts import passwords, users

        if users.find(engine, name) is not None:  # before anyone is asked for a password
            raise click.ClickException(
                f"the user {name} already exists; 'daskscope user role' adds them to another "
                "workspace, 'daskscope user password' sets another password"
            )
        try:
            users.create(
                engine,
                name=name,
                password=_password(password_stdin),
                workspace=workspace,
                role=role,
                display_name=display_name,
            )
        except users.UnfitName as error:
            raise click.ClickException(str(error)) from None
        except passwords.UnfitPassword as error:
            raise click.ClickException(f"the password was refused: it {error}") from None
    click.echo(f"created the user {name}: {role} of {workspace}")


@user_group.command("list")
@settings_options("data_dir", "database_url")
def list_users(**options: Any) -> None:
    """List all users, with their roles in each workspace."""
    with database(options) as (_, engine):
        from daskscope_service.accounts import users

        rows = users.list_all(engine)
    width = max([len(user.name) for user, _ in rows], default=0) + 2
    width = max(width, 12)
    click.echo(f"{'NAME':<{width}}{'STATE':<10}ROLES")
    for user, roles in rows:
        state = "active" if user.disabled_at is None else "disabled"
        said = ", ".join(f"{role} of {workspace}" for workspace, role in roles.items()) or "none"
        if user.made_in is not None:
            said += f" (made by an invitation of {user.made_in})"
        click.echo(f"{user.name:<{width}}{state:<10}{said}")


@user_group.command("role")
@click.argument("name")
@click.argument("role", type=click.Choice([*_ROLES, "none"]))
@click.option(
    "--workspace", default="default", show_default=True, help="Workspace; created if it is missing."
)
@click.option(
    "--yes",
    is_flag=True,
    help="Do not ask whether the account belongs to the person that its name suggests.",
)
@settings_options("data_dir", "database_url")
def set_role(name: str, role: Any, workspace: str, yes: bool, **options: Any) -> None:
    """Set the role of the user NAME in a workspace: owner, member, viewer, or none.

    \b
    For example, to add a user to another workspace, and remove them again:
      daskscope user role maria viewer --workspace research
      daskscope user role maria none --workspace research

    If an invitation of another workspace created the account, the command asks first, because
    whoever opened that invitation chose the password.
    """
    with database(options) as (_, engine):
        from daskscope_service.accounts import users

        user = _user(engine, name)
        if role != "none":
            if user.made_in not in (None, workspace):
                if not yes:
                    click.confirm(
                        f"An invitation of the workspace {user.made_in} created the account "
                        f"{name}, and whoever opened the invitation chose the password. Does "
                        f"the account belong to the person you want to let into {workspace}? "
                        "('daskscope user password' sets a new password.)",
                        abort=True,
                        err=True,
                    )
                users.vouch_for(engine, user)
            users.set_role(engine, user, workspace, role)
        elif not users.take_role(engine, user, workspace):
            raise click.ClickException(
                f"{name} has no role in {workspace}; 'daskscope user list' shows their roles"
            )
    click.echo(f"{name} is {'not in' if role == 'none' else f'{role} of'} {workspace}")


@user_group.command("password")
@click.argument("name")
@_password_stdin
@settings_options("data_dir", "database_url")
def set_password(name: str, password_stdin: bool, **options: Any) -> None:
    """Set a new password for the user NAME, and end their sessions."""
    with database(options) as (_, engine):
        from daskscope_service.accounts import passwords, users

        user = _user(engine, name)
        try:
            users.set_password(engine, user, _password(password_stdin))
        except passwords.UnfitPassword as error:
            raise click.ClickException(f"the password was refused: it {error}") from None
    click.echo(f"changed the password of {name}")


@user_group.command("disable")
@click.argument("name")
@settings_options("data_dir", "database_url")
def disable(name: str, **options: Any) -> None:
    """Refuse sign-ins of the user NAME until 'daskscope user enable', and end their sessions."""
    with database(options) as (_, engine):
        from daskscope_service.accounts import users

        users.set_disabled(engine, _user(engine, name), True)
    click.echo(f"disabled {name}")


@user_group.command("enable")
@click.argument("name")
@settings_options("data_dir", "database_url")
def enable(name: str, **options: Any) -> None:
    """Allow sign-ins of the user NAME again after 'daskscope user disable'."""
    with database(options) as (_, engine):
        from daskscope_service.accounts import users

        users.set_disabled(engine, _user(engine, name), False)
    click.echo(f"enabled {name}")


@user_group.command("remove")
@click.argument("name")
@settings_options("data_dir", "database_url")
def remove(name: str, **options: Any) -> None:
    """Permanently remove the user NAME, and end their sessions. Their clusters' data stays."""
    with database(options) as (_, engine):
        from daskscope_service.accounts import users

        users.remove(engine, _user(engine, name))
    click.echo(f"removed {name}")


@user_group.command("sign-out")
@click.argument("name")
@settings_options("data_dir", "database_url")
def sign_out(name: str, **options: Any) -> None:
    """End all sessions of the user NAME, in all browsers. They may sign in again."""
    with database(options) as (_, engine):
        from daskscope_service.accounts import sessions

        user = _user(engine, name)
        ended = sessions.end_of(engine, user.id, user.name)
    click.echo(f"ended {ended} session{'' if ended == 1 else 's'} of {name}")


@user_group.command("sign-in")
@click.option(
    "--workspace", default="default", show_default=True, help="Workspace; created if it is missing."
)
@settings_options("data_dir", "database_url", "host", "port", "public_url")
def print_sign_in_link(workspace: str, **options: Any) -> None:
    """Print a new sign-in link. It works once, for one hour, and needs no user.

    It leads to the service that was last started on the data folder, unless you name another
    address.

    \b
    For example, for a service that others reach by name:
      daskscope user sign-in --public-url https://monitor.example

    Whoever opens it has an owner's rights in the workspace: keep it private.
    """
    with database(options) as (settings, engine):
        from daskscope_service.accounts import sign_in

        click.echo(sign_in.make_link(engine, address_for_links(settings), workspace))


def _user(engine: Engine, name: str) -> User:
    from daskscope_service.accounts import users

    user = users.find(engine, name)
    if user is None:
        raise click.ClickException(f"there is no user {name}; 'daskscope user list' shows them")
    return user


def _password(stdin: bool) -> str:
    if not stdin:
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
        return password
    return sys.stdin.readline().rstrip("\r\n")
