"""Explains why a service gave no answer, and what to do."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import Literal

import requests
from urllib3.exceptions import ProxySchemeUnknown

#: Why there was no answer; ``tls`` is a certificate that is not trusted.
Kind = Literal[
    "header",
    "file",
    "answer",
    "tls",
    "certificate's name",
    "certificate's time",
    "client certificate",
    "no tls",
    "handshake",
    "proxy",
    "timeout",
    "name",
    "connection",
]

# OpenSSL's error codes for a certificate of another host name or IP address.
_OTHER_NAME = (62, 64)
# OpenSSL's error codes for a certificate that is not valid yet, or has expired.
_OTHER_TIME = (9, 10)
# OpenSSL's reasons for an unencrypted answer.
_IN_CLEAR = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")


def why(error: BaseException, setting: str = "daskscope.endpoint") -> tuple[Kind, str]:
    """Return the kind of an error, and what to do about it.

    ``setting`` is the name of the setting with the service's address.
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


def kind_of(error: BaseException) -> tuple[Kind, str]:
    """Return the kind of an error, and a short description.

    It is not the error's own text, which may contain an address or a header with secrets.
    """
    inner = list(_chain(error))
    if isinstance(error, requests.exceptions.InvalidHeader | UnicodeError):
        return "header", "a header contains invalid characters"
    if isinstance(error, OSError) and not isinstance(error, requests.RequestException):
        return "file", str(error)  # a certificate file
    if isinstance(error, requests.exceptions.ContentDecodingError):
        return "answer", "the answer cannot be read"
    if isinstance(error, requests.exceptions.SSLError):
        return next(filter(None, map(_tls_kind, inner)), ("handshake", "TLS failed"))
    if isinstance(error, requests.exceptions.ProxyError):
        return "proxy", "the proxy refuses the request"
    if isinstance(error, requests.exceptions.InvalidProxyURL) or any(
        isinstance(cause, ProxySchemeUnknown) for cause in inner
    ):
        return "proxy", "the proxy's address is invalid"
    if isinstance(error, requests.exceptions.InvalidSchema) and "SOCKS support" in str(error):
        return "proxy", "a SOCKS proxy needs PySocks, which is not installed"
    if isinstance(error, requests.Timeout):
        return "timeout", "no answer in time"
    for cause in inner:
        if isinstance(cause, socket.gaierror):
            return "name", "the host name is unknown"
        if isinstance(cause, OSError) and cause.strerror:
            return "connection", cause.strerror.lower()
    if isinstance(error, OSError):
        return "connection", "the connection was closed"
    return "connection", type(error).__name__


def _tls_kind(error: BaseException) -> tuple[Kind, str] | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        words = error.verify_message.rstrip(".")
        if error.verify_code in _OTHER_NAME:
            return "certificate's name", f"its TLS certificate is for another name ({words})"
        if error.verify_code in _OTHER_TIME:
            return "certificate's time", f"its TLS certificate is not valid at this time ({words})"
        return "tls", words
    if isinstance(error, ssl.SSLEOFError):
        # A server that requires a client certificate may end the connection without a reason.
        return "handshake", (
            "the TLS handshake failed (the other side closed the connection, perhaps because "
            "it requires a client certificate)"
        )
    if not isinstance(error, ssl.SSLError) or not error.reason:
        return None
    words = error.reason.lower().replace("_", " ")
    if error.reason in _IN_CLEAR:
        return "no tls", f"it does not speak TLS ({words})"
    if error.reason == "NO_CERTIFICATE_OR_CRL_FOUND":
        return "file", "the CA bundle contains no certificate"
    if "CERTIFICATE_REQUIRED" in error.reason:
        return "client certificate", "it requires a client certificate"
    return "handshake", f"TLS failed ({words})"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that led to it."""
    while error is not None:
        yield error
        # urllib3 passes some errors as an argument instead of raising from them.
        wrapped = next((item for item in error.args if isinstance(item, BaseException)), None)
        error = error.__cause__ or error.__context__ or wrapped
