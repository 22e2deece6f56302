"""The parts of Gemini's messages, in the spellings of its API and of its Python library."""

from limpet.model import JSON
from limpet.views._chat_media import kind_of, mime_of, read_media
from limpet.views._chat_parts import Answer, Call, Fields, Part, Result, Within, text_of
from limpet.views._chat_rest import rest

_CALLS = ("functionCall", "function_call")
_ANSWERS = ("functionResponse", "function_response")
MEDIA = frozenset({"inlineData", "inline_data", "fileData", "file_data"})
KEYS = frozenset({*_CALLS, *_ANSWERS, *MEDIA})


def read_gemini(key: str, value: JSON, within: Within) -> list[Part] | None:
    """Return the parts that stand for one of Gemini's; None if it is not one of them."""
    if not isinstance(value, dict):
        return None
    if key in MEDIA:
        media = read_media(value, kind_of(mime_of(value)))
        return None if media is None else [media]
    name = text_of(value, "name")
    if name is None:
        return None
    if key in _CALLS:
        given = value.get("args")
        call = Call(name, {} if given is None else given, text_of(value, "id"))
        return [call, *rest(value, "name", "id", "args")]
    return [_answer(name, value, within)]


def _answer(name: str, value: Fields, within: Within) -> Answer:
    given = value.get("response")
    # What a tool gave is under `output`, or under `error` if it failed.
    is_error = isinstance(given, dict) and given.get("error") is not None and "output" not in given
    more = rest(value, "name", "id", "response", "parts")
    result = Result((*within(given), *within(value.get("parts")), *more), is_error)
    return Answer(name, text_of(value, "id"), result)
