"""The files of the Go store: bytes from checkpoints and back, as Go's `encoding/json` does it.

Go indents by two spaces, so a line that begins with two spaces and a quote is a field of the whole
document, whatever the messages hold: a line break inside a text is escaped.
"""

import json
import re
from math import isfinite

import orjson

from limpet.compat.runs.checkpoint import ZERO_TIME, Checkpoint, field_of
from limpet.core import codec
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON

ENDS_BYTES = 16 * 1024  # what a listing reads of a file, at most
HEAD_BYTES = 8 * 1024  # run_id, task_name and iteration
TAIL_BYTES = 8 * 1024  # tokens and created_at, and a few extra fields behind them

_TEXT = rb'"(?:[^"\\\n]|\\.)*+"'
_HEAD = re.compile(
    rb'\{\n  "run_id": %b,\n  "task_name": (%b),\n  "iteration": (-?\d{1,19}),\n  "messages": '
    % (_TEXT, _TEXT)
)
_TAIL = re.compile(
    rb'\n  "input_tokens": (-?\d{1,19}),\n  "output_tokens": (-?\d{1,19}),\n  "created_at": (%b)'
    rb'(?:\n\}\Z|,\n  "[\s\S]*\n\}\Z)' % _TEXT
)
# What Go escapes beside what all do, so that JSON may stand inside HTML and JavaScript.
_ESCAPES = [
    (character.encode(), f"\\u{ord(character):04x}".encode())
    for character in ("<", ">", "&", "\u2028", "\u2029")
]
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOO_FINE = re.compile(r"(\.\d{9})\d+")


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the file of a checkpoint, byte for byte what Go writes for the same values.

    Numbers are exact: `1.0` stays so, and integers have as many digits as they need.

    Raises:
        InvalidInput: something in it is not JSON; the message has its path.
    """
    encoded = codec.encode(checkpoint.to_json(), what="checkpoint")
    value = codec.decode(encoded)
    try:
        data = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    except TypeError:  # integers beyond 64 bits
        data = json.dumps(value, indent=2, ensure_ascii=False).encode()
    for character, escape in _ESCAPES:
        data = data.replace(character, escape)
    return data


def decode(data: bytes) -> Checkpoint:
    """Return the checkpoint in a file.

    As in Go the case of names does not matter, a field that is missing or null is zero, and what
    is not UTF-8 is read as U+FFFD. Messages are taken as they are.

    Raises:
        Corrupt: it is no checkpoint: empty, cut short, no object, or a value of another type.
    """
    value = _value(data)
    if not isinstance(value, dict):
        raise Corrupt("the file is no checkpoint: its JSON is no object")
    return _checkpoint(value)


def prove(data: bytes) -> None:
    """Raise Corrupt if a file holds no checkpoint; most are found to in a tenth of the time."""
    try:
        found = orjson.loads(data)
    except ValueError:  # it is stricter than Go
        found = None
    if isinstance(found, dict):
        _checkpoint(found)
    else:
        decode(data)


def decode_ends(head: bytes, tail: bytes) -> Checkpoint | None:
    """Return what the two ends of a file tell, without its messages and its prompt.

    None if it is not laid out as Go does it, is cut short, or has more at its ends than was read.
    """
    first, last = _HEAD.match(head), _TAIL.search(tail)
    if first is None or last is None:
        return None
    names = ("task_name", "iteration", "input_tokens", "output_tokens", "created_at")
    values = (*first.groups(), *last.groups())
    try:
        return _checkpoint({n: _value(v) for n, v in zip(names, values, strict=True)})
    except Corrupt:
        return None


def _checkpoint(wire: dict[str, JSON]) -> Checkpoint:
    fields: dict[str, JSON] = {"created_at": ZERO_TIME}
    for key, value in wire.items():
        if field_of(key) != "created_at":
            fields[key] = value
        elif value is not None:
            fields["created_at"] = _moment(value)
    try:
        return Checkpoint.from_json(fields)
    except InvalidInput as cause:
        raise Corrupt(f"the file is no checkpoint: {cause}") from cause


def _moment(value: JSON) -> JSON:
    if value == "":
        raise Corrupt("the file is no checkpoint: created_at must be an RFC 3339 time")
    # Go reads any number of digits, and goes by nine.
    return _TOO_FINE.sub(r"\1", value) if isinstance(value, str) else value


def _value(data: bytes) -> JSON:
    # Each byte that is not UTF-8 becomes one surrogate by this, and one U+FFFD in Go.
    text = _SURROGATE.sub("\ufffd", data.decode("utf-8", "surrogateescape"))
    try:
        value = _loads(text)
        if "\\ud" in text or "\\uD" in text:
            # A half of a pair that was written as an escape. Whole pairs are one character by now.
            value = _loads(_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError) as cause:
        raise Corrupt("the file is no JSON") from cause
    return value


def _loads(text: str) -> JSON:
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number
