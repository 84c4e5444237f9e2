"""Between the API's messages and the package's own values (results.py): by the names and types of their fields."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import json
import os
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from crossmesh import _wire
from crossmesh.errors import InvalidArgumentError

Value = TypeVar("Value")
Document = str | os.PathLike[str] | Mapping[str, Any]


# Of a dataclass's field: what the message calls it, where that is no name in Python.
WIRE_NAME = "wire_name"


@functools.cache
def _hints(kind: Any) -> tuple[tuple[str, str, Any], ...]:
    """Of each field its name, that of the message, and its type."""
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    return tuple((field.name, field.metadata.get(WIRE_NAME, field.name), hints[field.name]) for field in fields)


def _enum_of(kind: type[enum.Enum], field: Any, number: int) -> enum.Enum:
    """OPERATION_STATE_RUNNING is RUNNING; what a later version has is UNSPECIFIED here."""
    values = field.enum_type.values_by_number
    prefix = field.enum_type.values_by_number[0].name.removesuffix("UNSPECIFIED")
    name = values[number].name.removeprefix(prefix) if number in values else "UNSPECIFIED"
    return kind[name] if name in kind.__members__ else kind["UNSPECIFIED"]


def _one(hint: Any, field: Any, value: Any) -> Any:
    if hint is datetime.datetime:
        return value.ToDatetime(tzinfo=datetime.timezone.utc)
    if hint is datetime.timedelta:
        return value.ToTimedelta()
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum_of(hint, field, value)
    if dataclasses.is_dataclass(hint):
        return value_of(typing.cast(type, hint), value)
    return value


def _field_of(hint: Any, message: Any, name: str) -> Any:
    field = message.DESCRIPTOR.fields_by_name[name]
    value = getattr(message, name)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_one(inner, field, element) for element in value)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):  # X | None: by presence
        inner = next(arm for arm in typing.get_args(hint) if arm is not type(None))
        return _one(inner, field, value) if message.HasField(name) else None
    return _one(hint, field, value)


def value_of(kind: type[Value], message: Any) -> Value:
    """The dataclass of a message; its fields are the message's, by name."""
    hints = _hints(typing.cast(Any, kind))
    return kind(**{name: _field_of(hint, message, wire_name) for name, wire_name, hint in hints})


def message_of(name: str, what: str, given: Document) -> Any:
    """A message from a dictionary, a JSON text or a JSON file. Raises InvalidArgumentError."""
    from google.protobuf import json_format

    message = _wire.message(name)()
    try:
        if isinstance(given, Mapping):
            json_format.ParseDict(dict(given), message)
        else:
            text = os.fspath(given)
            if not text.lstrip().startswith("{"):
                with open(text, encoding="utf-8") as file:
                    text = file.read()
            json_format.Parse(text, message)
    except (json_format.ParseError, OSError, json.JSONDecodeError) as error:
        raise InvalidArgumentError(
            f"{what}: expected a {name} as JSON, found: {error}", what, f"a {name} as JSON", str(error)) from error
    return message


def document_of(message: Any) -> dict[str, Any]:
    """A message as a dictionary, which message_of takes."""
    from google.protobuf import json_format

    document: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return document
