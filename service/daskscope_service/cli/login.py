"""``daskscope login``: a token for this machine, allowed in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from daskscope.login import Invitation


@click.command("login")
@click.option(
    "--url", help="The service's address. Default: daskscope.endpoint of Dask's configuration."
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["ingest", "read", "admin"]),
    default=("ingest", "read"),
    show_default="ingest and read",
    help="What the token may do: send data (ingest), read data (read), change data (admin). "
    "Repeat it for several.",
)
@click.option(
    "--no-browser", is_flag=True, help="Only print the address of the page; do not open it."
)
def login(url: str | None, scopes: tuple[str, ...], no_browser: bool) -> None:
    """Get a token for this machine, by signing in with a browser.

    The command stores the token and the service's address in Dask's configuration, where
    daskscope.register() and the commands that query the service find them.

    \b
    For example:
      daskscope login --url https://monitor.example
    On a machine without a browser (open the page on another machine):
      daskscope login --url https://monitor.example --no-browser
    For scripts that shut clusters down, or change the workspace's settings, in your name:
      daskscope login --scope read --scope admin

    A page of the service opens, where you sign in, choose a workspace, and allow it. The token is
    stored in daskscope.yaml in ~/.config/dask, or in the folder DASK_CONFIG; only you can read it.
    The command replaces that file as a whole, so keep other settings in another file of that
    folder. A previous token stays valid: revoke it in the service's settings.
    """
    from daskscope.errors import DaskscopeError
    from daskscope.login import log_in, open_browser

    def show(invitation: Invitation) -> None:
        opened = not no_browser and open_browser(invitation.url)
        click.echo(f"{'Opened' if opened else 'Open'} {invitation.url}")
        click.echo(f"and allow the login if the page shows the code {invitation.code}")
        click.echo(f"Waiting for at most {invitation.seconds / 60:.0f} min; Ctrl-C cancels …")

    try:
        done = log_in(url, show=show, scopes=scopes)
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
    click.echo(
        f"Logged in to the workspace {done.workspace}. The token {done.token_id} "
        f"({', '.join(done.scopes)}) is stored in {done.file}"
    )
    if "ingest" in done.scopes:
        click.echo("In Python, daskscope.register() uses it.")
    elif "ingest" in scopes:
        click.echo(
            "You are a viewer in that workspace, so the token can read but not send data: it "
            "cannot register a cluster."
        )
    if done.overruled:
        click.echo(
            "Warning: another token or endpoint overrides this one. Look for "
            "DASK_DASKSCOPE__TOKEN and DASK_DASKSCOPE__ENDPOINT in the environment, and for "
            f"another file beside {done.file.name} with a section daskscope.",
            err=True,
        )
