"""The length of a value in JavaScript: `JSON.stringify(value).length`.

It counts units of UTF-16, so a character beyond the first plane counts twice. JavaScript has one
type of numbers: `1.0` is written as `1`, and integers beyond 2^53 are rounded.
"""

from collections.abc import Sized
from decimal import Decimal
from json.encoder import encode_basestring

from limpet.model import JSON

_INTEGER_MAX = 2**53
_PLAIN_DIGITS_MAX = 21  # numbers from 1e21 on have an exponent
_ZEROS_MAX = 6  # so have numbers below 1e-6
_NULL = len("null")


def length_of(value: JSON) -> int:
    length, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            length += _text(each)
        elif isinstance(each, dict):
            length += _brackets(each) + len(each) + sum(map(_text, each))
            left += each.values()
        elif isinstance(each, list | tuple):
            length += _brackets(each)
            left += each
        elif each is None or each is True:
            length += _NULL  # `true` is as long
        else:
            length += len("false") if each is False else _number(each)
    return length


def _brackets(value: Sized) -> int:
    """Return the length of the brackets around the members, and of the commas between them."""
    return 2 + max(len(value) - 1, 0)


def _text(value: str) -> int:
    written = encode_basestring(value)  # escapes exactly what JavaScript escapes
    if written.isascii():
        return len(written)
    return len(written.encode("utf-16-le")) // 2


def _number(value: float) -> int:
    """Return the length of the shortest text that reads back as the same number."""
    if isinstance(value, int) and -_INTEGER_MAX <= value <= _INTEGER_MAX:
        return len(str(int(value)))
    try:
        number = float(value)
    except OverflowError:
        return _NULL  # Infinity, which is written as null
    if number == 0:
        return 1  # -0 is written as 0
    shortest = Decimal(repr(number)).normalize()
    # The number is 0.DIGITS times ten to the power of `point`.
    sign, count, point = number < 0, len(shortest.as_tuple().digits), shortest.adjusted() + 1
    if count <= point <= _PLAIN_DIGITS_MAX:
        return sign + point
    if 0 < point <= _PLAIN_DIGITS_MAX:
        return sign + count + 1
    if -_ZEROS_MAX < point <= 0:
        return sign + len("0.") - point + count
    return sign + count + (count > 1) + len("e+") + len(str(abs(point - 1)))
