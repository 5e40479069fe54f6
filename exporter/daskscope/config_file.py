"""The file in Dask's configuration folder that only ``daskscope login`` writes.

Dask merges all YAML files of its folder, by default ``~/.config/dask``, so other settings belong in
other files there.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

import dask.config
import yaml

from daskscope.errors import ConfigurationError

_HEADER = """\
# Written by `daskscope login`, which replaces this whole file: put other settings into another file
# of this folder, such as dask.yaml.
"""

_SECTION, _KEYS = "daskscope", ("endpoint", "token")

_BY_HAND = (
    "set daskscope.endpoint and daskscope.token there yourself; `daskscope token create` on the "
    "service's machine makes a token"
)


def own_file() -> Path:
    """Return the path of the file that a login writes. Dask reads the file when it starts.

    Raises
    ------
    ConfigurationError
        The file must not be replaced: ``DASK_CONFIG`` names a file of the user's, or the file
        contains other settings of the user.
    """
    place = Path(dask.config.PATH).expanduser()
    if place.is_file() or (not place.exists() and place.suffix in (".yaml", ".yml")):
        raise ConfigurationError(
            f"DASK_CONFIG names one file, {place}, and daskscope login changes no file of yours. "
            f"Let DASK_CONFIG name a folder, or {_BY_HAND}"
        )
    file = place / "daskscope.yaml"
    if not _is_ours(_read(file)):
        raise ConfigurationError(
            f"{file} holds more than daskscope login has written, and a login replaces the whole "
            "file. Move your own lines to another file of that folder, such as dask.yaml, and "
            f"remove {file.name}; or {_BY_HAND}"
        )
    return file


def write(file: Path, *, endpoint: str, token: str) -> None:
    """Write a login to ``file`` atomically, readable by its owner only.

    Raises
    ------
    ConfigurationError
        The file cannot be written.
    """
    target = Path(os.path.realpath(file))  # keeps a symbolic link
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8") as stream:
                stream.write(
                    f"{_HEADER}{_SECTION}:\n"
                    f"  endpoint: {json.dumps(endpoint)}\n"
                    f"  token: {json.dumps(token)}\n"
                )
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                draft.unlink()
    except OSError as error:
        raise ConfigurationError(f"cannot write {file}: {error.strerror}") from None


def in_force(key: str) -> Any:
    """Return the value of a setting in a program that starts now."""
    return dask.config.get(f"{_SECTION}.{key}", None, config=dask.config.collect(dask.config.paths))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from None


def _is_ours(text: str) -> bool:
    """Return whether a login can replace a file with that ``text`` without losing settings."""
    rest = text.removeprefix(_HEADER)
    if "#" in rest:
        return False
    try:
        held = yaml.safe_load(rest)
    except (yaml.YAMLError, ValueError):
        return False
    if not held:
        return True
    section = held.get(_SECTION) if isinstance(held, dict) and set(held) == {_SECTION} else False
    return section is None or (isinstance(section, dict) and set(section) <= set(_KEYS))
