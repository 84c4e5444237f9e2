"""Errors by status code, each with what it is about, what was expected and what was found."""

import re
from collections.abc import Mapping
from typing import ClassVar

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "Error",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnavailableError",
    "UnimplementedError",
]


class Error(Exception):
    """What Crossmesh refused or could not do.

    `code` is the API's status code. `object` is the field, flag, file or thing that the error is about, `expected` and
    `found` are what its message says of it; each is empty where the message does not say it. `retry_after` are the
    seconds after which the controller has room again, by what it says; None where it says nothing of that.
    """

    code: ClassVar[int] = 2
    retry_after: float | None = None

    def __init__(self, message: str, object: str = "", expected: str = "", found: str = ""):
        super().__init__(message)
        self.object = object
        self.expected = expected
        self.found = found


class InvalidArgumentError(Error, ValueError):
    """Wrong whatever the state."""

    code = 3


class DeadlineExceededError(Error, TimeoutError):
    """It took longer than was given; what was begun may go on."""

    code = 4


class NotFoundError(Error, LookupError):
    """There is nothing of that name."""

    code = 5


class AlreadyExistsError(Error):
    """Another thing has that name or request id."""

    code = 6


class PermissionDeniedError(Error, PermissionError):
    """Not for this caller."""

    code = 7


class ResourceExhaustedError(Error):
    """A bound was hit."""

    code = 8


class FailedPreconditionError(Error):
    """To be repeated once the state is another one."""

    code = 9


class AbortedError(Error):
    """Lost a race, or was fenced."""

    code = 10


class UnimplementedError(Error, NotImplementedError):
    """Not supported, or not by a controller of that version."""

    code = 12


class InternalError(Error):
    """A fault of Crossmesh."""

    code = 13


class UnavailableError(Error, ConnectionError):
    """To be tried again later."""

    code = 14


class DataLossError(Error):
    """Bytes differ from those that were sent."""

    code = 15


class CancelledError(Error):
    """Ended by a caller."""

    code = 1


_BY_CODE: dict[int, type[Error]] = {
    kind.code: kind
    for kind in (
        CancelledError, InvalidArgumentError, DeadlineExceededError, NotFoundError, AlreadyExistsError,
        PermissionDeniedError, ResourceExhaustedError, FailedPreconditionError, AbortedError, UnimplementedError,
        InternalError, UnavailableError, DataLossError)
}  # fmt: skip

# Text outside of double quotes; quoted text may have marks in it.
_PIECE = r'(?:"(?:\\.|[^"\\])*"|[^"])*?'


def _split(text: str, mark: str) -> tuple[str, str]:
    """What stands before a mark that is outside of double quotes, and after it; all of it where there is none."""
    match = re.match(f"({_PIECE}){re.escape(mark)}", text, re.DOTALL)
    return (match[1], text[match.end():]) if match is not None else (text, "")


def _details_of(message: str) -> dict[str, str]:
    """As common/rpc/error_details.cc has them."""
    parts: list[str] = []
    while not message.startswith("expected "):
        part, message = _split(message, ": ")
        before, more = _split(part, "; ")
        if not message or (parts and more):
            return {"object": ": ".join(parts), "found": before if parts else ""}
        parts.append(part)
    said, _ = _split(message.removeprefix("expected "), "; ")
    expected, found = _split(said, ", found")
    return {"object": ": ".join(parts), "expected": expected, "found": found.removeprefix(":").strip()}


def error_of(code: int, message: str, details: Mapping[str, str] | None = None) -> Error:
    """The exception of a status: messages have the form "OBJECT: expected EXPECTED, found FOUND; MORE", or "OBJECT:
    FOUND; MORE".

    `details` are object, expected and found as far as they came with the status.
    """
    told = details if details is not None else _details_of(message)
    return _BY_CODE.get(code, Error)(message, *(told.get(key, "") for key in ("object", "expected", "found")))
