"""``daskscope why``: what became of a cluster or a computation, and the cause of its problems."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from daskscope.errors import DaskscopeError
from daskscope_service.cli.options import say

if TYPE_CHECKING:
    from daskscope_service.insight.findings.finding import Saving


@click.command("why")
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with all findings.")
def why(id: str, as_json: bool) -> None:
    """Show the status of the cluster or computation ID, and the cause of its problems.

    \b
    Prints the cause with its evidence, what to do, and how much that saves. The command queries
    the service with a token of scope read. For example:
      daskscope list computations --limit 1 --json | jq -r .id
      daskscope why 0f5c4f2e6d7c4d2a9a51e3b7f4f8a0c1
    """
    import daskscope.api
    from daskscope_service.insight.findings.headline import saving_in_words
    from daskscope_service.insight.wording import estimate, money

    try:
        found = daskscope.api.why(id)
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(found, default=datetime.isoformat))
        return
    say(found["headline"])
    own = [one for one in found["findings"] if one["suppressed_by"] is None]
    shown = [one for one in own if one["muted"] is None]
    for place, one in enumerate(shown):
        click.echo()
        if place:
            say(one["sentence"], indent="  ")
        for measure in one["evidence"]:
            say(f"{measure['name']}: {_amount(measure)}", indent="  ")
        if one["cost"] and one["currency"]:
            cost = money(one["cost"], one["currency"])
            say(f"cost: {cost}, {estimate([one['price_source']])}", indent="  ")
        for action in one["actions"]:
            value = f" ({action['value']})" if action["value"] else ""
            say(f"→ {action['text']}{value}", indent="  ")
        if (saving := one["saving"]) is not None:
            say(saving_in_words(_saving(saving), one["price_source"]), indent="    ")
    for one in own:
        if (mute := one["muted"]) is not None:
            until = f"until {mute['until_at']:%Y-%m-%d} by {mute['by']}: {mute['reason']}"
            click.echo()
            say(f"muted {until} – {one['sentence']}", indent="  ")
    click.echo()
    click.echo(f"  {found['url']}")


def _saving(saving: Any) -> Saving:
    from daskscope_service.insight.findings.finding import SavedMoney, Saving

    amount = saving["money"]
    return Saving(**saving | {"money": None if amount is None else SavedMoney(**amount)})


def _amount(measure: Any) -> str:
    unit = {"1": "", "By": "bytes"}.get(measure["unit"], measure["unit"].strip("{}"))
    value = measure["value"]
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"
    return f"{text} {unit}".rstrip()
