"""The service's settings: one table, read from ``DASKSCOPE_*`` environment variables.

Each field of :class:`Settings` is one setting, with its default and help. Its
variable is ``DASKSCOPE_`` and its name in capitals; for a secret, that name with ``_FILE`` names a
file that holds it. The command line offers the same table as options, without msgspec and other
packages of the service: commands must start without them.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from daskscope.errors import ConfigurationError

#: Bytes of a key that users' code is encrypted with.
KEY_BYTES = 32

#: A scheme, a host name or an address of IPv4 or IPv6, and perhaps a port.
_PUBLIC_URL = re.compile(r"https?://(?:[\w.-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?/*", re.IGNORECASE)
#: A namespace of Kubernetes, perhaps with the workspace that alone may read its costs.
_NAMESPACE = re.compile(r"(.+=)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
#: A code of ISO 4217, but not that of no currency.
_CURRENCY = re.compile(r"(?!XXX)[A-Z]{3}")


def _setting(default: Any, help: str, **metadata: Any) -> Any:
    """Return the field of a setting, with what else the command line and the checks know of it.

    ``least`` and ``most`` bound a number, ``choices`` a text. ``option`` is the option's name, if
    it is not the setting's. A ``secret`` can also be given in a file; its option names that file,
    because everyone on the machine can read the value of an option.
    """
    metadata |= {"help": help}
    return field(default=default, repr=not metadata.get("secret"), metadata=metadata)


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "daskscope"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one service process.

    Raises
    ------
    ConfigurationError
        A value is out of range. The message names the variable.
    """

    data_dir: Path = field(
        default_factory=_default_data_dir,
        metadata={
            "help": "Folder of the database. Created if it is missing.",
        },
    )
    database_url: str = _setting(
        "",
        "SQLAlchemy address of the database. Default: SQLite in the data folder.",
        option="--database-url",
        secret=True,
    )
    influxdb_url: str = _setting(
        "",
        "Address of the InfluxDB, 1 or 2, to which a collector writes telemetry: the service "
        "reads time series, spans and log records from it. Default: the service reads what "
        "it received itself.",
    )
    influxdb_database: str = _setting(
        "daskscope",
        "Its database (InfluxDB 2: bucket) of metrics and log records.",
    )
    influxdb_spans_database: str = _setting(
        "daskscope_spans",
        "Its database (InfluxDB 2: bucket) of spans.",
    )
    influxdb_token: str = _setting(
        "",
        "Its token, which must be able to read both; for InfluxDB 1, USER:PASSWORD. "
        "Default: none, for an InfluxDB without authentication.",
        secret=True,
    )
    price_list: Path | None = _setting(  # noqa: RUF009 - None is immutable
        None,
        "CSV file with the price of an hour of each type of machine, by which clusters get a cost "
        "that have no prices and whose workspace has none: type,price,threads,gib. Read at the "
        "start. Default: list prices.",
    )
    opencost_url: str = _setting(
        "",
        "Address of an OpenCost, such as http://opencost.opencost:9003, by which clusters on the "
        "same Kubernetes get a cost that have no prices and whose workspace has none. "
        "Default: none.",
    )
    opencost_namespaces: tuple[str, ...] = _setting(
        (),
        "Namespace of Kubernetes whose costs all workspaces may read from that OpenCost, or "
        "WORKSPACE=NAMESPACE. For several, repeat the option, or separate them by commas in the "
        "variable. --opencost-url needs at least one.",
        option="--opencost-namespace",
    )
    prices_currency: str = _setting(
        "USD", "The currency of the price list or of OpenCost: its three-letter code."
    )
    otlp_endpoint: str = _setting(
        "",
        "Address of an OTLP/HTTP receiver, such as a collector: the service sends a log event to "
        "it for each new finding, of all workspaces. Default: none are sent.",
    )
    otlp_token: str = _setting(
        "",
        "Bearer token of that receiver. Default: none.",
        secret=True,
    )
    migrate: str = _setting(
        "apply",
        "What the service does at its start with a database of an older daskscope: "
        "apply the missing revisions, or refuse to start and print the command that "
        "applies them.",
        choices=("apply", "refuse"),
    )
    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(8690, "Port to listen on.", least=1, most=65535)
    public_url: str = _setting(
        "",
        "Address under which users reach the service, without a path. Default: http(s)://HOST:PORT.",
    )
    tls_cert: Path | None = _setting(  # noqa: RUF009 - None is immutable
        None,
        "PEM file of the certificate, followed by any intermediate certificates. If "
        "it is set, the service serves HTTPS. It is read again when it changes.",
    )
    tls_key: Path | None = _setting(  # noqa: RUF009 - None is immutable
        None,
        "PEM file of the certificate's private key, without a password.",
    )
    trusted_proxies: tuple[str, ...] = _setting(
        (),
        "Address or network of a proxy that does TLS, such as 10.0.0.0/8. It may "
        "connect without TLS, and the service trusts its X-Forwarded-For, -Proto and "
        "-Host. For several, repeat the option, or separate them by commas in the "
        "variable.",
        option="--trusted-proxy",
    )
    notify_networks: tuple[str, ...] = _setting(
        (),
        "Address or network that notifications may go to although it is not public, "
        "such as 10.1.2.3 or 10.1.0.0/16. For several, repeat the option, or "
        "separate them by commas in the variable. Default: none, so notifications go "
        "to public addresses only.",
        option="--notify-network",
    )
    metrics_token: str = _setting(
        "",
        "Secret that Prometheus sends to read /metrics; at least 16 characters. "
        "Default: nobody may read it.",
        secret=True,
    )
    code_keys: tuple[str, ...] = _setting(
        (),
        "Keys that encrypt users' code in the database, newest first, separated by "
        "commas: 64 hex digits each, as 'openssl rand -hex 32' makes. Default: the "
        "keys in the file code.keys in the data folder, which the first start "
        "creates.",
        secret=True,
    )
    oidc_issuer: str = _setting(
        "",
        "Address of an OpenID Connect provider through which people may sign in, exactly as "
        "the provider reports it. Default: none.",
    )
    oidc_client_id: str = _setting("", "The client id that the provider assigned to this service.")
    oidc_client_secret: str = _setting(
        "",
        "The secret that the provider assigned to this service.",
        secret=True,
    )
    oidc_name: str = _setting("single sign-on", "The provider's name on the sign-in button.")
    oidc_domains: tuple[str, ...] = _setting(
        (),
        "Domain whose e-mail addresses the provider may sign in. For several, repeat "
        "the option, or separate them by commas in the variable. Default: all.",
        option="--oidc-domain",
    )
    oidc_workspace: str = _setting("default", "The workspace in which the provider assigns roles.")
    oidc_role: str = _setting(
        "none",
        "The role in that workspace of someone who signs in through the provider for "
        "the first time. none: only people who have an account or an invitation may "
        "sign in.",
        choices=("none", "viewer", "member", "owner"),
    )
    oidc_claim: str = _setting("groups", "The provider's claim that decides on roles.")
    oidc_roles: tuple[str, ...] = _setting(
        (),
        "VALUE=ROLE: users with VALUE in that claim get ROLE, again at each sign-in; "
        "users with none of the values lose their role in the workspace. For "
        "several, repeat the option, or separate them by commas in the variable. "
        "Default: the claim decides nothing.",
        option="--oidc-role-of",
    )
    log_format: str = _setting(
        "text",
        "Format of log lines on standard error: text, or json (one object per line).",
        choices=("text", "json"),
    )
    log_level: str = _setting(
        "info",
        "The lowest level that is logged: info (includes each request), warning or error.",
        choices=("info", "warning", "error"),
    )
    max_body_bytes: int = _setting(
        16 * 1024 * 1024,
        "The largest OTLP request that is accepted, after decompression.",
        least=1,
    )
    quota_clusters: int = _setting(
        1_000_000,
        "Clusters that a workspace may store; heartbeats of further clusters are refused for "
        "now (429). 0: any number.",
        least=0,
    )
    quota_series: int = _setting(
        10_000_000,
        "Time series that a workspace may store; points of further series are left out, and "
        "the answer reports them as OTLP's partial success. 0: any number.",
        least=0,
    )
    quota_bytes: int = _setting(
        1024**4,
        "About how many bytes of the database a workspace may use; beyond it, data for the "
        "workspace is refused for now (429). 0: any number.",
        least=0,
    )
    silent_after: float = _setting(
        60.0,
        "Seconds of silence after which a cluster counts as lost (at least three heartbeats).",
        least=1,
    )
    session_idle: float = _setting(
        7 * 86400.0,
        "Seconds without a request after which a session ends (a page that updates itself "
        "makes requests). Every session ends after 30 days.",
        least=300,
    )
    connection_idle: float = _setting(
        60.0,
        "Seconds after which a connection that carries no request is closed.",
        least=0.1,
    )
    retention_interval: float = _setting(
        3600.0,
        "Seconds between two rounds of removing data that is older than 'daskscope "
        "retention' allows; the first round starts some minutes after the service. 0: none; "
        "run 'daskscope retention run' instead.",
        least=0,
    )
    threads: int = _setting(16, "Requests that are processed at the same time.", least=1)
    queue_size: int = _setting(
        12,
        "Requests that may wait to be written; further ones are refused for now. A number "
        "below --threads leaves threads free for reading while the disk is slow.",
        least=1,
    )

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(self):
            _check(variable(setting.name), getattr(self, setting.name), **setting.metadata)
        if self.influxdb_url and not self.influxdb_url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"DASKSCOPE_INFLUXDB_URL is {self.influxdb_url!r}; it must be an address such as "
                "http://127.0.0.1:8086"
            )
        if self.otlp_endpoint and not self.otlp_endpoint.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"DASKSCOPE_OTLP_ENDPOINT is {self.otlp_endpoint!r}; it must be an address such as "
                "http://127.0.0.1:4318"
            )
        if self.opencost_url and not self.opencost_url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"DASKSCOPE_OPENCOST_URL is {self.opencost_url!r}; it must be an address such as "
                "http://opencost.opencost:9003"
            )
        if self.opencost_url and self.price_list is not None:
            raise ConfigurationError(
                "DASKSCOPE_OPENCOST_URL and DASKSCOPE_PRICE_LIST are both set; costs are by one of "
                "them"
            )
        if bool(self.opencost_url) != bool(self.opencost_namespaces):
            pair = ("opencost_url", "opencost_namespaces")
            given, missing = pair if self.opencost_url else pair[::-1]
            raise ConfigurationError(
                f"{variable(given)} is set, {variable(missing)} is not; costs of OpenCost need both"
            )
        for one in self.opencost_namespaces:
            if not _NAMESPACE.fullmatch(one):
                raise ConfigurationError(
                    f"DASKSCOPE_OPENCOST_NAMESPACES has {one!r}; it must be a namespace of "
                    "Kubernetes, such as dask, or WORKSPACE=NAMESPACE"
                )
        if not _CURRENCY.fullmatch(self.prices_currency):
            raise ConfigurationError(
                f"DASKSCOPE_PRICES_CURRENCY is {self.prices_currency!r}; it must be the "
                "three-letter code of a currency, such as USD or EUR"
            )
        if urlsplit(self.public_url).path.strip("/"):
            raise ConfigurationError(
                f"DASKSCOPE_PUBLIC_URL is {self.public_url!r}; pages cannot be below a path. "
                "It must be an address such as https://monitor.example, with a host name of its own"
            )
        if self.public_url and not _PUBLIC_URL.fullmatch(self.public_url):
            raise ConfigurationError(
                f"DASKSCOPE_PUBLIC_URL is {self.public_url!r}; it must be http:// or https://, a "
                "host name, and perhaps a port, such as https://monitor.example"
            )
        if 0 < len(self.metrics_token) < 16:
            raise ConfigurationError(
                "DASKSCOPE_METRICS_TOKEN has fewer than 16 characters, so it can be guessed; "
                "'openssl rand -hex 32' makes one"
            )
        for place, key in enumerate(self.code_keys, 1):
            try:
                parse_key(key)
            except ConfigurationError as error:
                raise ConfigurationError(f"DASKSCOPE_CODE_KEYS, key {place}: {error}") from None
        if (self.tls_cert is None) != (self.tls_key is None):
            given, missing = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            raise ConfigurationError(
                f"{variable(given)} is set, {variable(missing)} is not; HTTPS needs both"
            )
        for name in ("trusted_proxies", "notify_networks"):
            for network in getattr(self, name):
                try:
                    ipaddress.ip_network(network, strict=False)
                except ValueError:
                    raise ConfigurationError(
                        f"{variable(name)} has {network!r}; it must be an address or a network"
                        ", such as 10.0.0.7 or 10.0.0.0/8"
                    ) from None

        self._check_oidc()

    def _check_oidc(self) -> None:
        if self.oidc_issuer and not self.oidc_client_id:
            raise ConfigurationError(
                "DASKSCOPE_OIDC_ISSUER is set but DASKSCOPE_OIDC_CLIENT_ID is not; the "
                "provider assigns it when you register this service there"
            )
        for rule in self.oidc_roles:
            value, _, role = rule.rpartition("=")
            if not value or role not in ("viewer", "member", "owner"):
                raise ConfigurationError(
                    f"DASKSCOPE_OIDC_ROLES has {rule!r}; it must be VALUE=viewer, VALUE=member or "
                    "VALUE=owner"
                )

    @property
    def database(self) -> str:
        """The SQLAlchemy address in force."""
        return self.database_url or f"sqlite:///{self.data_dir / 'daskscope.db'}"

    @property
    def url(self) -> str:
        """The address in force under which users reach the service, without a slash at the end."""
        scheme = "http" if self.tls_cert is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (self.public_url or f"{scheme}://{host}:{self.port}").rstrip("/")

    @property
    def secure(self) -> bool:
        """Whether users reach the service by HTTPS."""
        return self.url.startswith("https:")

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, **overrides: Any
    ) -> Settings:
        """Return the settings of ``environment``; an override that is not None wins over it.

        Raises
        ------
        ConfigurationError
            A variable holds something that is not of its type, or is out of range.
        """
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for setting in dataclasses.fields(cls):
            name = variable(setting.name)
            override = overrides.pop(setting.name, None)
            text, file = environment.get(name), None
            if setting.metadata.get("secret"):
                file = overrides.pop(f"{setting.name}_file", None)
                file = file or environment.get(f"{name}_FILE")
            if override not in (None, ()):  # (): an option that may be repeated, and was not given
                values[setting.name] = override
            elif text := _read(f"{name}_FILE", Path(file)) if file else text:
                values[setting.name] = _parse(name, str(setting.type), text)
        if overrides:
            raise TypeError(f"there are no such settings: {', '.join(overrides)}")
        return cls(**values)


def parse_key(text: str) -> bytes:
    """Return the key that ``text`` spells.

    Raises
    ------
    ConfigurationError
        It is none. The message does not repeat it.
    """
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"an encryption key has {2 * KEY_BYTES} hex digits, and this one has not; "
            f"'openssl rand -hex {KEY_BYTES}' makes one"
        )
    return key


def option(setting: dataclasses.Field[Any]) -> str:
    """Return the option of ``daskscope serve`` that gives ``setting``, a field of Settings.

    For a secret, it names a file, and ends with ``-file``.
    """
    file = "-file" if setting.metadata.get("secret") else ""
    named: str = setting.metadata.get("option", f"--{setting.name.replace('_', '-')}{file}")
    return named


def variable(name: str) -> str:
    """Return the environment variable of the setting of this name."""
    return f"DASKSCOPE_{name.upper()}"


def _check(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    **_: Any,
) -> None:
    if least is not None and not least <= value <= (math.inf if most is None else most):
        bounds = f"at least {least}" if most is None else f"{least} to {most}"
        raise ConfigurationError(f"{name} is {value}; it must be {bounds}")
    if choices and value not in choices:
        raise ConfigurationError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")


def _read(name: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise ConfigurationError(f"{name} is {file}, which cannot be read: {why}") from None


def _parse(name: str, kind: str, text: str) -> Any:
    if kind == "tuple[str, ...]":
        # In a file, such as one of keys, an item may have a line, and a line may be a comment.
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return tuple(part.strip() for part in ",".join(lines).split(",") if part.strip())
    try:
        return {"int": int, "float": float, "str": str}.get(kind, Path)(text)
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}; it must be a number") from None
