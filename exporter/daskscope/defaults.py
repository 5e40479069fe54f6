"""The settings with their defaults, and the values that users set below ``daskscope:``.

``daskscope.yaml`` beside this file lists every setting with its default and its meaning.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import dask.config
import yaml

from daskscope.errors import ConfigurationError

#: The defaults, as Dask's configuration holds them below ``daskscope``.
DEFAULTS: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "daskscope.yaml").read_text(encoding="utf-8")
)["daskscope"]


def leaves(tree: Mapping[str, Any] = DEFAULTS, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, default) of every setting in ``daskscope.yaml``."""
    for key, value in tree.items():
        if _is_section(value):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def argument_name(path: str) -> str:
    """Return the name of a setting as a Python argument: ``computation__code__max_bytes``."""
    return path.replace(".", "__").replace("-", "_")


def configured() -> dict[str, Any]:
    """Return each setting's value in Dask's configuration, or its default, by its dotted path.

    Raises
    ------
    ConfigurationError
        A setting is unknown, or a value stands where a group of settings belongs. daskscope never
        ignores either, because it may be a misspelled opt-out.
    """
    return dict(_values(dask.config.get("daskscope", None), DEFAULTS, ""))


def _values(written: Any, defaults: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    if written is None:
        yield from leaves(defaults, prefix)
        return
    if not isinstance(written, Mapping):
        where = f"daskscope.{prefix}".rstrip(".")
        # Without a string's value: it may be a token.
        shown = (
            repr(written)
            if isinstance(written, bool | int | float)
            else f"a {type(written).__name__}"
        )
        there = ", ".join(f"daskscope.{path}" for path, _ in leaves(defaults, prefix))
        raise ConfigurationError(f"{where} is {shown}; it must hold these settings: {there}")
    values = {str(key).replace("_", "-"): value for key, value in written.items()}
    for key in values:
        if key not in defaults:
            near = get_close_matches(key, defaults, n=1) or defaults
            there = " or ".join(f"daskscope.{prefix}{name}" for name in near)
            raise ConfigurationError(
                f"unknown setting daskscope.{prefix}{key}. Did you mean {there}?"
            )
    for key, default in defaults.items():
        if _is_section(default):
            yield from _values(values.get(key), default, f"{prefix}{key}.")
        else:
            yield prefix + key, values.get(key, default)


def _is_section(default: Any) -> bool:
    # A default that is an empty mapping is a setting, not a section.
    return isinstance(default, Mapping) and bool(default)


def _add_defaults() -> None:
    """Add the defaults to Dask's configuration without changing users' values."""
    written = copy.deepcopy(dask.config.config.get("daskscope"))
    dask.config.update_defaults({"daskscope": DEFAULTS})
    # In Dask a default that is a mapping replaces a single value, such as ``logs: false``, or tags
    # that a variable contains as text. Restore these.
    if written is not None and not isinstance(written, Mapping):
        dask.config.config["daskscope"] = written
    elif written is not None:
        _put_back(written, DEFAULTS, dask.config.config["daskscope"])


def _put_back(
    written: Mapping[str, Any], defaults: Mapping[str, Any], config: dict[str, Any]
) -> None:
    for key, value in written.items():
        section = defaults.get(str(key).replace("_", "-"))
        if not isinstance(section, Mapping):
            continue
        if value is None and key != "prices":  # Dask reads the text none as None
            continue
        name = dask.config.canonical_name(str(key), config)
        if isinstance(value, Mapping):
            _put_back(value, section, config[name])
        else:
            config[name] = value


_add_defaults()
