"""From parsed JSON to dataclasses, strictly: what is missing, unknown or of another type is named with its place.

A dataclass and what `json.loads` returned flow in; an instance flows out, whose fields are what their annotations say.
Calling the constructor with whatever was read lost: a text where a number should be then fails in the middle of a step.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar

__all__ = ["value_from_json"]

T = TypeVar("T")


def value_from_json(kind: type[T], raw: object, where: str = "") -> T:
    """`raw` as a `kind`: a dataclass, str, int (never negative: counts and sizes), `X | None`, tuple or Mapping.

    Raises: ValueError that begins with the place, such as "roles.target.facts.page_size".
    """
    value: T = _convert(kind, raw, where)
    return value


def _convert(kind: Any, raw: object, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return raw
    if is_dataclass(kind):
        return _object(kind, raw, where)
    if origin in (typing.Union, types.UnionType):
        inner = next(one for one in arguments if one is not types.NoneType)
        return None if raw is None else _convert(inner, raw, where)
    if origin is tuple:
        items = _checked(list, raw, where)
        return tuple(_convert(arguments[0], one, f"{where}[{i}]") for i, one in enumerate(items))
    if origin is Mapping:
        pairs = _checked(dict, raw, where).items()
        return {key: _convert(arguments[1], one, _inside(where, key)) for key, one in pairs}
    return _scalar(kind, raw, where)


def _object(kind: Any, raw: object, where: str) -> Any:
    given = _checked(dict, raw, where)
    known = {field.name: field for field in fields(kind)}
    for name in given:
        if name not in known:
            raise ValueError(f"{_inside(where, name)}: unknown")
    for name, field in known.items():
        if name not in given and _is_required(field):
            raise ValueError(f"{_inside(where, name)}: missing")
    hints = typing.get_type_hints(kind)
    return kind(**{name: _convert(hints[name], one, _inside(where, name)) for name, one in given.items()})


def _is_required(field: "Field[Any]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _scalar(kind: Any, raw: object, where: str) -> Any:
    value = _checked(kind, raw, where)
    if kind is int and value < 0:
        raise ValueError(f"{where}: {value}, needed 0 or more")
    return value


def _checked(kind: Any, raw: object, where: str) -> Any:
    if type(raw) is not kind:  # a bool is an int to isinstance
        raise ValueError(f"{where or 'the whole'}: {type(raw).__name__}, needed {kind.__name__}")
    return raw


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
