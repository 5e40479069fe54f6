"""Sends one message to one address, by Apprise.

It may take some seconds: not for threads that others wait for.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import Any

from daskscope_service.db.sealing import Unreadable

#: Services that can be told. Apprise knows more; some of those act on the machine that they run on.
SCHEMES = frozenset(
    (
        *("discord", "form", "forms", "gchat", "gotify", "gotifys", "json", "jsons", "mailgun"),
        *("mailto", "mailtos", "matrix", "matrixs", "mmost", "mmosts", "ntfy", "ntfys"),
        *("opsgenie", "pagerduty", "rocket", "rockets", "sendgrid", "slack", "tgram", "victorops"),
        *("wxteams", "workflows", "xml", "xmls", "zulip"),
    )
)

_one_at_a_time = threading.Lock()

# What it says goes to the page of the target; in the log, it might tell addresses.
logging.getLogger("apprise").propagate = False

_SCHEME = re.compile(r"([a-z0-9]+)://.")


class NotSent(Exception):
    """A message was not taken. The message of this says why, without the address."""


class UnfitAddress(ValueError):
    """An address that nothing can be sent to. The message says why, without the address."""


def scheme_of(address: str) -> str:
    """Return the first part of an address, which is no secret: ``slack``."""
    return "unreadable" if isinstance(address, Unreadable) else address.partition("://")[0]


def check(address: str) -> None:
    """Raise UnfitAddress unless ``address`` is one of Apprise's, of a service of SCHEMES."""
    found = _SCHEME.match(address)
    if found is None:
        raise UnfitAddress(
            "An address begins with the name of a service and ://, such as mailto://, slack:// or "
            "jsons://."
        )
    if found[1] not in SCHEMES:
        raise UnfitAddress(
            f"{found[1]}:// is not a service that can be told. Those are: "
            f"{', '.join(sorted(SCHEMES))}."
        )
    if _opened(address) is None:
        raise UnfitAddress(
            f"This is not how an address of {found[1]}:// is written; Apprise's documentation "
            "says how."
        )


def send(address: str, title: str, text: str) -> None:
    """Send a message. Raises NotSent."""
    import apprise

    if isinstance(address, Unreadable):
        raise NotSent(f"the address is {address}")
    target = _opened(address)
    if target is None:
        raise NotSent("the address is not understood any more")
    capture: Any = apprise.LogCapture
    # What is captured is what Apprise says of anything: one at a time, so that no workspace reads
    # of another's target.
    with _one_at_a_time, capture(level=logging.WARNING, fmt="%(message)s") as said:
        sent = target.notify(body=text, title=title, body_format="text")
        lines = said.getvalue().strip().splitlines()
    if not sent:
        why = _without_secrets(" ".join(lines), address).rstrip(". ")
        raise NotSent(why or "the service did not say why")


def _opened(address: str) -> Any:
    import apprise

    asset = apprise.AppriseAsset(
        app_id="daskscope", app_desc="daskscope", secure_logging=True, async_mode=False
    )
    return apprise.Apprise.instantiate(address, asset=asset)


def _without_secrets(text: str, address: str) -> str:
    parts = set(re.split(r"[^A-Za-z0-9_-]+", address.partition("://")[2]))
    for part in sorted(parts, key=len, reverse=True):
        if len(part) > 3:
            text = text.replace(part, "…")
    return text[:300]
