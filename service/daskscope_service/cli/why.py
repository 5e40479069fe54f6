"""``daskscope why``: what became of a cluster or a computation, and the cause of its problems."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click

from daskscope.errors import DaskscopeError
from daskscope.one_line import one_line

if TYPE_CHECKING:
    from daskscope.api_types import Explanation

#: Rules whose cause shows in the exceptions of the cluster.
_OF_EXCEPTIONS = ("failed", "upstream-failed", "retries", "version-mismatch", "killed-workers")


@click.command("why")
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with all findings.")
def why(id: str, as_json: bool) -> None:
    """Show the status of the cluster or computation ID, and the cause of its problems.

    ID may also be the name of a cluster, if only one cluster has it.

    \b
    Prints the causes with their evidence, what to do, how much that saves, and the commands that
    show more. The command queries the service with a token of scope read. For example:
      daskscope list computations --limit 1 --json | jq -r .id
      daskscope why 0f5c4f2e6d7c4d2a9a51e3b7f4f8a0c1
    """
    import daskscope.api

    try:
        explanation = daskscope.api.why(id)
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(explanation, default=datetime.isoformat))
        return
    click.echo(repr(explanation))
    click.echo("\nWhat to ask next:")
    for command in _next(explanation):
        click.echo(f"  {one_line(shlex.join(['daskscope', *command]))}")


def _next(explanation: Explanation) -> Iterator[list[str]]:
    """Yield the commands that show more."""
    of_cluster = ["--cluster", explanation["cluster"], "--since", "all"]
    causes = [one["rule"] for one in explanation["findings"] if one["suppressed_by"] is None]
    if any(rule in _OF_EXCEPTIONS for rule in causes):
        yield ["list", "exceptions", *of_cluster]
    if explanation["computation"] is None:
        yield ["list", "findings", *of_cluster]
        yield ["list", "computations", *of_cluster, "--sort", "status"]
        yield ["list", "events", *of_cluster]
        return
    for rule in causes[:1]:
        yield ["list", "computations", "--finding", rule]
    yield ["why", explanation["cluster"]]
    yield ["list", "computations", *of_cluster]
