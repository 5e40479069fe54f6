"""The TLS certificate: checked before it is used, and again when it changes.

A server process that reads a broken pair of files exits, and a renewal writes two files one after
the other. So both files are checked here first, and only a matching pair is used.
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from daskscope.errors import ConfigurationError

logger = logging.getLogger(__name__)

#: Seconds between two checks of the files. A renewal comes weeks before the old one expires.
_LOOK_EVERY = 2.0


def check(cert: Path, key: Path) -> None:
    """Raise ConfigurationError unless the service can use ``cert`` and ``key``.

    Log a warning if everyone on this machine may read the key.
    """
    for file, variable in ((cert, "DASKSCOPE_TLS_CERT"), (key, "DASKSCOPE_TLS_KEY")):
        try:
            text = file.read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"cannot read {file}: {error.strerror}; see {variable}"
            ) from error
        if b"-----BEGIN " not in text:
            raise ConfigurationError(f"{file} is not a PEM file; see {variable}")
    try:
        # Without this function, OpenSSL would ask for the password on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_refuse)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            what = f"the key in {key} does not belong to the first certificate in {cert}"
        else:
            what = (
                f"{cert} holds no certificate that fits the key in {key}: {error.reason or error}"
            )
        raise ConfigurationError(f"{what}; see DASKSCOPE_TLS_CERT and DASKSCOPE_TLS_KEY") from error
    except _EncryptedError:
        raise ConfigurationError(
            f"the key in {key} is encrypted, and the service cannot ask for its password; "
            "write the key without a password, readable by the service's user only: openssl "
            "pkey -in KEY -out PLAIN"
        ) from None
    if key.stat().st_mode & stat.S_IRWXO:
        logger.warning("everyone on this machine may read the private key: chmod o-rwx %s", key)


def watch(cert: Path, key: Path, changed: Callable[[], None]) -> None:
    """Call ``changed``, in a thread of its own, whenever one of the files has changed.

    A link on the way to it that points elsewhere is a change, too: certbot and Kubernetes renew so.
    """

    def look() -> None:
        before = _state(cert, key)
        waiting = threading.Event()
        while not waiting.wait(_LOOK_EVERY):
            now = _state(cert, key)
            if now != before:
                before = now
                changed()

    threading.Thread(target=look, name="daskscope-tls", daemon=True).start()


class _EncryptedError(Exception):
    pass


def _refuse() -> str:
    raise _EncryptedError


def _state(*files: Path) -> list[object]:
    state: list[object] = []
    for file in files:
        try:
            status = os.stat(file)
        except OSError as error:
            state.append(error.errno)
        else:
            state.append((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
    return state
