"""What a call is, when it is made again, and where: the rules that the blocking and the asynchronous client share."""

from __future__ import annotations

import ipaddress
import random
import re
import secrets
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from crossmesh import _wire
from crossmesh.errors import (
    CancelledError,
    DeadlineExceededError,
    Error,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
    error_of,
)

Value = TypeVar("Value")

# What the controller takes at most.
MESSAGE_BYTES_MAX = 4 << 20
METADATA_BYTES_MAX = 8 << 10
# Of a stream; what goes on longer is taken up by another one.
STREAM_SECONDS_MAX = 600.0

_PAUSE_FIRST = 0.1
_PAUSE_MAX = 3.0
_PUSH_BACK_MAX = 60.0
# While several controllers are asked which one leads.
_SEARCH_PAUSE_MAX = 0.5
# How long a call is made again; of several controllers the next one may have to be elected.
_RETRY_SECONDS_OF_ONE = 5.0
_RETRY_SECONDS_OF_SEVERAL = 15.0


@dataclass(frozen=True)
class Call:
    """A call that answers once: `request` is a message, or, for a method that takes a stream, a list of them.

    Not `repeatable`: what a second answer says would be of the first one's effect.
    """

    method: str
    request: Any
    repeatable: bool = True


# The steps of something that takes calls: gives each, and is sent its answer (of a stream a list).
Steps = Generator[Call, Any, Value]


@dataclass(frozen=True)
class Options:
    """How long a client waits, in seconds: `call` for one answer, `retry` while a controller is unavailable, `follow`
    the same while an operation or a run goes on. `pause_max` is between two attempts."""

    call: float = 30.0
    retry: float = _RETRY_SECONDS_OF_ONE
    follow: float = 60.0
    pause_max: float = _PAUSE_MAX


def options_of(controllers: int, call: float, retry: float | None, follow: float) -> Options:
    """Of a client of so many controllers; None: as is usual for as many."""
    if controllers > 1:
        return Options(call, _RETRY_SECONDS_OF_SEVERAL if retry is None else retry, follow, _SEARCH_PAUSE_MAX)
    return Options(call, _RETRY_SECONDS_OF_ONE if retry is None else retry, follow)


def seconds_of(call: Call, options: Options) -> float:
    """Of one attempt. Measurements, which are made once, take as long as they take."""
    measures = not call.repeatable and _wire.method(call.method).response_stream
    return STREAM_SECONDS_MAX if measures else options.call


def new_request_id() -> str:
    """128 random bits, so that no two requests have the same one."""
    return secrets.token_hex(16)


def check_address(address: str, insecure: bool) -> str:
    """Raises InvalidArgumentError unless it has a form that daemons take, and is of this machine or `insecure`."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if path.startswith("/") and not path.endswith("/") and len(path.encode()) <= 107:
            return address
        raise _malformed(address)
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z._-]+)):([0-9]{1,5})", address)
    if match is None or not 0 < int(match[3]) < 65536:
        raise _malformed(address)
    if not insecure and not _is_local(match[1] or match[2]):
        raise InvalidArgumentError(
            f"address {address}: expected a Unix socket or a loopback address, found one that other machines have; "
            "the traffic is neither encrypted nor authenticated, and insecure=True allows it",
            f"address {address}", "a Unix socket or a loopback address", "one that other machines have")
    return address


def is_address(text: str) -> bool:
    """Whether it has a form that daemons take."""
    try:
        check_address(text, insecure=True)
    except InvalidArgumentError:
        return False
    return True


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _malformed(address: str) -> InvalidArgumentError:
    expected = '"unix:/PATH", "HOST:PORT" or "[IPV6]:PORT"'
    return InvalidArgumentError(
        f'address "{address}": expected {expected}, found another form', f'address "{address}"', expected,
        "another form")


def addresses_of(given: str | Sequence[str]) -> list[str]:
    addresses = given.split(",") if isinstance(given, str) else list(given)
    if not addresses or not all(addresses):
        raise InvalidArgumentError(
            "controller: expected an address, found none; give one, or set CROSSMESH_CONTROLLER", "controller",
            "an address", "none")
    return addresses


def channel_options() -> list[tuple[str, int]]:
    """As common/rpc/channel.cc has them."""
    return [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_metadata_size", METADATA_BYTES_MAX), ("grpc.enable_http_proxy", 0),
        ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 3000),
        # Another process's, or another client's, connection that is closed takes none of ours along.
        ("grpc.use_local_subchannel_pool", 1)]


def check_size(message: Any) -> None:
    """What is larger is refused on its way, by a message that does not help."""
    size = message.ByteSize()
    if size > MESSAGE_BYTES_MAX:
        raise ResourceExhaustedError(
            f"request: expected at most {MESSAGE_BYTES_MAX} bytes, found {size}; register the manifest "
            "(manifests.put) and give its name", "request", f"at most {MESSAGE_BYTES_MAX} bytes", f"{size}")


def status_error(address: str, code: int, message: str, metadata: Any, seconds: float) -> Error:
    """The exception of a call that ended with a status; its details are those that the controller sent."""
    error = _error_of(address, code, message, metadata, seconds)
    error.retry_after = _push_back_of(metadata)
    return error


def _error_of(address: str, code: int, message: str, metadata: Any, seconds: float) -> Error:
    if code in (CancelledError.code, UnavailableError.code):  # we cancel no call without saying so
        return UnavailableError(f"controller {address}: {message}", f"controller {address}", "", message)
    if code == DeadlineExceededError.code:
        return DeadlineExceededError(
            f"controller {address}: expected an answer within {seconds:g} s, found none", f"controller {address}",
            f"an answer within {seconds:g} s", "none")
    info = _error_info(metadata)
    return error_of(code, message, dict(info.metadata) if info is not None else None)


def _push_back_of(metadata: Any) -> float | None:
    """In seconds, as common/rpc/push_back.h has it."""
    info = _error_info(metadata)
    if info is None or info.reason != "PUSHED_BACK":
        return None
    try:
        return min(max(int(info.metadata.get("retry_after_ms", "")) / 1000, 0.0), _PUSH_BACK_MAX)
    except ValueError:
        return None


def is_unknown_method(code: int, metadata: Any) -> bool:
    """Whether gRPC itself says so: what a controller cannot do has details."""
    return code == UnimplementedError.code and _error_info(metadata) is None


def unknown_method(address: str, method: str) -> UnimplementedError:
    """Of a call that a controller of another version does not have."""
    return UnimplementedError(
        f"controller {address}: expected one that has {method}, found none; it is of another version than this "
        "package: the older one of them is to be upgraded", f"controller {address}", f"one that has {method}", "none")


def leader_named_by(code: int, metadata: Any) -> str | None:
    """By a controller that stands by, if it knows one (common/rpc/not_leader.h)."""
    info = _error_info(metadata) if code == UnavailableError.code else None
    return info.metadata.get("leader") if info is not None and info.reason == "NOT_LEADER" else None


def _error_info(metadata: Any) -> Any:
    """The details that came with a status, or None."""
    for key, value in metadata or ():
        if key != "grpc-status-details-bin":
            continue
        status = _wire.message("google.rpc.Status")()
        info = _wire.message("google.rpc.ErrorInfo")()
        try:
            status.ParseFromString(value)
            for detail in status.details:
                if detail.type_url.endswith("/google.rpc.ErrorInfo"):
                    info.ParseFromString(detail.value)
                    return info
        except Exception:  # of a peer that is not ours
            return None
    return None


class Pauses:
    """Between attempts, with full jitter: the n-th is at random up to the smaller of `longest` and 0.1 s times 2^n."""

    def __init__(self, longest: float = _PAUSE_MAX) -> None:
        self._longest = longest
        self._ceiling = _PAUSE_FIRST

    def next(self) -> float:
        pause = random.uniform(0, self._ceiling)
        self._ceiling = min(2 * self._ceiling, self._longest)
        return pause

    def reset(self) -> None:
        self._ceiling = _PAUSE_FIRST


class Attempts:
    """Whether a call that failed is made again, and after which pause."""

    def __init__(self, call: Call, options: Options):
        self._repeatable = call.repeatable
        self._until = time.monotonic() + options.retry
        self._pauses = Pauses(options.pause_max)

    def pause_after(self, error: Error) -> float:
        """Raises the error when there is no other attempt."""
        pause = self._pauses.next() if error.retry_after is None else error.retry_after
        may_repeat = self._repeatable and (isinstance(error, UnavailableError) or error.retry_after is not None)
        if not may_repeat or time.monotonic() + pause >= self._until:
            raise error
        return pause


@dataclass
class Following:
    """Something that the controller does, followed to its end over as many streams as it takes: by the request until
    its id is known, by the id then."""

    noun: str
    first: Call | None
    watch: str
    field_name: str
    options: Options
    timeout: float | None
    id: str = ""
    _heard: bool = False
    _pauses: Pauses = field(init=False)

    def __post_init__(self) -> None:
        now = time.monotonic()
        self._pauses = Pauses(self.options.pause_max)
        self._until = now + self.options.follow
        self._end = None if self.timeout is None else now + self.timeout

    def stream(self) -> Call:
        """The one to be read next. Raises DeadlineExceededError when the time for all is over."""
        if self._end is not None and time.monotonic() >= self._end:
            raise self._timed_out()
        self._heard = False
        if not self.id and self.first is not None:
            return self.first
        return Call(self.watch, _wire.method(self.watch).request(id=self.id))

    def seconds(self) -> float:
        if self._end is None:
            return STREAM_SECONDS_MAX
        return min(STREAM_SECONDS_MAX, max(self._end - time.monotonic(), 0.001))

    def heard(self, response: Any) -> Any:
        """What a message of the stream is about."""
        self._heard = True
        subject = getattr(response, self.field_name)
        self.id = subject.id
        return subject

    def pause_after(self, error: Error | None) -> float:
        """Before the next stream; None: it ended without an error. Raises when there is none."""
        if self._end is not None and time.monotonic() >= self._end - 0.05:
            raise self._timed_out() from error
        cut = (UnavailableError, DeadlineExceededError, ResourceExhaustedError) if self._heard else (UnavailableError,)
        if error is not None and not isinstance(error, cut):
            raise error
        if self._heard:
            self._pauses.reset()
            self._until = time.monotonic() + self.options.follow
        pause = self._pauses.next()
        if time.monotonic() + pause >= self._until:
            reason = str(error) if error is not None else f"the stream ended before the {self.noun}"
            raise UnavailableError(f"{reason}{self._may_still_run()}", "controller", "", reason) from error
        return pause

    def _may_still_run(self) -> str:
        return f"; {self.noun} {self.id} may still be running" if self.id else ""

    def _timed_out(self) -> DeadlineExceededError:
        expected = f"the {self.noun}'s end within {self.timeout:g} s"
        return DeadlineExceededError(
            f"{self.noun} {self.id}: expected its end within {self.timeout:g} s, found that it goes on"
            f"{self._may_still_run()}", f"{self.noun} {self.id}", expected, "that it goes on")


def closed() -> FailedPreconditionError:
    """Of a client that was."""
    return FailedPreconditionError(
        "client: expected an open one, found a closed one", "client", "an open one", "a closed one")


def check_process(made_in: int, current: int) -> None:
    """Raises FailedPreconditionError in a process that was forked off the one with the client."""
    if made_in != current:
        raise FailedPreconditionError(
            f"client: expected the process {made_in}, which connected it, found {current}, forked from it; connect "
            "again after a fork", "client", f"the process {made_in}", str(current))
