"""JSON Schema, as far as the HTTP API uses it: what is checked is what `/openapi.json` says."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from limpet.core import limits
from limpet.core.codec import escaped
from limpet.errors import InvalidInput
from limpet.model import JSON

Schema: TypeAlias = Mapping[str, Any]

_NO_NUL = "^[^\\u0000]*$"
ANYTHING: Schema = {}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 2**53}
SECONDS: Schema = {"type": "number", "minimum": 0, "maximum": limits.WAIT_S_MAX}
AGE: Schema = {"type": "number", "minimum": 0, "maximum": 10**10}
TEXT: Schema = {"type": "string"}
PREFIX: Schema = {"type": "string", "maxLength": limits.ID_CHARS_MAX, "pattern": _NO_NUL}
ID: Schema = {**PREFIX, "minLength": 1}
KIND: Schema = {"type": "string", "pattern": "^([a-z0-9_-]{1,64}|multiAgent)$"}
STATUS: Schema = {"type": "string", "maxLength": limits.STATUS_CHARS_MAX, "pattern": _NO_NUL}
REVISION: Schema = {"type": "string", "pattern": r"^-?[0-9a-f]{1,17}\.[0-9a-f.]{1,40}$"}
TIME: Schema = {"type": "string", "format": "date-time"}
METADATA: Schema = {"type": "object"}
LABELS: Schema = {
    "type": "object",
    "maxProperties": limits.LABELS_MAX,
    "propertyNames": {"minLength": 1, "maxLength": limits.LABEL_CHARS_MAX, "pattern": _NO_NUL},
    "additionalProperties": {
        "type": "string",
        "maxLength": limits.LABEL_CHARS_MAX,
        "pattern": _NO_NUL,
    },
}
_SURROGATE = re.compile("[\ud800-\udfff]")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def nullable(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def array(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return the schema of an object with these members and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def check(value: JSON, schema: Schema, path: str = "") -> None:
    """Raise InvalidInput, with a path, if a value does not fit a schema."""
    kinds = schema.get("type")
    if kinds is None:
        return
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not any(_is_a(value, each) for each in kinds):
        raise _refused(path, f"must be {' or '.join(kinds)}")
    if isinstance(value, str):
        _check_text(value, schema, path)
    elif isinstance(value, dict):
        _check_object(value, schema, path)
    elif isinstance(value, list):
        for at, each in enumerate(_sized(value, schema, "Items", path)):
            check(each, schema["items"], f"{path}/{at}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            raise _refused(path, f"must be from {low} to {high}")


def _is_a(value: JSON, kind: str) -> bool:
    # In Python a bool is an int.
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _sized(value: Any, schema: Schema, what: str, path: str) -> Any:
    low, high = schema.get(f"min{what}", 0), schema.get(f"max{what}")
    if len(value) < low or (high is not None and len(value) > high):
        raise _refused(path, f"must have {low} to {high} {what.lower()}")
    return value


def _check_text(value: str, schema: Schema, path: str) -> None:
    if not value.isascii() and _SURROGATE.search(value):
        raise _refused(path, "must not contain a lone surrogate")
    _sized(value, schema, "Length", path)
    if "enum" in schema and value not in schema["enum"]:
        raise _refused(path, f"must be one of {', '.join(schema['enum'])}")
    # All patterns are anchored; `$` alone would allow a newline at the end.
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        raise _refused(path, f"must match {schema['pattern']}")


def _check_object(value: dict[str, Any], schema: Schema, path: str) -> None:
    _sized(value, schema, "Properties", path)
    known, others = schema.get("properties", {}), schema.get("additionalProperties", ANYTHING)
    for name in schema.get("required", ()):
        if name not in value:
            raise _refused(path, f"must have the member `{name}`")
    for name, each in value.items():
        inside = f"{path}/{escaped(name)}"
        if "propertyNames" in schema:
            _check_text(name, schema["propertyNames"], inside)
        if name not in known and others is False:
            raise _refused(inside, f"is not known here: there are {', '.join(sorted(known))}")
        check(each, known.get(name, others), inside)


def _refused(path: str, why: str) -> InvalidInput:
    shown = path[:200]
    return InvalidInput(f"the request is not valid: this {why}. path=`{shown}`", path=shown)
