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
    help="What the token may do: send data, see it, change it. Repeat it for more than one.",
)
@click.option("--no-browser", is_flag=True, help="Only print the page's address.")
def login(url: str | None, scopes: tuple[str, ...], no_browser: bool) -> None:
    """Get a token for this machine, in a browser.

    It is written into Dask's configuration, where daskscope.register() and the commands that ask
    find it, with the service's address.

    \b
    For example:
      daskscope login --url https://monitor.example
    On a machine without a browser; the page can be opened on any other:
      daskscope login --url https://monitor.example --no-browser
    For scripts that shut clusters down, or change the workspace's settings, in your name:
      daskscope login --scope read --scope admin

    A page of the service opens, where you sign in, choose a workspace, and allow it. The token goes
    into daskscope.yaml in ~/.config/dask, or where DASK_CONFIG says, to be read by you alone. A
    token that stood there is replaced, and stays in force: revoke it in the service's settings.
    """
    from daskscope.errors import DaskscopeError
    from daskscope.login import log_in, open_browser

    def tell(invitation: Invitation) -> None:
        opened = not no_browser and open_browser(invitation.url)
        click.echo(f"{'Opened' if opened else 'Open'} {invitation.url}")
        click.echo(f"and allow it there, if it shows the code {invitation.code}")
        click.echo(f"Waiting, for {invitation.seconds / 60:.0f} min at most; Ctrl-C gives up …")

    try:
        done = log_in(url, tell=tell, scopes=scopes)
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
    click.echo(
        f"Logged in to the workspace {done.workspace}, with the token {done.token_id} "
        f"({', '.join(done.scopes)}), now in {done.file}"
    )
    if "ingest" in done.scopes:
        click.echo("In Python, daskscope.register() finds it there.")
    elif "ingest" in scopes:
        click.echo("You are a viewer there, so it may read and not send: it registers no cluster.")
    if done.overruled:
        click.echo(
            "Warning: another token or endpoint is in force. Look for DASK_DASKSCOPE__TOKEN and "
            "DASK_DASKSCOPE__ENDPOINT in the environment, and for another file beside "
            f"{done.file.name} that has a section daskscope.",
            err=True,
        )
