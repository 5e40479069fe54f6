"""Why a service gives no answer, in words that say what to do."""

from __future__ import annotations

from daskscope.delivery.http import Kind, kind_of


def why(error: BaseException, setting: str = "daskscope.endpoint") -> tuple[Kind, str]:
    """Return the kind of trouble, and what to do about it.

    ``setting`` is where the service's address stands.
    """
    kind, words = kind_of(error)
    hints = {
        "header": "the token has characters that no token has; check daskscope.token",
        "file": f"{words}; check REQUESTS_CA_BUNDLE",
        "answer": "its answer cannot be read; is it a daskscope service?",
        "tls": f"its TLS certificate is not trusted ({words}); name your authority in "
        "REQUESTS_CA_BUNDLE",
        "certificate's name": f"{words}; check {setting}",
        "certificate's time": f"{words}; has it to be renewed, or is a clock wrong?",
        "client certificate": f"{words}, and daskscope shows it none",
        "no tls": f"{words}; is it http:// that {setting} should say?",
        "handshake": f"{words}; the service's own log may say why",
        "proxy": f"{words}; check HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
        "timeout": f"no answer in time; is {setting} right, and the service well?",
        "name": f"its name is not known; check {setting}",
        "connection": f"no connection ({words}); does it run (`daskscope serve`), and is "
        f"{setting} right?",
    }
    return kind, hints.get(kind, words)
