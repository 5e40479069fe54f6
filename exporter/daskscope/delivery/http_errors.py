"""Why a service gives no answer, in words that say what to do."""

from __future__ import annotations

from daskscope.delivery.http import Kind, kind_of


def why(error: BaseException, setting: str = "daskscope.endpoint") -> tuple[Kind, str]:
    """Return the kind of trouble, and what to do about it.

    ``setting`` is where the service's address stands.
    """
    kind, words = kind_of(error)
    hints = {
        "header": "the token contains invalid characters; check daskscope.token",
        "file": f"{words}; check REQUESTS_CA_BUNDLE",
        "answer": "its answer cannot be read; is it a daskscope service?",
        "tls": f"its TLS certificate is not trusted ({words}); set REQUESTS_CA_BUNDLE to the CA "
        "that issued it",
        "certificate's name": f"{words}; check {setting}",
        "certificate's time": f"{words}; renew it, or check the clocks of both machines",
        "client certificate": f"{words}, and daskscope sends none",
        "no tls": f"{words}; does {setting} need http:// instead of https://?",
        "handshake": f"{words}; see the service's log",
        "proxy": f"{words}; check HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
        "timeout": f"no answer in time; check {setting}, and whether the service runs",
        "name": f"the host name is unknown; check {setting}",
        "connection": f"no connection ({words}); check that the service runs (`daskscope serve`) "
        f"and that {setting} is right",
    }
    return kind, hints.get(kind, words)
