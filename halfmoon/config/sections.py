"""Typed sections: from the nested dicts of a YAML file to frozen structs, with errors a person can act on.

The core's own settings and every plugin's section are read by the same few functions, so a mistake reads the same
everywhere: the path (`$.plugins.delay.levels`), the value, and what was expected. msgspec checks the leaves; the walk
down to them is ours, because msgspec names neither the offending value nor the key that was probably meant.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec.structs
from msgspec import Struct

from halfmoon.config.units import Unit
from halfmoon.errors import StartError

SectionT = TypeVar("SectionT", bound=Struct)

fields_of = functools.cache(msgspec.structs.fields)
"""The fields of a struct type. msgspec evaluates its annotations anew each time, which is most of reading settings."""


def _yaml_name(field: str) -> str:
    return field.removesuffix("_ms")


class Section(Struct, frozen=True, kw_only=True, rename=_yaml_name):
    """Base of every typed section. A field `timeout_ms` of type `Duration` is `timeout: 30s` in broker.yaml."""


class SettingError(StartError):
    """A setting that cannot be taken.

    A section's `__post_init__` raises it with the field's name in broker.yaml (`levels`) for what a type alone cannot
    say; whoever reads the section puts the path in front.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class Given(Struct, frozen=True):
    """A value from the environment or the command line: text that has yet to find its type, and where it came from."""

    value: object
    origin: str


class Leaf(NamedTuple):
    """One setting: its path below the section, its type, its default."""

    path: tuple[str, ...]
    kind: Any
    default: object


def decode_section(section: type[SectionT], raw: object, path: str) -> SectionT:
    """Read `raw` (a mapping, or None for all defaults) as `section`. Raises SettingError with `path` in front."""
    raw = {} if raw is None else raw
    if not isinstance(raw, Mapping):
        raise _refusal(path, raw, "settings, one to a line")
    fields = {field.encode_name: field for field in fields_of(section)}
    refuse_unknown(raw, fields, path)
    values: dict[str, object] = {}
    for name, field in fields.items():
        if name in raw:
            values[field.name] = decode(field.type, raw[name], join(path, name))
        elif field.required:
            raise SettingError(join(path, name), "missing")
    try:
        return section(**values)
    except SettingError as error:
        name = error.path
        origin = raw[name].origin if isinstance(raw.get(name), Given) else None
        raise SettingError(_located(join(path, name), origin), error.problem) from None
    except ValueError as error:
        raise SettingError(path, str(error)) from None


def decode(kind: Any, raw: object, path: str) -> Any:
    """Read one value of type `kind`; raises SettingError. Structs, lists and string-keyed dicts are walked into."""
    given = raw.value if isinstance(raw, Given) else raw
    present, nullable = without_none(kind)
    if nullable and (given is None or (isinstance(raw, Given) and given in ("", "null", "none"))):
        return None
    if isinstance(present, type) and issubclass(present, Struct):
        return decode_section(present, given, path)
    unit = unit_of(present)
    if unit is not None:
        return _decode_unit(present, unit, raw, path)
    arguments = get_args(present)
    if get_origin(present) is dict and arguments[0] is str and isinstance(given, Mapping):
        return {_key(key, path): decode(arguments[1], value, join(path, key)) for key, value in given.items()}
    if get_origin(present) is list and isinstance(given, list):
        return [decode(arguments[0], value, f"{path}[{index}]") for index, value in enumerate(given)]
    try:
        return msgspec.convert(given, present, strict=not isinstance(raw, Given))
    except msgspec.ValidationError as error:
        raise _refusal(path, raw, _expected(present, str(error))) from None


def leaves(section: type[Struct], path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Every setting of a section and of the sections in it, in the order they are written down."""
    for field in fields_of(section):
        present, nullable = without_none(field.type)
        here = (*path, field.encode_name)
        if isinstance(present, type) and issubclass(present, Struct):
            if nullable:
                yield Leaf(here, field.type, field.default)
            yield from leaves(present, here)
        else:
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            yield Leaf(here, field.type, default)


def written(section: Struct) -> dict[str, Any]:
    """A section as broker.yaml has it: what `decode_section` makes the same section of."""
    tree: dict[str, Any] = {}
    for field in fields_of(type(section)):
        tree[field.encode_name] = _written(field.type, getattr(section, field.name))
    return tree


def _written(kind: Any, value: Any) -> Any:
    present = without_none(kind)[0]
    arguments = get_args(present)
    if isinstance(value, Struct):
        return written(value)
    if isinstance(value, tuple) and value and isinstance(value[0], Section):
        return [written(each) for each in value]
    if get_origin(present) is dict and isinstance(value, dict):
        return {key: _written(arguments[1], each) for key, each in value.items()}
    if get_origin(present) is list and isinstance(value, list):
        return [_written(arguments[0], each) for each in value]
    unit = unit_of(present)
    return value if unit is None or value is None else unit.format(value)


def unit_of(kind: Any) -> Unit | None:
    """The Unit in `Annotated[…, Meta(extra={"unit": Unit})]`."""
    for meta in get_args(kind)[1:] if get_origin(kind) is Annotated else ():
        unit = (meta.extra or {}).get("unit") if isinstance(meta, msgspec.Meta) else None
        if isinstance(unit, Unit):
            return unit
    return None


def refuse_unknown(raw: Mapping[Any, object], known: Iterable[str], path: str) -> None:
    """Raise SettingError for the first key that names no setting, with the one that was probably meant."""
    names = list(known)
    for key in raw:
        if key not in names:
            raise SettingError(join(path, _key(key, path)), f"no such setting{suggestion(key, names)}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """`"; did you mean …?"`, or what there is to choose from where nothing is near."""
    from difflib import get_close_matches  # here, as whoever starts makes few mistakes

    names = sorted(known)
    near = get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are: {', '.join(names)}" if names else ""


def join(path: str, key: str) -> str:
    """`$.log` and `flush` → `$.log.flush`; keys that are no plain words are quoted."""
    return f"{path}.{key}" if re.fullmatch(r"[\w-]+", key) else f'{path}["{key}"]'


def _decode_unit(kind: Any, unit: Unit, raw: object, path: str) -> object:
    given = raw.value if isinstance(raw, Given) else raw
    try:
        value = unit.parse(given)
    except ValueError:
        raise _refusal(path, raw, unit.expected) from None
    if isinstance(value, int):
        for meta in get_args(kind)[1:]:
            if meta.ge is not None and value < meta.ge:
                raise _refusal(path, raw, f"{unit.expected}, at least {unit.format(meta.ge)}")
            if meta.le is not None and value > meta.le:
                raise _refusal(path, raw, f"{unit.expected}, at most {unit.format(meta.le)}")
    return value


def without_none(kind: Any) -> tuple[Any, bool]:
    """`X | None` → (X, True); anything else → (kind, False)."""
    if get_origin(kind) in (Union, types.UnionType):
        arms = [arm for arm in get_args(kind) if arm is not type(None)]
        if len(arms) == 1:
            return arms[0], True
    return kind, False


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise SettingError(path, f"{key!r} is not a name; put it in quotes")
    return key


def _expected(kind: Any, message: str) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(kind))
    wanted = re.sub(r"(, got .*)?( - at .*)?$", "", message).replace("`", "")
    wanted = wanted.removeprefix("Expected ")
    for name, words in {"int": "a whole number", "bool": "true or false", "str": "text"}.items():
        wanted = re.sub(rf"^{name}\b", words, wanted)
    return wanted


def _refusal(path: str, raw: object, expected: str) -> SettingError:
    value, origin = (raw.value, raw.origin) if isinstance(raw, Given) else (raw, None)
    shown = value if isinstance(value, str) else _yaml_word(value)
    return SettingError(_located(path, origin), f"got {shown!r}, expected {expected}")


def _located(path: str, origin: str | None) -> str:
    return path if origin is None else f"{path} (from {origin})"


def _yaml_word(value: object) -> object:
    """None, True and False as the file spells them, so that the message shows what was written."""
    return _Word("null" if value is None else str(value).lower()) if value is None or isinstance(value, bool) else value


class _Word(str):
    """A string shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
