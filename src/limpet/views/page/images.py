"""Small images of a state as checked data URIs, to embed in a page."""

import base64
import binascii
from collections.abc import Iterator
from typing import Final

from limpet.core.limits import KIB
from limpet.model import JSON
from limpet.views.chat import Media
from limpet.views.chat.media import base64_bytes

IMAGE_BYTES_MAX: Final = 256 * KIB

_DATA_URL = "data:image/"
_RIFF, _WEBP = b"RIFF", b"WEBP"
_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_ENCODED_BEGINNINGS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")


class Images:
    """The images in a state, by their size."""

    def __init__(self, state: JSON) -> None:
        self._by_size: dict[int, set[str]] = {}
        for text in _texts(state):
            uri = image_uri(text)
            if uri is not None:
                size = base64_bytes(uri.partition(",")[2])
                self._by_size.setdefault(size, set()).add(uri)

    def find(self, media: Media) -> str | None:
        """Return the data URI of an image; None if it is too large, or another has its size."""
        found = self._by_size.get(media.size or -1, set())
        return next(iter(found)) if len(found) == 1 and media.kind == "image" else None


def image_uri(text: str) -> str | None:
    """Return base64 as a data URI if it is a PNG, JPEG, GIF or WebP below 256 KiB, else None.

    The type is that of its bytes.
    """
    if text.startswith(_DATA_URL):
        text = text.partition(";base64,")[2]
    if not text.startswith(_ENCODED_BEGINNINGS) or len(text) > 2 * IMAGE_BYTES_MAX:
        return None
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = next((kind for begin, kind in _BEGINNINGS.items() if data.startswith(begin)), None)
    if data[:4] == _RIFF and data[8:12] == _WEBP:
        kind = "image/webp"
    if kind is None or len(data) >= IMAGE_BYTES_MAX:
        return None
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _texts(state: JSON) -> Iterator[str]:
    waiting = [state]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
