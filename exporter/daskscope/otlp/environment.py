"""Where OTLP goes and how, as the ``OTEL_EXPORTER_OTLP_*`` variables say.

Each variable may be set for one signal (``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT``) or for all; an
empty one counts as not set. They are read here, not by the SDK, so that both protocols and all its
versions read them the same, and so that a wrong value costs a warning and not the signal.

Nothing global is set, and nothing but the variables is read: an application's own providers stay as
they are.

Without an endpoint it is the daskscope service, over HTTP and with its token. Where some signals
have one, headers and certificates that are set for all are for those, and not for the service. With
``otlp.only`` a signal without an endpoint is not sent.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import Histogram, Sum
from opentelemetry.sdk.resources import Attributes, OTELResourceDetector, Resource
from opentelemetry.util.re import parse_env_headers

from daskscope import names, protocol
from daskscope.config import Settings
from daskscope.delivery.warn_once import WarnOnce
from daskscope.errors import install_with
from daskscope.otlp.delta_temporality import Kinds
from daskscope.otlp.sdk_private import (
    OTLPLogExporter,
    draw_no_pauses,
    grpc_log_exporter,
    hide_variable,
)
from daskscope.otlp.transport import HttpTransport
from daskscope.scrubbing import Scrubber

if TYPE_CHECKING:
    from daskscope.otlp.grpc_transport import GrpcTransport

logger = logging.getLogger("daskscope")

#: The instrumentation scope of all that is emitted.
SCOPE = "daskscope"

Signal = Literal["metrics", "traces", "logs"]

#: Seconds that sending may take, retries included, unless the environment says otherwise.
TIMEOUT = 10.0

_OVER_HTTP: dict[Signal, Any] = {
    "metrics": OTLPMetricExporter,
    "traces": OTLPSpanExporter,
    "logs": OTLPLogExporter,
}

# The kinds of metrics that are sent in increments, by preference.
_INCREMENTS: dict[str, Kinds] = {
    "CUMULATIVE": (),
    # Of counters that are observed, as ours are, totals take less memory than increments.
    "LOWMEMORY": (Histogram,),
    "DELTA": (Sum, Histogram),
}

_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_AGGREGATION = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"


class OTLPEnvironment:
    """Makes the SDK's exporter of each signal. ``sessions`` are what these send with."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # As they are now: a later report of where something went names where it did go.
        self._environment = {
            name: value for name, value in os.environ.items() if name.startswith("OTEL_")
        }
        # Whether a signal goes over gRPC, once that is known: by then it does so.
        self._grpc: dict[Signal, bool] = {}
        self._warn_once = WarnOnce()
        self.sessions: dict[Signal, HttpTransport | GrpcTransport] = {}

    def exporter(self, signal: Signal) -> Any:
        """Return an exporter of the SDK, or None where a signal is not sent. Raises what the SDK
        raises.
        """
        return self._made(signal) if self.goes_somewhere(signal) else None

    def _made(self, signal: Signal) -> Any:
        if self._goes_over_grpc(signal):
            return self._over_grpc(signal)
        # Whose credentials come from a plug-in has a session of its own.
        if self._variable(signal, "CREDENTIAL_PROVIDER", "OTEL_PYTHON_EXPORTER_OTLP_HTTP"):
            return self._over_http(signal)
        session = self.sessions[signal] = HttpTransport(
            overdue=2 * self.timeout(signal),
            presents=self._credential(signal, "CLIENT_CERTIFICATE") is not None,
        )
        made = self._over_http(signal, session=session)
        draw_no_pauses(made)
        return made

    def address(self, signal: Signal) -> str:
        """Return where a signal goes, for people: without credentials."""
        endpoint = self._variable(signal, "ENDPOINT")
        if endpoint is None or not self._goes_over_grpc(signal):
            endpoint = self._http_endpoint(signal)
        scheme, separator, rest = endpoint.rpartition("://")
        authority, slash, path = rest.partition("/")
        return "".join((scheme, separator, authority.rpartition("@")[2], slash, path))

    def is_elsewhere(self, signal: Signal) -> bool:
        """Return whether a signal goes to another place than the daskscope service."""
        return self._variable(signal, "ENDPOINT") is not None

    def goes_somewhere(self, signal: Signal) -> bool:
        """Return whether a signal is sent at all: not to the service with ``otlp.only``."""
        return self.is_elsewhere(signal) or not self._settings.otlp_only

    def in_force(self, settings: Settings) -> Settings:
        """Return the settings without what would go nowhere."""
        return replace(
            settings,
            logs_transmit=settings.logs_transmit and self.goes_somewhere("logs"),
            traces_transmit=settings.traces_transmit and self.goes_somewhere("traces"),
            # That goes to the service only.
            profile_transmit=settings.profile_transmit and not settings.otlp_only,
        )

    def problem(self) -> str | None:
        """Return why nothing at all is sent, or None."""
        if not self._settings.otlp_only:
            return None
        if disabled_by_environment():
            return "daskscope.otlp.only is true, and OTEL_SDK_DISABLED turns OTLP off"
        if any(map(self.goes_somewhere, _OVER_HTTP)):
            return None
        return (
            "daskscope.otlp.only is true, and no OTEL_EXPORTER_OTLP_ENDPOINT is set in the "
            "scheduler's environment"
        )

    def timeout(self, signal: Signal) -> float:
        """Return how many seconds sending may take, retries included."""
        value = self._variable(signal, "TIMEOUT")
        if value is None:
            return TIMEOUT
        try:
            seconds = float(value)
            if 0 < seconds < float("inf"):
                return seconds
        except ValueError:
            pass
        self._warn(f"{self._name(signal, 'TIMEOUT')} is {value!r}; it must be a number of seconds")
        return TIMEOUT

    def increments(self) -> Kinds:
        """Return the kinds of metrics that are to be sent as increments instead of totals."""
        buckets = self._environment.get(_AGGREGATION) or "explicit_bucket_histogram"
        if buckets.strip().lower() != "explicit_bucket_histogram":
            self._warn(
                f"{_AGGREGATION} is {buckets!r}; the buckets of dask.task.duration are fixed, "
                "so explicit_bucket_histogram is used"
            )
        preference = self._environment.get(_TEMPORALITY) or "cumulative"
        kinds = _INCREMENTS.get(preference.strip().upper())
        if kinds is None:
            self._warn(
                f"{_TEMPORALITY} is {preference!r}; it must be cumulative, delta or lowmemory"
            )
            return ()
        if kinds and not self.is_elsewhere("metrics") and self.goes_somewhere("metrics"):
            self._warn(
                f"{_TEMPORALITY} is {preference!r}; the daskscope service still gets "
                "cumulative totals"
            )
            return ()
        return kinds

    def _over_http(self, signal: Signal, **arguments: Any) -> Any:
        # The SDK reads the variables as well: requests leaves out a header that is None.
        not_for_it = dict.fromkeys(_parsed(self._variable(signal, "HEADERS")))
        return _OVER_HTTP[signal](
            endpoint=self._http_endpoint(signal),
            headers={**not_for_it, **self._headers(signal)},
            timeout=self.timeout(signal),
            compression=self._compression(signal),
            certificate_file=self._credential(signal, "CERTIFICATE") or True,
            client_key_file=self._credential(signal, "CLIENT_KEY"),
            client_certificate_file=self._credential(signal, "CLIENT_CERTIFICATE"),
            **arguments,
        )

    def _over_grpc(self, signal: Signal) -> Any:
        if "grpc" not in sys.modules:
            # Its core writes a line to stderr for each connection that fails; we warn once. It
            # looks as it opens its first channel. Where others use it, it is theirs to say.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc
        from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as metrics
        from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as traces

        from daskscope.otlp.grpc_transport import OPTIONS, GrpcTransport

        logs = grpc_log_exporter()
        exporters: dict[Signal, tuple[ModuleType, Any]] = {
            "metrics": (metrics, metrics.OTLPMetricExporter),
            "traces": (traces, traces.OTLPSpanExporter),
            "logs": (logs, logs.OTLPLogExporter),
        }
        module, exporter = exporters[signal]
        files = [
            _content(self._credential(signal, name))
            for name in ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")
        ]
        endpoint = self._variable(signal, "ENDPOINT") or ""
        in_clear = (self._variable(signal, "INSECURE") or "").strip().lower() == "true"
        with hide_variable(module, f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT"):
            made = exporter(
                endpoint=endpoint,
                # The scheme says so, if there is one.
                insecure=endpoint.startswith("http://") or (in_clear and "://" not in endpoint),
                headers=tuple(self._headers(signal).items()),
                timeout=self.timeout(signal),
                compression=grpc.Compression[self._compression(signal).name],
                # For https only: the SDK looks.
                credentials=grpc.ssl_channel_credentials(*files) if any(files) else None,
                channel_options=OPTIONS,
            )
        self.sessions[signal] = calls = GrpcTransport()
        calls.watch(made)
        return made

    def _goes_over_grpc(self, signal: Signal) -> bool:
        if signal not in self._grpc:
            self._grpc[signal] = self._can_go_over_grpc(signal)
        return self._grpc[signal]

    def _can_go_over_grpc(self, signal: Signal) -> bool:
        protocol = self._variable(signal, "PROTOCOL") or "http/protobuf"
        if not self.is_elsewhere(signal) or protocol == "http/protobuf":
            return False
        if protocol != "grpc":
            self._warn(
                f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}; supported are grpc and "
                "http/protobuf, and http/protobuf is used"
            )
            return False
        try:
            import opentelemetry.exporter.otlp.proto.grpc  # noqa: F401
        except ImportError:
            self._warn(
                "OTEL_EXPORTER_OTLP_PROTOCOL is grpc, but gRPC support is not installed in "
                f"the scheduler's environment ({install_with('grpc')}); OTLP is sent over HTTP"
            )
            return False
        return True

    def _http_endpoint(self, signal: Signal) -> str:
        if own := self._environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"):
            return own
        base = self._variable(signal, "ENDPOINT") or self._settings.endpoint
        return f"{base.rstrip('/')}/v1/{signal}"

    def _headers(self, signal: Signal) -> dict[str, str]:
        headers = _parsed(self._credential(signal, "HEADERS"))
        if not self.is_elsewhere(signal):
            # The service knows no other.
            headers["authorization"] = f"Bearer {self._settings.token}"
        return headers

    def _compression(self, signal: Signal) -> Compression:
        value = (self._variable(signal, "COMPRESSION") or "gzip").strip().lower()
        try:
            return Compression(value)
        except ValueError:
            self._warn(f"{self._name(signal, 'COMPRESSION')} is {value!r}; it must be gzip or none")
            return Compression.Gzip

    def _variable(
        self, signal: Signal, name: str, prefix: str = "OTEL_EXPORTER_OTLP"
    ) -> str | None:
        return (
            self._environment.get(f"{prefix}_{signal.upper()}_{name}")
            or self._environment.get(f"{prefix}_{name}")
            or None
        )

    def _credential(self, signal: Signal, name: str) -> str | None:
        """Return a variable that is for one place alone, if it is for where that signal goes."""
        if self.is_elsewhere(signal) or not any(map(self.is_elsewhere, _OVER_HTTP)):
            return self._variable(signal, name)
        return self._environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}") or None

    def _name(self, signal: Signal, name: str) -> str:
        """Return which variable it is that a signal's value stands in."""
        own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}"
        return own if self._environment.get(own) else f"OTEL_EXPORTER_OTLP_{name}"

    def _warn(self, problem: str) -> None:
        self._warn_once(problem, "daskscope: %s.", problem)


def _parsed(headers: str | None) -> dict[str, str]:
    return dict(parse_env_headers(headers or "", liberal=True))


def _content(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def disabled_by_environment() -> bool:
    """Return whether ``OTEL_SDK_DISABLED`` says so."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def positive(variable: str, otherwise: int) -> int:
    """Return the number in a ``variable``. One that makes no sense costs a warning; an empty
    variable counts as not set. The SDK ends with an error where a number must be positive.
    """
    value = os.environ.get(variable)
    if not value:
        return otherwise
    try:
        number = int(value)
        if number > 0:
            return number
    except ValueError:
        pass
    logger.warning(
        "daskscope: %s is %r; it must be a whole number above 0. %d is used instead.",
        variable,
        value,
        otherwise,
    )
    return otherwise


class Who(Resource):
    """The sender: the attributes that daskscope sets and those that ``OTEL_*`` variables add.

    OpenTelemetry's providers never change theirs, but a cluster may get another name once its
    manager has reported one: from then on it is sent under :attr:`name`.
    """

    def __init__(self, cluster: protocol.Cluster, scrubber: Scrubber) -> None:
        environment = OTELResourceDetector().detect().attributes
        super().__init__(
            {
                names.SERVICE_NAME: "dask",
                names.SERVICE_NAMESPACE: cluster.workspace or "default",
                names.HOST_NAME: cluster.host,
                names.TELEMETRY_SDK_NAME: "opentelemetry",
                names.TELEMETRY_SDK_LANGUAGE: "python",
                names.TELEMETRY_SDK_VERSION: version("opentelemetry-sdk"),
                **scrubber.scrub_named({key: str(value) for key, value in environment.items()}),
                # Whatever the environment says: another instance would be another series at every
                # start.
                names.SERVICE_INSTANCE_ID: cluster.id,
                names.CLUSTER_ID: cluster.id,
            }
        )
        self.name = cluster.name

    @property
    def attributes(self) -> Attributes:
        """The attributes as they are now."""
        return {names.CLUSTER_NAME: self.name, **super().attributes}
