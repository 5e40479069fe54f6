"""What a proxy says of a request is believed from named proxies, and from no one else."""

from __future__ import annotations

from typing import Any

import pytest

from daskscope_service.web.trusted_proxy import Forwarded

LIES = {
    "HTTP_FORWARDED": "for=6.6.6.6",
    "HTTP_X_FORWARDED_FOR": "6.6.6.6",
    "HTTP_X_FORWARDED_HOST": "evil.example",
    "HTTP_X_FORWARDED_PORT": "666",
    "HTTP_X_FORWARDED_PREFIX": "/evil",
    "HTTP_X_FORWARDED_PROTO": "https",
    "HTTP_X_REAL_IP": "6.6.6.6",
    "HTTP_X_REQUEST_ID": "evil",
}


def seen(peer: str, headers: dict[str, str], *proxies: str) -> dict[str, Any]:
    """Return what the application sees of a request from ``peer``."""
    environ = {
        "REMOTE_ADDR": peer,
        "HTTP_HOST": "10.1.1.1:8690",
        "wsgi.url_scheme": "http",
        **headers,
    }
    inside: dict[str, Any] = {}

    def app(environ: dict[str, Any], _: Any) -> list[bytes]:
        inside.update(environ)
        return []

    behind = Forwarded(proxies).middleware(app)
    assert behind(environ, lambda *_: lambda _: None) == []
    return inside


@pytest.mark.parametrize("peer", ["203.0.113.9", "11.0.0.1", "2001:db8::1", ""])
@pytest.mark.parametrize("proxies", [(), ("10.0.0.0/8", "fd00::/8")])
def test_others_are_not_believed_and_their_headers_are_gone(
    peer: str, proxies: tuple[str, ...]
) -> None:
    assert seen(peer, LIES, *proxies) == seen(peer, {}, *proxies)


@pytest.mark.parametrize("peer", ["10.0.0.7", "::ffff:10.0.0.7", "fd00::7"])
def test_a_named_proxy_is_believed(peer: str) -> None:
    headers = {
        "HTTP_X_FORWARDED_FOR": "203.0.113.9",
        "HTTP_X_FORWARDED_PROTO": "https",
        "HTTP_X_FORWARDED_HOST": "monitor.example",
        "HTTP_X_REQUEST_ID": "abc",
    }
    inside = seen(peer, headers, "10.0.0.0/8", "fd00::/8")
    assert inside["REMOTE_ADDR"] == "203.0.113.9"
    assert inside["wsgi.url_scheme"] == "https"
    assert inside["HTTP_HOST"] == "monitor.example"
    assert inside["HTTP_X_REQUEST_ID"] == "abc"


@pytest.mark.parametrize(
    ("told", "client"),
    [
        ("6.6.6.6, 203.0.113.9", "203.0.113.9"),  # the first was made up by the second
        ("6.6.6.6, 203.0.113.9, 10.0.0.8", "203.0.113.9"),  # through two of ours
        ("10.0.0.9, 203.0.113.9", "203.0.113.9"),  # made up to look like one of ours
        ("10.0.0.9, 10.0.0.8", "10.0.0.9"),  # someone on our side
        ("2001:db8::5", "2001:db8::5"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("unknown", "10.0.0.7"),
        ("203.0.113.9, unknown, 10.0.0.8", "10.0.0.8"),  # before what is no address, who knows
        ("", "10.0.0.7"),
        (",,", "10.0.0.7"),
    ],
)
def test_the_client_is_the_last_address_that_is_not_ours(told: str, client: str) -> None:
    inside = seen("10.0.0.7", {"HTTP_X_FORWARDED_FOR": told}, "10.0.0.0/8")
    assert inside["REMOTE_ADDR"] == client


@pytest.mark.parametrize(
    ("name", "told", "key", "kept"),
    [
        ("HTTP_X_FORWARDED_PROTO", "javascript", "wsgi.url_scheme", "http"),
        ("HTTP_X_FORWARDED_PROTO", "http, HTTPS", "wsgi.url_scheme", "https"),
        ("HTTP_X_FORWARDED_HOST", "a.example/path", "HTTP_HOST", "10.1.1.1:8690"),
        ("HTTP_X_FORWARDED_HOST", "user@a.example", "HTTP_HOST", "10.1.1.1:8690"),
        ("HTTP_X_FORWARDED_HOST", "evil.example, a.example:444", "HTTP_HOST", "a.example:444"),
        ("HTTP_X_FORWARDED_HOST", "[2001:db8::1]:444", "HTTP_HOST", "[2001:db8::1]:444"),
    ],
)
def test_a_proxy_may_pass_on_nonsense(name: str, told: str, key: str, kept: str) -> None:
    assert seen("10.0.0.7", {name: told}, "10.0.0.7")[key] == kept
