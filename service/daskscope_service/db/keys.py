"""The keys of this process, which encrypt and decrypt users' code.

They come from ``DASKSCOPE_CODE_KEYS`` or, if that is not set, from a file in the data folder. The
database determines which of them is in use: see :mod:`.key_register`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from daskscope.errors import ConfigurationError
from daskscope_service.db.private_files import give_to_owner_of_folder
from daskscope_service.settings import KEY_BYTES, Settings, parse_key

#: The file's name in the data folder.
FILE = "code.keys"

_HEAD = "# Users' code in the database is encrypted with these keys, newest first. Keep a copy.\n"
_ID_BYTES = 4


class CodeKey:
    """One key. ``id`` is its readable name, 8 hex digits, which reveals nothing about it."""

    __slots__ = ("cipher", "id")

    def __init__(self, secret: bytes) -> None:
        self.id = hashlib.sha256(b"daskscope code key\n" + secret).hexdigest()[: 2 * _ID_BYTES]
        # A key is used so often that a nonce may repeat by chance. AES-GCM would then reveal both
        # texts; this mode only reveals whether they are the same.
        self.cipher = AESGCMSIV(secret)


class Keys:
    """The keys that one process has, newest first."""

    def __init__(self, settings: Settings) -> None:
        self._file = None if settings.code_keys else settings.data_dir / FILE
        self._stamp: object = None
        self._keys: dict[str, CodeKey] = {}
        if settings.code_keys:
            self._take(parse_key(text) for text in settings.code_keys)

    @property
    def source(self) -> str:
        """Where the keys come from, in words."""
        return "DASKSCOPE_CODE_KEYS" if self._file is None else str(self._file)

    @property
    def file(self) -> Path | None:
        """The file that holds the keys; None if they come from the environment."""
        return self._file

    @property
    def newest(self) -> CodeKey | None:
        """The first key, or None if there is none.

        Raises
        ------
        ConfigurationError
            The file cannot be read, or holds something else.
        """
        self._read()
        return next(iter(self._keys.values()), None)

    def find(self, id: str) -> CodeKey | None:
        """Return the key with this id, or None. For an unknown id, a changed file is read again.

        Raises as :attr:`newest`.
        """
        if id not in self._keys:
            self._read()
        return self._keys.get(id)

    def make(self) -> CodeKey:
        """Put a new key before the others in the file, which is created with mode 0600.

        The file is on the disk when this returns, so that what the key encrypts can be read after a
        crash. The caller must prevent that two processes do this at once.

        Raises
        ------
        ConfigurationError
            The file cannot be written, or the keys come from the environment.
        """
        if self._file is None:
            raise ConfigurationError(
                "put a new key before the others in DASKSCOPE_CODE_KEYS, separated by a "
                "comma; 'openssl rand -hex 32' makes one"
            )
        secret = secrets.token_bytes(KEY_BYTES)
        try:
            before = self._file.read_text() if self._file.exists() else _HEAD
            lines = before.splitlines(keepends=True)
            place = next(
                (n for n, line in enumerate(lines) if not line.startswith("#")), len(lines)
            )
            lines.insert(place, secret.hex() + "\n")
            _replace(self._file, "".join(lines))
        except OSError as error:
            raise ConfigurationError(
                f"cannot write the encryption keys to {self._file}: {error.strerror}; set the "
                "keys in DASKSCOPE_CODE_KEYS, or another folder in DASKSCOPE_DATA_DIR"
            ) from error
        self._read()
        return self._keys[CodeKey(secret).id]

    def _read(self) -> None:
        if self._file is None:
            return
        try:
            status = self._file.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            lines = self._file.read_text().splitlines()
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigurationError(
                f"cannot read the encryption keys in {self._file}: {error.strerror}"
            ) from error
        try:
            self._take(parse_key(line.strip()) for line in lines if _holds_key(line))
        except ValueError as error:
            raise ConfigurationError(f"{self._file}: {error}") from None
        self._stamp = stamp

    def _take(self, secrets_read: Iterable[bytes]) -> None:
        keys = (CodeKey(secret) for secret in secrets_read)
        self._keys = {key.id: key for key in keys}


def _holds_key(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _replace(file: Path, text: str) -> None:
    # Written as a whole or not at all, and on the disk before anything is encrypted with its keys.
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as out:
            out.write(text)
            out.flush()
            os.fsync(descriptor)
        give_to_owner_of_folder(new)
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
