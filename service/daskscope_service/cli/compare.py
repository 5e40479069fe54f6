"""``daskscope compare``: how one run differs from another."""

from __future__ import annotations

import json
from datetime import datetime

import click

from daskscope.errors import DaskscopeError


@click.command("compare")
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with the whole comparison.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for a comment on a merge request.")
def compare(a: str, b: str, as_json: bool, markdown: bool) -> None:
    """Compare two computations: show how B differs from A. A and B are ids.

    \b
    Prints the difference in duration, split into parts that add up, and everything else that
    differs. The command queries the service with a token of scope read. For example:
      daskscope compare 0f5c4f2e6d7c4d2a9a51e3b7f4f8a0c1 77ab01c5c55d4e2a9a51e3b7f4f8a0c1
    """
    import daskscope.api

    try:
        comparison = daskscope.api.compare(a, b)
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(comparison, default=datetime.isoformat))
        return
    if markdown:
        from daskscope_service.insight.jobs.comparison import as_markdown

        click.echo(as_markdown(comparison))
        return
    click.echo(repr(comparison))
