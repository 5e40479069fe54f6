"""Checks the addresses of targets: the service, the host and the parameters.

Parameters of an address can make Apprise do more than send a message: read a file, add headers,
skip the check of certificates. Therefore each service has a list of allowed parameters, mostly
those that name the receiver.
"""

from __future__ import annotations

import importlib
import ipaddress
import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any, NewType
from urllib.parse import unquote, urlsplit

from daskscope_service.db.unreadable import Unreadable

_MAIL = frozenset(("from", "name", "smtp", "mode", "reply", "to", "cc", "bcc", "user", "pass"))
_MATRIX = frozenset(("mode", "msgtype", "to", "token", "version"))
_MATTERMOST = frozenset(("botname", "channel", "channels", "mode", "team", "to"))
_NTFY = frozenset(("auth", "mode", "priority", "to", "token"))
_NONE = frozenset[str]()

#: The supported services, and the parameters (after ``?``) that their addresses may have.
PARAMETERS = {
    "discord": frozenset(("thread",)),
    "form": _NONE,
    "forms": _NONE,
    "gchat": frozenset(("key", "thread", "token", "workspace")),
    "gotify": frozenset(("priority",)),
    "gotifys": frozenset(("priority",)),
    "json": _NONE,
    "jsons": _NONE,
    "mailgun": frozenset(("bcc", "cc", "from", "name", "region", "to")),
    "mailto": _MAIL,
    "mailtos": _MAIL,
    "matrix": _MATRIX,
    "matrixs": _MATRIX,
    "mmost": _MATTERMOST,
    "mmosts": _MATTERMOST,
    "ntfy": _NTFY,
    "ntfys": _NTFY,
    "opsgenie": frozenset(("priority", "region", "tags", "to")),
    "pagerduty": frozenset(("class", "group", "region", "severity")),
    "rocket": frozenset(("mode", "to", "webhook")),
    "rockets": frozenset(("mode", "to", "webhook")),
    "sendgrid": frozenset(("bcc", "cc", "to")),
    "slack": frozenset(("mode", "to", "token")),
    "tgram": frozenset(("silent", "thread", "to", "topic")),
    "victorops": frozenset(("apikey", "entity_id", "route", "routing_key")),
    "wxteams": frozenset(("mode", "to", "token")),
    "workflows": frozenset(
        ("api-version", "id", "pa", "powerautomate", "route", "routeid", "sig", "ver")
    ),
    "xml": _NONE,
    "xmls": _NONE,
    "zulip": frozenset(("to", "token")),
}

#: The module of Apprise's plugins for a scheme, where it has another name.
_MODULES = {
    **dict.fromkeys(("form", "forms"), "custom_form"),
    **dict.fromkeys(("json", "jsons"), "custom_json"),
    **dict.fromkeys(("xml", "xmls"), "custom_xml"),
    "gchat": "google_chat",
    "gotifys": "gotify",
    **dict.fromkeys(("mailto", "mailtos"), "email"),
    "matrixs": "matrix",
    **dict.fromkeys(("mmost", "mmosts"), "mattermost"),
    "ntfys": "ntfy",
    **dict.fromkeys(("rocket", "rockets"), "rocketchat"),
    "tgram": "telegram",
    "victorops": "splunk",
    "wxteams": "webexteams",
}

#: The most characters of an address. The time to parse one grows with the square of its length, and
#: no other thread runs meanwhile: a host of 30,000 combining characters took ten seconds.
LONGEST = 2_000

# Apprise's log messages might contain addresses, which are secret.
logging.getLogger("apprise").propagate = False

_SCHEME = re.compile(r"([a-z0-9]+)://.")


#: An address that :func:`check` has accepted.
FitAddress = NewType("FitAddress", str)


class UnfitAddress(ValueError):
    """The address cannot be used. The message says why, and does not contain the address."""


def scheme_of(address: str) -> str:
    """Return the name of an address's service, which is not secret: ``slack``."""
    return "unreadable" if isinstance(address, Unreadable) else address.partition("://")[0]


def parameters(address: str) -> list[str]:
    """Return the names of an address's parameters, as Apprise reads them."""
    # The part before the first ? may contain & and ; too.
    pairs = re.split("[?&;]", address.partition("?")[2])
    return [unquote(pair.partition("=")[0]).strip().lower() for pair in pairs if pair]


def why_invalid(address: str) -> str | None:
    """Return a sentence on why nothing is sent to ``address``; None if it seems valid.

    This is quick. It does not check the form that the service requires: :func:`check` does. An
    address that was stored long ago may not be allowed any more.
    """
    if len(address) > LONGEST:
        return f"An address has at most {LONGEST:,} characters."
    match = _SCHEME.match(address)
    if match is None:
        return (
            "An address begins with a service's name and ://, such as mailto://, slack:// or "
            "jsons://."
        )
    if match[1] not in PARAMETERS:
        return (
            f"{match[1]}:// is not supported for notifications. Supported are: "
            f"{', '.join(sorted(PARAMETERS))}."
        )
    allowed = PARAMETERS[match[1]]
    refused = [name for name in parameters(address) if name not in allowed]
    if refused:
        return (
            f"The parameter {_shortened(refused[0])} is not allowed in an address of "
            f"{match[1]}://. Allowed are: {', '.join(sorted(allowed)) or 'none'}."
        )
    return None


def check(address: str, networks: Iterable[str]) -> FitAddress:
    """Return ``address``, which has the form of Apprise, if it is valid.

    This may take a second, so do not call it within a transaction. If the host is an IP address, it
    must be public or in one of ``networks``. If it is a name, it is checked when a message is sent:
    the IP addresses to which it resolves may change.

    Raises
    ------
    UnfitAddress
        The address is not valid or not allowed.
    """
    wrong = why_invalid(address)
    if wrong is not None:
        raise UnfitAddress(wrong)
    host = _host(address)
    if host is not None and not is_allowed(host, networks):
        raise UnfitAddress(
            f"{host} is not a public address. The operator of the service can allow other "
            "networks in DASKSCOPE_NOTIFY_NETWORKS."
        )
    if opened(address) is None:
        raise UnfitAddress(
            f"This is not a valid address of {scheme_of(address)}://; Apprise's documentation "
            "shows the form."
        )
    return FitAddress(address)


def opened(address: str) -> Any:
    """Return Apprise's object that sends to ``address``; None if its service cannot parse it.

    Nothing may be :func:`wrong_with` the address.
    """
    import apprise

    plugin = _plugin(scheme_of(address))
    asset = apprise.AppriseAsset(
        app_id="daskscope",
        app_desc="daskscope",
        secure_logging=True,
        async_mode=False,
        http_redirects=False,
    )
    parts = plugin.parse_url(address.replace("/#", "/%23"))
    if not parts or not plugin.enabled:
        return None
    try:
        target = plugin(**parts, asset=asset)
    except Exception:  # whatever a plugin raises where the parts are not what it wants
        return None
    return target if target.enabled else None


def _plugin(scheme: str) -> Any:
    """Return Apprise's class that sends to addresses of ``scheme``.

    Only its module is imported. Apprise's own look-up first imports all of its 180, which takes
    half a second of a core each time that a process sends a message, and 18 MiB.
    """
    plugins = importlib.import_module(f"apprise.plugins.{_MODULES.get(scheme, scheme)}")
    for name, plugin in vars(plugins).items():
        if name.startswith("Notify") and scheme in _schemes(plugin):
            return plugin
    raise LookupError(f"Apprise has nothing that sends to {scheme}://")


def _schemes(plugin: Any) -> set[str]:
    """Return the schemes of a class of Apprise's plugins; none if it is something else."""
    named = (getattr(plugin, "protocol", None), getattr(plugin, "secure_protocol", None))
    return {
        one for value in named if value for one in ((value,) if isinstance(value, str) else value)
    }


def _host(address: str) -> str | None:
    """Return the host if it is an IP address or localhost; None if it is another name."""
    try:
        host = urlsplit(f"http://{address.partition('://')[2]}").hostname or ""
    except ValueError:
        return None
    if host == "localhost":
        return "127.0.0.1"
    return host if ":" in host or re.fullmatch(r"[0-9]+(\.[0-9]+){3}", host) else None


def _shortened(name: str) -> str:
    return repr(name if len(name) <= 30 else f"{name[:29]}…")


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Azure's metadata service: the address looks public, but leads to the machine's own host.
_METADATA = ipaddress.ip_address("168.63.129.16")

#: IPv4 addresses in IPv6 form, for networks without IPv4 (RFC 6052).
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

#: Deprecated: another IPv6 form of IPv4 addresses (RFC 4291), and private networks (RFC 3879). Some
#: systems still route them.
_COMPATIBLE = ipaddress.ip_network("::/96")
_OF_A_SITE = ipaddress.ip_network("fec0::/10")


def is_public(host: str) -> bool:
    """Return whether the IP address ``host`` is public, not part of a private network."""
    address = _parse(host)
    return address is not None and all(
        one.is_global and not one.is_multicast and one != _METADATA and one not in _OF_A_SITE
        for one in _embedded_addresses(address)
    )


def is_allowed(host: str, networks: Iterable[str]) -> bool:
    """Return whether notifications may go to ``host``: it is public, or in one of ``networks``."""
    if is_public(host):
        return True
    address = _parse(host)
    if address is None:
        return False
    named = [ipaddress.ip_network(network, strict=False) for network in networks]
    return all(any(one in network for network in named) for one in _embedded_addresses(address))


def _parse(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])  # without the zone of fe80::1%1
    except ValueError:
        return None


def _embedded_addresses(address: Address) -> Iterator[Address]:
    """Yield the addresses that a connection reaches: an IPv6 address may contain IPv4 addresses."""
    if address.version == 4:
        yield address
        return
    assert isinstance(address, ipaddress.IPv6Address)
    within = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        within.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    embedded = [one for one in within if one is not None]
    yield from embedded or [address]
