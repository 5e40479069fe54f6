"""What commands share: options made from the settings, the database, text, hints on packages."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from daskscope.errors import install_with
from daskscope.one_line import one_line
from daskscope_service.settings import Settings, option, variable

if TYPE_CHECKING:
    from sqlalchemy import Engine

F = TypeVar("F", bound=Callable[..., Any])

_KINDS: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "Path": click.Path(path_type=Path, file_okay=False),
    "Path | None": click.Path(path_type=Path, dir_okay=False),
    "tuple[str, ...]": str,
}


def settings_options(*names: str) -> Callable[[F], F]:
    """Add options for the settings of these names; for all, if no name is given."""

    def decorate(command: F) -> F:
        for setting in reversed(dataclasses.fields(Settings)):
            if names and setting.name not in names:
                continue
            name, kind, choices = setting.name, str(setting.type), setting.metadata.get("choices")
            text = setting.metadata["help"]
            if option(setting).endswith("-file"):
                text = f"File that holds {variable(name)}, instead of the variable."
                name, kind = f"{name}_file", "Path | None"
            command = click.option(
                option(setting),
                name,
                type=click.Choice(choices) if choices else _KINDS[kind],
                multiple=kind.startswith("tuple"),
                help=f"{text} [{variable(name)}]",
            )(command)
        return command

    return decorate


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Name the extra to install if a package that it brings is missing."""
    try:
        yield
    except ImportError as error:  # Dask raises it itself where pandas or NumPy is missing
        if (error.name or "").startswith("daskscope"):
            raise
        what = f"the package {error.name}" if error.name else "packages that are not installed"
        raise click.ClickException(f"this needs {what}: {install_with(name)}") from None


@contextmanager
def database(options: dict[str, Any]) -> Iterator[tuple[Settings, Engine]]:
    """Open the database of the settings in ``options`` and in the environment.

    Where it fails, for example because its disk is full, the command ends with that.
    """
    with extra("service"):
        from sqlalchemy.exc import OperationalError

        from daskscope_service.db.engine import open_database
    settings = Settings.from_environment(**options)
    engine = open_database(settings)
    try:
        yield settings, engine
    except OperationalError as error:
        raise click.ClickException(f"the database failed: {error.orig}") from error
    finally:
        engine.dispose()


def say(text: str, indent: str = "") -> None:
    """Print ``text``, in which users' names may be, on lines of a width that can be read."""
    lines = textwrap.fill(one_line(text), 88, initial_indent=indent, subsequent_indent=indent)
    click.echo(lines)


def check_workspace(engine: Engine, workspace: str) -> None:
    """Raise a usage error that names the workspaces, if there is none called ``workspace``."""
    from daskscope_service.retention.expiry import workspaces

    known = workspaces(engine)
    if workspace not in known:
        raise click.UsageError(
            f"there is no workspace {workspace!r}; the workspaces are: {', '.join(known)}"
        )
