"""What functions of the package are given, held to the annotations of their parameters before anything is done.

So a wrong argument is refused by a sentence that names it, rather than by a line that happens to need it first.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from crossmesh.errors import InvalidArgumentError

Function = TypeVar("Function", bound=Callable[..., Any])

_TEXT_MAX = 60


def checked(what: Function) -> Function:
    """A function, or a class with its public methods, whose arguments are checked; of a dataclass its fields as well.

    InvalidArgumentError: an argument is not what its annotation says. What a number, a truth value or a mapping is goes
    by what it can do. Elements of tuples are left to the function, and how many arguments there are to Python.
    """
    if not isinstance(what, type):
        return typing.cast(Function, _checking(what))
    for name, member in list(vars(what).items()):
        is_public = not name.startswith("_") or (name == "__init__" and dataclasses.is_dataclass(what))
        if is_public and isinstance(member, types.FunctionType):
            setattr(what, name, _checking(member))
    return what


def _checking(function: Callable[..., Any]) -> Callable[..., Any]:
    if not set(function.__annotations__) - {"return"}:
        return function
    # Evaluated when it is first called: then the module has all names.
    annotations = functools.cache(lambda: _annotations_of(function))
    names = function.__code__.co_varnames[:function.__code__.co_argcount]

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hints = annotations()
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):  # more than it takes, Python refuses
            if name in hints and not _fits(value, hints[name]):
                what = f"argument {name} of {function.__qualname__.removesuffix('.__init__')}"
                expected, found = _text_of(hints[name]), _found(value)
                raise InvalidArgumentError(f"{what}: expected {expected}, found {found}", what, expected, found)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            return await function(*args, **kwargs)

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return function(*args, **kwargs)

    return called


class _NotImported(type):
    """A class of a framework that may not be there, by its name, or the module that has it."""

    def __getattr__(cls, name: str) -> _NotImported:
        return _NotImported(name, (), {})

    def __instancecheck__(cls, value: Any) -> bool:
        return any(base.__name__ == cls.__name__ for base in type(value).__mro__)


class _Names(dict[str, Any]):
    """Those of a module, and of the classes that it has for type checkers alone."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            return getattr(builtins, name)
        return sys.modules[name] if name in sys.modules else _NotImported(name, (), {})


def _annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    names = _Names(vars(sys.modules[function.__module__]))
    parameters = inspect.signature(function).parameters.values()
    return {
        one.name: eval(one.annotation, {}, names) if isinstance(one.annotation, str) else one.annotation
        for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and one.annotation != one.empty}


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if hint is Any:
        return True
    if (able := _ABLE.get(hint)) is not None:
        return able(value)
    kind = origin or hint
    if kind is Mapping:
        return _is_mapping(value) and _fit_all(value.keys(), inner[0]) and (
            inner[1] is Any or _fit_all((value[key] for key in value.keys()), inner[1]))  # noqa: SIM118
    if kind in (Sequence, Iterable):
        # What has no length can be gone through once.
        return _is_iterable(value) and (not hasattr(value, "__len__") or _fit_all(value, inner[0]))
    return kind is tuple or not isinstance(kind, type) or isinstance(value, kind)


def _fit_all(values: Iterable[Any], hint: Any) -> bool:
    if hint is Any:
        return True
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if all(typing.get_origin(kind) is None and isinstance(kind, type) and kind not in _ABLE for kind in kinds):
        return all(isinstance(value, kinds) for value in values)  # there may be as many as a model has tensors
    return all(_fits(value, hint) for value in values)


def _can(name: str) -> Callable[[Any], bool]:
    return lambda value: value is not None and hasattr(type(value), name)


# What counts is what a value can do: numpy and torch have numbers and truth values of their own.
_ABLE: dict[Any, Callable[[Any], bool]] = {
    bool: _can("__bool__"),
    float: lambda value: _can("__float__")(value) or _can("__index__")(value),
    int: _can("__index__"),
}


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) or (_can("keys")(value) and _can("__getitem__")(value))


def _is_iterable(value: Any) -> bool:
    # A text's letters are never meant.
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and not _is_mapping(value)


def _text_of(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_text_of(one) for one in inner)
    if hint in (types.NoneType, ...):
        return "None" if hint is types.NoneType else "..."
    name = getattr(origin or hint, "__name__", str(hint))
    return f"{name}[{', '.join(_text_of(one) for one in inner)}]" if inner else name


def _found(value: Any) -> str:
    if value is None:
        return "None"
    kind = type(value).__name__
    if isinstance(value, (str, bytes, bool, int, float)):
        text = repr(value)
        return f"{kind} {text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + '...'}"
    if isinstance(value, (dict, list, set, tuple)) and value:
        elements = {key: None for one in value for key in [type(one).__name__]}
        return f"{kind} of {', '.join(elements)}"
    return kind
