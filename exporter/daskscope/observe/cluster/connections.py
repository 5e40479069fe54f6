"""The other end of a client's connection: its host and, on this machine, who holds it."""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from distributed.comm.addressing import parse_address, parse_host_port

# Linux's sock_diag(7): a request about one TCP socket, and the answer to it.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_ANY = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_PORTS_AND_ADDRESSES = struct.Struct("!HH16s16s")
_INTERFACE_AND_COOKIE = struct.Struct("=III")
# The header and the family, then the state. Then the id of the socket and three numbers, then the
# user.
_STATE_AT, _USER_AT = 16 + 1, 16 + 4 + 48 + 12
_ESTABLISHED = 1


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a client is. ``host`` is "" in this process.

    ``here`` says whether it is on this machine; ``uid`` is the system's user there, None if the
    system does not report it, or if it is on another machine.
    """

    host: str
    here: bool
    uid: int | None


def peer_of(comm: Any) -> Peer | None:
    """Return the other end of a connection of Dask's; None if it has none any more."""
    with suppress(AttributeError, ValueError, OSError, struct.error, IndexError):
        peer_address, local_address = comm.peer_address, comm.local_address
        if peer_address.startswith("inproc://"):
            return Peer("", True, os.getuid() if hasattr(os, "getuid") else None)
        host, port = parse_host_port(parse_address(peer_address)[1])
        own_host, own_port = parse_host_port(parse_address(local_address)[1])
        uid = _uid((host, port), (own_host, own_port))
        here = uid is not None or host == own_host or ip_address(host).is_loopback
        return Peer(host, here, uid)
    return None


def _uid(end: tuple[str, int], other: tuple[str, int]) -> int | None:
    """Return the user of the TCP socket at ``end`` that is connected to ``other``.

    The kernel answers from memory: this waits for nothing. Return None if this machine has no such
    socket, or does not report it. It does not for link-local addresses, which need an interface.
    """
    if sys.platform != "linux":
        return None
    family = socket.AF_INET6 if ":" in end[0] else socket.AF_INET
    hosts = (host.partition("%")[0] for host, _ in (end, other))
    addresses = (socket.inet_pton(family, host).ljust(16, b"\0") for host in hosts)
    body = (
        _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY)
        + _PORTS_AND_ADDRESSES.pack(end[1], other[1], *addresses)
        + _INTERFACE_AND_COOKIE.pack(0, _ANY, _ANY)
    )
    header = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
    with suppress(OSError), socket.socket(socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG) as asked:
        asked.send(header + body)
        answer = asked.recv(1 << 13)
        _, sort, _, _, _ = _HEADER.unpack_from(answer)
        # Without such a connection, the answer is about what listens at that port here. Of a closed
        # socket, the user is 0.
        if sort == _SOCK_DIAG_BY_FAMILY and answer[_STATE_AT] == _ESTABLISHED:
            uid: int = struct.unpack_from("=I", answer, _USER_AT)[0]
            return uid
    return None
