"""Images, documents, audio and video, in the spellings of all frameworks.

States hold bytes as base64. Their size is shown, never the bytes.
"""

import re
from urllib.parse import unquote_to_bytes

from limpet.model import JSON
from limpet.views.chat.model import Fields, Media, Text, text_of
from limpet.views.format import size_text

_KINDS = ("image", "document", "audio", "video", "file")
_HOLDERS = ("source", "image_url", "video_url", "file", "input_audio", "resource")
_DATA = ("bytes", "data", "base64", "file_data", "blob", "b64_json")
_LINKS = ("url", "uri", "file_url", "image_url", "video_url", "fileUri", "file_uri")
_LOCATIONS = ("location", "s3Location")
_NAMES = ("filename", "name", "title", "displayName", "display_name", "file_id")
_MIMES = ("media_type", "mime_type", "mimeType", "contentType")
_DOCUMENTS = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
}
_ENCODED = "__bytes_encoded__"  # written by Strands for Python
_BASE64_CHARS_MIN = 256  # shorter ones may be ids, keys or digests, which are worth seeing
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_DATA_URL = re.compile(
    r"data:[\w.+-]+/[\w.+-]+(?:;[\w.+=-]+)*(?:;base64,[A-Za-z0-9+/=_%\s-]*|,\S*)", re.ASCII | re.I
)


def read_media(block: Fields, kind: str) -> Media | None:
    """Return the file that a block holds or links to, None if there is none."""
    holder = next((held for name in _HOLDERS if isinstance(held := block.get(name), dict)), {})
    locations = [
        location if isinstance(location, dict) else {"uri": location}
        for held in (holder, block)
        for name in _LOCATIONS
        if (location := held.get(name)) is not None
    ]
    # Inner objects describe the file more precisely.
    all_fields: list[Fields] = [*locations, holder, block]
    mime = _first(all_fields, _MIMES) or _mime(kind, _first(all_fields, ("format",)))
    name = _first([holder, block], _NAMES)
    data = next((found for held in all_fields for found in _data(held)), None)
    if data is not None:
        if _is_data(data):
            return _from_data_url(data, kind, name, mime)
        is_plain = holder.get("type") == "text"
        size = len(data.encode("utf-8", "replace")) if is_plain else base64_bytes(data)
        return Media(kind, name, mime, size)
    url = _first(all_fields, _LINKS)
    if url is not None:
        return media_at(url, mime, kind=kind, name=name)
    has_id = text_of(holder, "file_id") or text_of(block, "file_id")
    return Media(kind, name, mime, None) if has_id else None


def media_at(
    url: str, mime: str | None, *, kind: str | None = None, name: str | None = None
) -> Media:
    if _is_data(url):
        return _from_data_url(url, kind, name, mime)
    return Media(kind or kind_of(mime), name, mime, None, url)


def text_or_media(text: str) -> Text | Media:
    """Return a text; one that is only a `data:` URL is a file."""
    return media_at(text, None) if _DATA_URL.fullmatch(text) else Text(text)


def mime_of(block: Fields) -> str | None:
    return text_of(block, *_MIMES)


def kind_of(mime: str | None) -> str:
    kind = (mime or "").partition("/")[0]
    return kind if kind in _KINDS else "document" if mime in _DOCUMENTS.values() else "file"


def base64_bytes(text: str) -> int:
    chars = len(text) - sum(map(text.count, "\r\n \t="))
    return chars * 3 // 4


def without_base64(value: JSON) -> JSON:
    """Return a value in which long base64 and `data:` URLs are replaced by their size."""
    if isinstance(value, str):
        if _DATA_URL.fullmatch(value):
            media = media_at(value, None)
            return f"… {size_text(media.size or 0)} of {media.mime}"
        if len(value) >= _BASE64_CHARS_MIN and _BASE64.fullmatch(value):
            return f"… {size_text(base64_bytes(value))} of base64"
        return value
    if isinstance(value, list):
        return [without_base64(each) for each in value]
    if isinstance(value, dict):
        return {name: without_base64(each) for name, each in value.items()}
    return value


def _is_data(url: str) -> bool:
    return url[: len("data:")].lower() == "data:"


def _first(all_fields: list[Fields], names: tuple[str, ...]) -> str | None:
    return next((found for held in all_fields if (found := text_of(held, *names))), None)


def _data(held: Fields) -> list[str]:
    found = []
    for name in _DATA:
        value = held.get(name)
        if isinstance(value, dict) and value.get(_ENCODED):
            value = value.get("data")
        if isinstance(value, str):
            found.append(value)
    return found


def _mime(kind: str, format: str | None) -> str | None:
    if format is None or "/" in format:
        return format
    if kind in ("image", "audio", "video"):
        return f"{kind}/{format}"
    return _DOCUMENTS.get(format)


def _from_data_url(url: str, kind: str | None, name: str | None, mime: str | None) -> Media:
    head, _, data = url[len("data:") :].partition(",")
    said, *options = head.split(";")
    mime = said or mime
    size = base64_bytes(data) if "base64" in options else len(unquote_to_bytes(data))
    return Media(kind or kind_of(mime), name, mime, size)
