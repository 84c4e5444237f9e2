"""Which of several controllers is asked, for the blocking and the asynchronous client, by the rules of the C++ one
(client/controllers.h, common/rpc/controller_route.h)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import grpc

from crossmesh import _calls
from crossmesh.errors import CancelledError, DeadlineExceededError, Error, InvalidArgumentError, UnavailableError

# With several controllers: how long a call waits for a connection. The attempt itself goes on, for the next time that
# this one is asked; a standby names a leader that has stopped until its lease ends, so that a call comes back to that
# one some times.
CONNECT_SECONDS_MAX = 0.25
# And how long one may take to answer a ping. A connection that says nothing is noticed within seconds, since another
# controller may lead by then.
_ANSWER_SECONDS_MAX = 2.0
_PING_SECONDS = 2.5
# One that stood by has a new server when it leads: it is soon tried again.
_RECONNECT_SECONDS_MAX = 1.0

_KNOWN = tuple(state.value[0] for state in (
    grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN))
_LEADING_ON = (CancelledError.code, DeadlineExceededError.code, UnavailableError.code)


def is_known(connectivity: int) -> bool:
    """Whether a channel of this state is connected, or cannot be."""
    return connectivity in _KNOWN


class Route:
    """The controller that is asked next: the one that has answered, until it does not; then the one that it names as
    the leader, which need not be in the list; else the next of the list. Thread-safe."""

    def __init__(self, addresses: Sequence[str], insecure: bool):
        self.addresses = list(addresses)
        self._insecure = insecure
        self._lock = threading.Lock()
        self._next = 1
        self._current = self.addresses[0]

    @property
    def several(self) -> bool:
        return len(self.addresses) > 1

    @property
    def current(self) -> str:
        with self._lock:
            return self._current

    def check(self, address: str) -> None:
        """Raises UnavailableError unless the client may connect to it: one that was named need not be of its list."""
        try:
            _calls.check_address(address, self._insecure)
        except InvalidArgumentError as error:
            self.ended(address, UnavailableError.code, None)
            raise UnavailableError(str(error), error.object, error.expected, error.found) from None

    def failed(self, address: str, call: _calls.Call, error: Any, seconds: float) -> Error:
        """The exception of a call to it that ended with this error of gRPC."""
        code, metadata = error.code().value[0], error.trailing_metadata()
        self.ended(address, code, _calls.leader_named_by(code, metadata))
        if _calls.is_unknown_method(code, metadata):
            return _calls.unknown_method(address, call.method)
        return _calls.status_error(address, code, error.details() or "", metadata, seconds)

    def unconnected(self, address: str) -> UnavailableError:
        """The exception of a call for which there was no connection in time."""
        self.ended(address, UnavailableError.code, None)
        expected = f"a connection within {CONNECT_SECONDS_MAX:g} s"
        return UnavailableError(
            f"controller {address}: expected {expected}, found none", f"controller {address}", expected, "none")

    def ended(self, address: str, code: int, leader: str | None) -> None:
        """A call to it ended so. Only what a controller says that does not lead, or none at all, leads on; what is told
        of another one than the present is old."""
        with self._lock:
            if address != self._current or code not in _LEADING_ON:
                return
            if leader is not None and leader != address and _calls.is_address(leader):
                self._current = leader
                if leader in self.addresses:
                    self._next = self.addresses.index(leader) + 1
                return
            self._current = self.addresses[self._next % len(self.addresses)]
            self._next = self._next % len(self.addresses) + 1

    def channel_options(self) -> list[tuple[str, int]]:
        options = _calls.channel_options()
        if not self.several:
            return options
        return [
            *((name, value) for name, value in options if name != "grpc.max_reconnect_backoff_ms"),
            ("grpc.max_reconnect_backoff_ms", int(_RECONNECT_SECONDS_MAX * 1000)),
            ("grpc.keepalive_time_ms", int(_PING_SECONDS * 1000)),
            ("grpc.keepalive_timeout_ms", int(_ANSWER_SECONDS_MAX * 1000)),
            ("grpc.keepalive_permit_without_calls", 0),
            # gRPC has one ping on its way at a time, of which those that measure bandwidth may take a minute: then no
            # other is sent.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.ping_timeout_ms", int(_ANSWER_SECONDS_MAX * 1000)),
            # No limit: by default gRPC stops to ping after two pings without data.
            ("grpc.http2.max_pings_without_data", 0)]
