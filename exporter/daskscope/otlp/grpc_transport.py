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

#: Each exporter connects for itself, so that one that begins anew is not held up until the pause of
#: the others' connection is over.
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)

# Where a status may stand that says more; and where the SDK looks for when to try again.
_DETAILS = "grpc-status-details-bin"
_RETRY_INFO = "google.rpc.retryinfo-bin"
_NEVER = RetryInfo()
_NEVER.retry_delay.seconds = 10**9


class GrpcTransport(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Sends each batch once. OpenTelemetry's exporter would try again for seconds, and could not be
    stopped without losing the batches behind it.

    ``outcome`` is the result of the last call.
    """

    def __init__(self) -> None:
        self.outcome: GrpcStatus | None = None
        self._channel: Any = None
        self._given_up = False

    def watch(self, exporter: Any) -> None:
        """Stand between an exporter and its channel, and the next ones that it makes."""
        between_exporter_and_channel(exporter, self._intercept)

    def end_overdue(self) -> None:
        """Do nothing: gRPC ends calls itself, in time."""

    def give_up(self) -> None:
        """End the call that is under way, and make no more. From any thread."""
        self._given_up = True
        if self._channel is not None:
            self._channel.close()

    def intercept_unary_unary(
        self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        """Make a call. Whatever is wrong, the SDK gets an answer that it does not try again."""
        if not self._given_up:
            call = continuation(client_call_details, request)
            error = call.exception()
            if error is None:
                self.outcome = GrpcStatus("OK", content=call.result().SerializeToString())
                return call
            if isinstance(error, grpc.RpcError):
                self.outcome = GrpcStatus(error.code().name, error.details() or "", _asked(error))
            elif not self._given_up:
                return call  # a header that none may have, and the like
        if self._given_up:
            self.outcome = GrpcStatus("DEADLINE_EXCEEDED", "no answer in time")
        return _Failed()

    def _intercept(self, channel: Any) -> Any:
        self._channel = channel
        return grpc.intercept_channel(channel, self)


class _Failed(grpc.RpcError):  # type: ignore[misc]  # as above
    """Has the SDK connect anew, as it does where nobody can be reached: a connection may be dead,
    and gRPC would pause before the next one for longer and longer. But not call again by itself.
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
    """Return the seconds after which the other side says that it may be tried again, if it does."""
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
        except DecodeError:  # what is no status says nothing
            pass
    return None
