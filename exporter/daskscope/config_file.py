"""Dask's configuration file of a user, changed in place: comments and other keys stay.

Dask reads all YAML files of a folder, by default ``~/.config/dask``; ``DASK_CONFIG`` names another
folder, or one file.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask.config
import yaml

from daskscope.errors import ConfigurationError

_SECTION = "daskscope"


def user_file() -> Path:
    """Return the file that daskscope's settings are written to: Dask reads it when it starts."""
    place = Path(dask.config.PATH).expanduser()
    if place.is_file() or (not place.exists() and place.suffix in (".yaml", ".yml")):
        return place
    return place / "daskscope.yaml"


def read(file: Path) -> str:
    """Return the text of ``file``; "" if it is not there.

    Raises
    ------
    ConfigurationError
        It cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from None


def with_settings(text: str, values: Mapping[str, str], file: Path) -> str:
    """Return the ``text`` of ``file`` with ``values`` set below ``daskscope:``.

    Raises
    ------
    ConfigurationError
        It is no YAML mapping, or written so that it cannot be changed in place.
    """
    try:
        before = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        # Not the error's own text, which shows the lines around it, and a token may be in them.
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise ConfigurationError(f"{file} is not valid YAML{where}; correct it first") from None
    if before is not None and not isinstance(before, dict):
        raise ConfigurationError(
            f"{file} is not a mapping, so Dask cannot read it; correct it first"
        )
    with contextlib.suppress(yaml.YAMLError, TypeError, ValueError):
        wanted = dict(before or {})
        wanted[_SECTION] = {**(wanted.get(_SECTION) or {}), **values}
        changed = text
        for key, value in values.items():
            changed = _with_one(changed, key, value)
        if yaml.safe_load(changed) == wanted:
            return changed
    raise ConfigurationError(
        f"{file} cannot be edited automatically; set these in it by hand: "
        f"{', '.join(f'{_SECTION}.{key}' for key in values)}"
    )


def write(file: Path, text: str) -> None:
    """Write ``text`` to ``file``, at once or not at all, for its owner's eyes only.

    Raises
    ------
    ConfigurationError
        It cannot be written.
    """
    target = Path(os.path.realpath(file))  # a link stays one
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                draft.unlink()
    except OSError as error:
        raise ConfigurationError(f"cannot write {file}: {error.strerror}") from None


def in_force(key: str) -> Any:
    """Return a setting as a program that starts now would have it."""
    return dask.config.get(f"{_SECTION}.{key}", None, config=dask.config.collect(dask.config.paths))


def _with_one(text: str, key: str, value: str) -> str:
    """Return ``text`` with one value set, replaced where it stands, or else put in its place."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):  # empty, or only comments
        return f"{_ended(text)}{_SECTION}:\n  {key}: {json.dumps(value)}\n"
    section = _value_of(root, _SECTION)
    if section is None:
        if root.flow_style:
            pair = f'"{_SECTION}": {{{json.dumps(key)}: {json.dumps(value)}}}'
            return _inserted(text, root, pair)
        end = root.end_mark.index if text[root.end_mark.index :].strip() else len(text)
        added = f"{_SECTION}:\n  {key}: {json.dumps(value)}\n"
        return f"{_ended(text[:end])}{added}{text[end:]}"
    start, end = section.start_mark, section.end_mark
    if not isinstance(section, yaml.MappingNode):  # null, or nothing at all
        indented = f"\n  {key}: {json.dumps(value)}"
        return text[: start.index].rstrip(" ") + indented + text[end.index :]
    found = _value_of(section, key)
    if found is not None:
        before = text[: found.start_mark.index]
        space = "" if before.endswith((" ", "\t", "\n")) else " "
        old = text[found.start_mark.index : found.end_mark.index]
        line_end = "\n" if old.endswith("\n") else ""  # a text of several lines ends with one
        return f"{before}{space}{json.dumps(value)}{line_end}{text[found.end_mark.index :]}"
    if section.flow_style:
        return _inserted(text, section, f"{json.dumps(key)}: {json.dumps(value)}")
    line = f"{key}: {json.dumps(value)}\n{' ' * start.column}"
    return f"{text[: start.index]}{line}{text[start.index :]}"


def _inserted(text: str, mapping: yaml.MappingNode, pair: str) -> str:
    """Return ``text`` with a pair at the beginning of a mapping in braces."""
    at = mapping.start_mark.index + 1
    return f"{text[:at]}{pair}{', ' if mapping.value else ''}{text[at:]}"


def _value_of(mapping: yaml.Node, key: str) -> yaml.Node | None:
    for name, value in mapping.value if isinstance(mapping, yaml.MappingNode) else ():
        if name.value == key:
            node: yaml.Node = value
            return node
    return None


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"
