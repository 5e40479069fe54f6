"""Which hosts notifications may go to: public ones, and those that the settings name."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Public by its number, and yet of the machine's own network: Azure's metadata.
_METADATA = ipaddress.ip_address("168.63.129.16")

#: IPv4 within IPv6, for networks without IPv4 (RFC 6052).
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_public(host: str) -> bool:
    """Tell whether an address is anyone's to reach, and not of a network of the service's own."""
    found = _parse(host)
    return found is not None and all(
        one.is_global and not one.is_multicast and one != _METADATA for one in _meanings(found)
    )


def is_allowed(host: str, networks: Iterable[str]) -> bool:
    """Tell whether notifications may go to an address: a public one, or one of ``networks``."""
    if is_public(host):
        return True
    found = _parse(host)
    if found is None:
        return False
    named = [ipaddress.ip_network(network, strict=False) for network in networks]
    return all(any(one in network for network in named) for one in _meanings(found))


def _parse(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])  # without an interface, as in fe80::1%1
    except ValueError:
        return None


def _meanings(address: Address) -> Iterator[Address]:
    """Yield what is reached: an address of IPv4 may be written within one of IPv6."""
    if address.version == 4:
        yield address
        return
    assert isinstance(address, ipaddress.IPv6Address)
    within = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        within.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    found = [one for one in within if one is not None]
    yield from found or [address]
