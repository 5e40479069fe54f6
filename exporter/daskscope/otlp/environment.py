"""Reads from the ``OTEL_EXPORTER_OTLP_*`` variables where and how OTLP is sent.

Each variable may be set for one signal (``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT``) or for all; an
empty variable counts as not set. This module reads them instead of the SDK, so that they mean the
same with both protocols and all versions of the SDK, and so that an invalid value causes a warning,
not the loss of the signal. No global providers are set or read: those of an application stay as
they are.

A signal without an endpoint is sent to the daskscope service, over HTTP and with the token. If only
some signals have an endpoint, headers and certificates for all signals apply to those, and not to
the service. With ``otlp.only`` a signal without an endpoint is not sent.
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

#: The instrumentation scope of all telemetry.
SCOPE = "daskscope"

Signal = Literal["metrics", "traces", "logs"]

#: Seconds that sending may take, retries included, unless the environment says otherwise.
TIMEOUT = 10.0

_OVER_HTTP: dict[Signal, Any] = {
    "metrics": OTLPMetricExporter,
    "traces": OTLPSpanExporter,
    "logs": OTLPLogExporter,
}

# The kinds of metrics that are sent as deltas, by temporality preference.
_INCREMENTS: dict[str, Kinds] = {
    "CUMULATIVE": (),
    # For observable counters like ours, cumulative values take less memory than deltas.
    "LOWMEMORY": (Histogram,),
    "DELTA": (Sum, Histogram),
}

_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_AGGREGATION = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"


class OTLPEnvironment:
    """Makes the SDK's exporter of each signal. ``sessions`` are the exporters' transports."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # A copy, so that later messages name the address that was actually used.
        self._environment = {
            name: value for name, value in os.environ.items() if name.startswith("OTEL_")
        }
        # Whether a signal is sent over gRPC; decided once per signal.
        self._grpc: dict[Signal, bool] = {}
        self._warn_once = WarnOnce()
        self.sessions: dict[Signal, HttpTransport | GrpcTransport] = {}

    def exporter(self, signal: Signal) -> Any:
        """Return the SDK's exporter; None if the signal is not sent. May raise the SDK's errors."""
        return self._made(signal) if self.goes_somewhere(signal) else None

    def _made(self, signal: Signal) -> Any:
        if self._goes_over_grpc(signal):
            return self._over_grpc(signal)
        # A credential provider brings its own session.
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
        """Return the address of a signal without credentials, for messages."""
        endpoint = self._variable(signal, "ENDPOINT")
        if endpoint is None or not self._goes_over_grpc(signal):
            endpoint = self._http_endpoint(signal)
        scheme, separator, rest = endpoint.rpartition("://")
        authority, slash, path = rest.partition("/")
        return "".join((scheme, separator, authority.rpartition("@")[2], slash, path))

    def is_elsewhere(self, signal: Signal) -> bool:
        """Return whether a signal is sent elsewhere than to the daskscope service."""
        return self._variable(signal, "ENDPOINT") is not None

    def goes_somewhere(self, signal: Signal) -> bool:
        """Return whether a signal is sent at all: with ``otlp.only``, only with an endpoint."""
        return self.is_elsewhere(signal) or not self._settings.otlp_only

    def in_force(self, settings: Settings) -> Settings:
        """Return ``settings`` with switches off for data that would be sent nowhere."""
        return replace(
            settings,
            logs_transmit=settings.logs_transmit and self.goes_somewhere("logs"),
            traces_transmit=settings.traces_transmit and self.goes_somewhere("traces"),
            # Profile and task stream are sent to the service only.
            profile_transmit=settings.profile_transmit and not settings.otlp_only,
            stream_transmit=settings.stream_transmit and not settings.otlp_only,
        )

    def problem(self) -> str | None:
        """Return why no data at all is sent, or None."""
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
        """Return how many seconds sending may take, including retries."""
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
        """Return the kinds of metrics that are sent as deltas instead of cumulative values."""
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
        # The SDK reads the variables as well. A header of None makes requests omit it.
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
            # gRPC's core logs each failed connection to stderr; we warn once instead. It reads this
            # variable when it opens its first channel. If other code uses gRPC, leave it alone.
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
                # A scheme overrides the variable.
                insecure=endpoint.startswith("http://") or (in_clear and "://" not in endpoint),
                headers=tuple(self._headers(signal).items()),
                timeout=self.timeout(signal),
                compression=grpc.Compression[self._compression(signal).name],
                # The SDK uses these for https only.
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
            # The service accepts only its own tokens.
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
        """Return the value of a variable that must only be sent to its own destination.

        For signals to the service, the variable for all signals is ignored if another signal has an
        endpoint: it belongs to that endpoint.
        """
        if self.is_elsewhere(signal) or not any(map(self.is_elsewhere, _OVER_HTTP)):
            return self._variable(signal, name)
        return self._environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}") or None

    def _name(self, signal: Signal, name: str) -> str:
        """Return the name of the variable that contains a signal's value."""
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
    """Return whether ``OTEL_SDK_DISABLED`` is true."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def positive(variable: str, otherwise: int) -> int:
    """Return the positive number in an environment ``variable``, or ``otherwise``.

    An invalid value causes a warning, where the SDK would raise. An empty variable counts as not
    set.
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

    OpenTelemetry's resources are immutable, but a cluster may get another name once its manager has
    reported one: :attr:`name` can be changed.
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
                # Not from the environment: another instance id would make another series at every
                # start.
                names.SERVICE_INSTANCE_ID: cluster.id,
                names.CLUSTER_ID: cluster.id,
            }
        )
        self.name = cluster.name

    @property
    def attributes(self) -> Attributes:
        """The current attributes."""
        return {names.CLUSTER_NAME: self.name, **super().attributes}
