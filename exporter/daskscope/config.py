"""Reads the settings from Dask's configuration into one immutable, checked value.

Over 400 lines: what a setting may be is checked beside its field, setting by setting.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

import yaml
from dask.utils import parse_bytes, parse_timedelta

from daskscope import protocol
from daskscope.defaults import argument_name, configured, leaves
from daskscope.errors import ConfigurationError
from daskscope.protocol import MAX_NAME, NO_CURRENCY, PRICED
from daskscope.slow_patterns import why_slow
from daskscope.version import __version__

#: Settings that only a client heeds: its scheduler does not get them.
CLIENTS_OWN = frozenset({"notebook_summary"})

#: A higher price is taken for a mistake.
MAX_PRICE = 1e9


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one plugin. Durations in seconds, sizes in bytes.

    The repr omits the token, because reprs end up in logs. A client sends settings to its scheduler
    by name, see :func:`by_name`: a setting whose meaning changes needs a new name.
    """

    endpoint: str
    token: str | None = field(repr=False)
    workspace: str | None
    disabled: bool
    name: str | None
    interval: float
    tags: dict[str, str]
    otlp_enabled: bool
    otlp_only: bool
    otlp_histogram: str
    code_transmit: bool
    code_frames: int
    code_context_lines: int
    code_max_bytes: int
    exceptions_transmit: bool
    profile_transmit: bool
    profile_interval: float
    stream_transmit: bool
    logs_transmit: bool
    logs_level: int
    traces_transmit: bool
    traces_tasks_per_group: int
    traces_max_spans_per_second: int
    events_allow: tuple[str, ...]
    idle_timeout: float | None
    idle_grace: float
    prices: protocol.Prices | None
    instances_transmit: bool
    instances_type: str | None
    notebook_summary: bool
    spool_directory: str | None
    spool_max_bytes: int
    scrub: tuple[str, ...]

    def can_report(self) -> bool:
        """Return whether data has a destination: a service with a token, or OTLP only."""
        return self.otlp_only or self.token is not None


def settings(**overrides: Any) -> Settings:
    """Return the settings in force: Dask's configuration, below ``overrides`` that are not None.

    Overrides are named as in ``daskscope.yaml``, with underscores and, for a nested one, a double
    underscore: ``settings(computation__code__transmit=False)``.

    Raises
    ------
    ConfigurationError
        A setting has the wrong type, is invalid or is unknown.
    """
    values = configured()
    known = {argument_name(path): path for path in values}
    for name, value in overrides.items():
        if name not in known:
            raise ConfigurationError(
                f"daskscope has no setting {name!r}; the settings are: {', '.join(known)}"
            )
        if value is not None:
            values[known[name]] = value
    return _checked(values)


def path_of(name: str) -> str:
    """Return the name in ``daskscope.yaml`` of a field of :class:`Settings`."""
    paths = {
        argument_name(path.removeprefix("computation.")).replace("__", "_"): path
        for path, _ in leaves()
    }
    return paths.get(name, name)


def by_name(chosen: Settings) -> dict[str, Any]:
    """Return settings as a client sends them to its scheduler, which may run another daskscope.

    It contains only values of the standard library. A pickled :class:`Settings` would be read by
    position, so a version with another order of fields would confuse two switches.
    """
    return {name: value for name, value in asdict(chosen).items() if name not in CLIENTS_OWN}


def of_client(sent: Mapping[str, Any], version: str) -> Settings:
    """Return the settings that a client of that ``version`` of daskscope sent by :func:`by_name`.

    Settings that the client does not know get their default here. But switches that send data are
    off, because the client's user could not refuse them.

    Raises
    ------
    ConfigurationError
        The client has a setting that is unknown here. It may be an opt-out.
    """
    values: dict[str, Any] = {
        name: False if default is True else default
        for name, default in asdict(_checked(dict(leaves()))).items()
    }
    unknown = sent.keys() - values.keys()
    try:
        values.update(sent)
        if values["prices"] is not None:
            values["prices"] = protocol.Prices(**values["prices"])
        if not unknown:
            return Settings(**values)
    except TypeError:
        unknown = {"prices"}
    raise ConfigurationError(
        f"the scheduler runs daskscope {__version__}, which does not know the setting "
        f"{', '.join(sorted(unknown))} of this client's daskscope {version}; install the same "
        "version on both sides"
    )


def _checked(values: Mapping[str, Any]) -> Settings:
    return Settings(
        endpoint=_endpoint(values),
        token=_text_or_none(values, "token"),
        workspace=_name_or_none(values, "workspace"),
        disabled=_flag(values, "disabled"),
        name=_name_or_none(values, "name"),
        interval=_duration(values, "interval", least=0.1),
        tags=_tags(values),
        otlp_enabled=_flag(values, "otlp.enabled"),
        otlp_only=_otlp_only(values),
        otlp_histogram=_one_of(values, "otlp.histogram", "all", "few", "none"),
        code_transmit=_flag(values, "computation.code.transmit"),
        code_frames=_count(values, "computation.code.frames"),
        code_context_lines=_count(values, "computation.code.context-lines"),
        code_max_bytes=_bytes(values, "computation.code.max-bytes"),
        exceptions_transmit=_flag(values, "computation.exceptions.transmit"),
        profile_transmit=_flag(values, "profile.transmit"),
        profile_interval=_duration(values, "profile.interval", least=0.1),
        stream_transmit=_flag(values, "stream.transmit"),
        logs_transmit=_flag(values, "logs.transmit"),
        logs_level=_level(values, "logs.level"),
        traces_transmit=_flag(values, "traces.transmit"),
        traces_tasks_per_group=_count(values, "traces.tasks-per-group"),
        traces_max_spans_per_second=_count(values, "traces.max-spans-per-second"),
        events_allow=_texts(values, "events.allow"),
        idle_timeout=_idle_timeout(values),
        idle_grace=_duration(values, "idle.grace", least=0.0),
        prices=_prices(values),
        instances_transmit=_flag(values, "instances.transmit"),
        instances_type=_name_or_none(values, "instances.type"),
        notebook_summary=_flag(values, "notebook.summary"),
        spool_directory=_spool_directory(values),
        spool_max_bytes=_bytes(values, "spool.max-bytes"),
        scrub=_patterns(values, "scrub"),
    )


def in_force(chosen: Settings) -> dict[str, str]:
    """Return the settings that decide what is sent, as texts, by their names in ``daskscope.yaml``.

    Settings that have a field of their own in rows are left out. So are those that contain
    addresses, paths or secrets: ``endpoint``, ``token``, ``spool``, ``scrub``.
    """

    def seconds(value: float) -> str:
        return f"{value:g}s"

    def flag(value: bool) -> str:
        return "true" if value else "false"

    return {
        "otlp.enabled": flag(chosen.otlp_enabled),
        "computation.code.transmit": flag(chosen.code_transmit),
        "computation.exceptions.transmit": flag(chosen.exceptions_transmit),
        "profile.transmit": flag(chosen.profile_transmit),
        "profile.interval": seconds(chosen.profile_interval),
        "stream.transmit": flag(chosen.stream_transmit),
        "logs.transmit": flag(chosen.logs_transmit),
        "logs.level": logging.getLevelName(chosen.logs_level),
        "traces.transmit": flag(chosen.traces_transmit),
        "traces.tasks-per-group": str(chosen.traces_tasks_per_group),
        "instances.transmit": flag(chosen.instances_transmit),
        "events.allow": ", ".join(chosen.events_allow)[:MAX_NAME],
        "idle.grace": seconds(chosen.idle_grace),
    }


def _wrong(path: str, value: Any, right: str) -> ConfigurationError:
    return ConfigurationError(f"daskscope.{path} is {value!r}; it must be {right}")


def _endpoint(values: Mapping[str, Any]) -> str:
    value = values["endpoint"]
    right = "an http:// or https:// address, such as http://127.0.0.1:8690"
    if not isinstance(value, str):
        raise _wrong("endpoint", value, right)
    try:
        parts = urlsplit(value)
        has_port = parts.port != 0  # reading the port checks it
    except ValueError:
        raise _wrong("endpoint", value, right) from None
    if "@" in parts.netloc:
        # Without the value: the message is logged and shown in notebooks.
        raise ConfigurationError(
            "daskscope.endpoint holds a user or a password; it must be an address without "
            "them: daskscope.token is what authenticates"
        )
    is_address = parts.scheme in ("http", "https") and parts.hostname and has_port
    if not is_address or parts.query or parts.fragment or re.search(r"\s", value):
        raise _wrong("endpoint", value, right)
    return value.rstrip("/")


def _text_or_none(values: Mapping[str, Any], path: str) -> str | None:
    value = values[path]
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        # Without the value: it may be a token.
        raise _wrong(path, type(value).__name__, "a string or null")
    return value.strip()


def _name_or_none(values: Mapping[str, Any], path: str) -> str | None:
    value = values[path]
    # Dask turns texts in variables and files into numbers if it can: 2024.
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return _text_or_none(values, path)


def _mapping(value: Any, read: Callable[[str], Any]) -> Any:
    """Return the mapping in a YAML text: Dask does not parse a variable that contains one."""
    if not isinstance(value, str):
        return value
    try:
        return read(value) if value.strip() else {}
    except (yaml.YAMLError, ValueError, RecursionError):
        return value


def _texts_alone(text: str) -> Any:
    # Without types, so that 1.10 stays "1.10".
    return yaml.load(text, yaml.BaseLoader)  # noqa: S506 - it creates only strings


def _flag(values: Mapping[str, Any], path: str) -> bool:
    value = values[path]
    if not isinstance(value, bool):
        raise _wrong(path, value, "true or false")
    return value


def _otlp_only(values: Mapping[str, Any]) -> bool:
    only = _flag(values, "otlp.only")
    if only and values["otlp.enabled"] is False:
        raise _wrong("otlp.only", only, "false if daskscope.otlp.enabled is false")
    return only


def _one_of(values: Mapping[str, Any], path: str, *known: str) -> str:
    if values[path] not in known:
        raise _wrong(path, values[path], f"one of {', '.join(known)}")
    return str(values[path])


def _duration(values: Mapping[str, Any], path: str, least: float) -> float:
    value = values[path]
    right = f'a duration of {least:g} s to a day, such as "10s"'
    try:
        seconds = float(parse_timedelta(value))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise _wrong(path, value, right) from None
    if not least <= seconds <= 86_400:
        raise _wrong(path, value, right)
    return seconds


def _idle_timeout(values: Mapping[str, Any]) -> float | None:
    path, value = "idle.timeout", values["idle.timeout"]
    if value is None:
        return None
    right = 'a duration of at least a second, such as "1h", or null'
    try:
        seconds = float(parse_timedelta(value))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise _wrong(path, value, right) from None
    if not 1.0 <= seconds < float("inf"):
        raise _wrong(path, value, right)
    return seconds


def _level(values: Mapping[str, Any], path: str) -> int:
    value = values[path]
    level = logging.getLevelNamesMapping().get(value.upper()) if isinstance(value, str) else None
    if not level:
        raise _wrong(path, value, "DEBUG, INFO, WARNING, ERROR or CRITICAL")
    return level


def _prices(values: Mapping[str, Any]) -> protocol.Prices | None:
    value = _mapping(values["prices"], yaml.safe_load)
    right = (
        "a mapping of a currency and prices per hour, such as {currency: USD, thread: 0.06}, or "
        f"none; prices can be set for: {', '.join(PRICED)}"
    )
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return protocol.Prices(NO_CURRENCY, {})
    if not isinstance(value, Mapping):
        raise _wrong("prices", value, right)
    if not value:
        return None
    given = dict(value)
    currency = str(given.pop("currency", None))
    if not re.fullmatch(f"(?!{NO_CURRENCY})[A-Z]{{3}}", currency) or not given:
        raise _wrong("prices", value, right)
    for what, price in given.items():
        number = isinstance(price, int | float) and not isinstance(price, bool)
        if what not in PRICED or not number or not 0 <= price < MAX_PRICE:
            raise _wrong("prices", value, right)
    return protocol.Prices(currency, {what: float(price) for what, price in given.items()})


def _spool_directory(values: Mapping[str, Any]) -> str | None:
    # Unchecked: the folder is on the scheduler's machine, but a client may be reading the settings.
    value = values["spool.directory"]
    if value is not None and not isinstance(value, str):
        raise _wrong("spool.directory", value, 'a folder, null, or "" for none')
    return value


def _count(values: Mapping[str, Any], path: str) -> int:
    value = values[path]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(path, value, "a whole number, 0 or more")
    return value


def _bytes(values: Mapping[str, Any], path: str) -> int:
    value = values[path]
    right = 'a size, such as "8 KiB"'
    try:
        size = int(parse_bytes(value))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise _wrong(path, value, right) from None
    if size < 0:
        raise _wrong(path, value, right)
    return size


def _tags(values: Mapping[str, Any]) -> dict[str, str]:
    value = _mapping(values["tags"], _texts_alone)
    if not isinstance(value, Mapping):
        raise _wrong("tags", value, "a mapping, such as {project: etl}")
    tags = {str(key): str(text) for key, text in value.items()}
    if any(len(text) > MAX_NAME for pair in tags.items() for text in pair):
        raise _wrong("tags", value, f"of names and strings of at most {MAX_NAME} characters")
    return tags


def _texts(values: Mapping[str, Any], path: str) -> tuple[str, ...]:
    value = values[path]
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise _wrong(path, value, "a list of strings")
    return tuple(value)


def _patterns(values: Mapping[str, Any], path: str) -> tuple[str, ...]:
    patterns = _texts(values, path)
    for pattern in patterns:
        try:
            re.compile(pattern)
            slow = why_slow(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise _wrong(path, pattern, f"a regular expression ({error})") from None
        if slow is not None:
            right = (
                f"a regular expression that never takes long, and this one may: {slow}. Write "
                "what ends a repeat ([^@]*@ instead of .*@), or make the repeat possessive "
                "(++ or *+)"
            )
            raise _wrong(path, pattern, right)
    return patterns
