"""Downloads of what a page shows."""

import re
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from limpet import portable
from limpet.api.store import Store
from limpet.core import codec
from limpet.core.operations import JSON_TYPE, LINES_TYPE, SCOPE_PARAMS, SNAPSHOT, Param
from limpet.errors import LimpetError, NotFound
from limpet.inspector import links
from limpet.inspector.page import HTML_TYPE, existing, page, render
from limpet.model import ScopeInfo, ScopeKey
from limpet.server.call import Call, Response, Stream
from limpet.views.overview import session_title
from limpet.views.session_document import SessionDocument

_TYPES = {
    "html": HTML_TYPE,
    "md": "text/markdown; charset=utf-8",
    "jsonl": LINES_TYPE,
    "json": JSON_TYPE,
}
_CHUNK_BYTES = 256 * 1024
_NAME_CHARS_MAX = 80
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_FORMAT = Param("format", {"type": "string", "enum": list(_TYPES)}, "of the file")


@page("/ui/export", *SCOPE_PARAMS, SNAPSHOT, _FORMAT)
async def export(call: Call) -> Response:
    """A session as a file, or the state of one snapshot; without a format, the choice."""
    key, form = call.scope, call.params.get("format")
    if form is None:
        return await _choices(call, key)
    if form == "json":
        state = await call.store.run(lambda store: _state(store, key, call.id))
        return Response(200, state, JSON_TYPE, _headers(f"{key.session_id}-{key.scope_id}", form))

    def read(store: Store) -> Iterator[bytes]:
        _scopes(store, key.session_id)
        if form == "jsonl":
            origins = call.grant.prefix
            return portable.export_lines(
                store, session_id=key.session_id, skipped=lambda finding: None, origins=origins
            )
        kind = "markdown" if form == "md" else "html"
        document = SessionDocument(store, key.session_id, kind, visible=call.grant.visible)
        return (part.encode("utf-8", "replace") for part in document.parts())

    parts = Stream(_chunks(call, read, is_text=form != "jsonl"), _TYPES[form])
    return Response(200, parts, headers=_headers(key.session_id, form))


async def _choices(call: Call, asked: ScopeKey) -> Response:
    def read(store: Store) -> tuple[str | None, list[ScopeInfo]]:
        scopes = _scopes(store, asked.session_id)
        return session_title(store, asked.session_id, scopes), scopes

    title, scopes = await call.store.run(read)
    file = f"{_safe(asked.session_id)}.html"
    command = links.Command("export", ["-o", file], [asked.session_id])
    heads = {each.key: each.head.created_at for each in scopes if each.head is not None}
    # The link of a session names no scope, and it may have none of the usual name.
    key = asked if asked in heads or call.id else max(heads, key=heads.__getitem__, default=asked)
    shown: dict[str, Any] = {"key": key, "id": call.id, "has_state": key in heads}
    return render(call, "export.html", title=title, command=command, **shown)


def _scopes(store: Store, session_id: str) -> list[ScopeInfo]:
    found = list(store.scopes(session_id))
    if not found:
        raise NotFound("there is no such session")
    return found


def _state(store: Store, key: ScopeKey, id: str | None) -> bytes:
    return codec.encode(existing(store.scope(*key).load(id)).state) + b"\n"


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name)[:_NAME_CHARS_MAX].strip("-.") or "session"


def _headers(name: str, form: str) -> dict[str, str]:
    """Return what makes a browser save a file: nothing in it may run as a page of this server."""
    return {
        "content-disposition": f'attachment; filename="{_safe(name)}.{form}"',
        "content-security-policy": "sandbox",
    }


async def _chunks(
    call: Call, read: Callable[[Store], Iterator[bytes]], *, is_text: bool
) -> AsyncGenerator[bytes, None]:
    parts = await call.store.run(read)
    is_begun = False
    try:
        while chunk := await call.store.run(lambda _: _next_chunk(parts)):
            yield chunk
            is_begun = True
    except LimpetError as error:
        if not is_begun or not is_text:
            raise  # an error page, or a last line that says so
        yield f"\n\nThis export is not complete: {error}\n".encode()


def _next_chunk(parts: Iterator[bytes]) -> bytes:
    found, size = [], 0
    for part in parts:
        found.append(part)
        size += len(part)
        if size >= _CHUNK_BYTES:
            break
    return b"".join(found)
