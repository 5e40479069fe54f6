"""Sends a batch over gRPC. Imported only if gRPC is used, because it may not be installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status as Details

from daskscope.delivery.http import MAX_ASKED
from daskscope.otlp.sdk_private import between_exporter_and_channel
from daskscope.otlp.transport import GrpcStatus

#: Each exporter has its own connection. With a shared one, a new exporter would have to wait for
#: the others' reconnection backoff.
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)

# The metadata keys of a detailed status, and of the retry delay that the SDK reads.
_DETAILS = "grpc-status-details-bin"
_RETRY_INFO = "google.rpc.retryinfo-bin"
_NEVER = RetryInfo()
_NEVER.retry_delay.seconds = 10**9


class GrpcTransport(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Sends each batch once. OpenTelemetry's exporter would retry for seconds, and could not be
    stopped without losing the batches behind it.

    ``outcome`` is the result of the last call.
    """

    def __init__(self) -> None:
        self.outcome: GrpcStatus | None = None
        self._channel: Any = None
        self._given_up = False

    def watch(self, exporter: Any) -> None:
        """Intercept the calls of an exporter on its current channel and all later ones."""
        between_exporter_and_channel(exporter, self._intercept)

    def end_overdue(self) -> None:
        """Do nothing: gRPC itself ends calls after their timeout."""

    def give_up(self) -> None:
        """End the current call, and make no more. From any thread."""
        self._given_up = True
        if self._channel is not None:
            self._channel.close()

    def intercept_unary_unary(
        self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        """Make a call. On a failure the SDK gets an answer after which it does not retry."""
        if not self._given_up:
            call = continuation(client_call_details, request)
            error = call.exception()
            if error is None:
                self.outcome = GrpcStatus("OK", content=call.result().SerializeToString())
                return call
            if isinstance(error, grpc.RpcError):
                self.outcome = GrpcStatus(error.code().name, error.details() or "", _asked(error))
            elif not self._given_up:
                return call  # an invalid header, for example
        if self._given_up:
            self.outcome = GrpcStatus("DEADLINE_EXCEEDED", "no answer in time")
        return _Failed()

    def _intercept(self, channel: Any) -> Any:
        self._channel = channel
        return grpc.intercept_channel(channel, self)


class _Failed(grpc.RpcError):  # type: ignore[misc]  # as above
    """A failed call that makes the SDK reconnect, but not retry.

    Its status, UNAVAILABLE, makes the SDK reconnect: the connection may be dead, and gRPC's own
    reconnection pauses grow. Its retry delay is too long for the SDK to retry.
    """

    def result(self) -> Any:
        raise self

    def code(self) -> Any:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return ""

    def trailing_metadata(self) -> Iterable[tuple[str, bytes]]:
        return ((_RETRY_INFO, _NEVER.SerializeToString()),)


def _asked(error: Any) -> float | None:
    """Return the seconds that the server asks to wait before a retry; None if it does not."""
    for name, value in error.trailing_metadata() or ():
        if name != _DETAILS:
            continue
        try:
            for detail in Details.FromString(value).details:
                info = RetryInfo()
                if detail.Unpack(info):
                    delay = info.retry_delay
                    seconds: float = delay.seconds + delay.nanos / 1e9
                    return min(max(seconds, 0.0), MAX_ASKED)
        except DecodeError:  # it is no detailed status
            pass
    return None
