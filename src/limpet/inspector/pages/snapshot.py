"""One snapshot: as a chat, as a tree of JSON, and as what changed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from markupsafe import Markup

from limpet.api.store import Store
from limpet.core import limits
from limpet.core.operations import ONE, SCOPE_PARAMS, SNAPSHOT, Param
from limpet.core.schema import COUNT, ID, KIND, TEXT
from limpet.errors import Corrupt, InvalidInput, LimpetError, NotFound, Unsupported
from limpet.inspector import links
from limpet.inspector.page import existing, page, render
from limpet.model import JSON, Note, ScopeKey, Snapshot, SnapshotInfo, SnapshotRef
from limpet.server.access import Grant
from limpet.server.call import Call, Response
from limpet.views.chat import Chat, read_chat
from limpet.views.format import address_text, json_start
from limpet.views.notes import note_value, notes_with
from limpet.views.overview import status_of
from limpet.views.page.changes import changes_html
from limpet.views.page.chat import NewMessages, Window, chat_window, folded_code, new_messages
from limpet.views.page.values import Level, crumbs, read_level, value_at
from limpet.views.refs import SeveralMatch, find_base, find_snapshot

VIEWS = ("chat", "state", "changes")
_POINTER = {"type": "string", "pattern": "^(/[\\s\\S]*)?$"}
_TREE = (
    Param("path", _POINTER, "a value of the state, as a JSON Pointer"),
    Param("start", COUNT, "its first member, or character, to show"),
    Param("stop", COUNT, "the member to end before"),
)
DETAIL_PARAMS = (
    Param("view", {"type": "string", "enum": VIEWS}, "chat, state or changes"),
    Param("turns", COUNT, "the message that must be among those shown; by default the last"),
    *_TREE,
    Param("base_session_id", ID, "compare with a snapshot of this session"),
    Param("base_scope_id", ID, "and of this scope"),
    Param("base_kind", KIND, "and of this kind"),
    Param("base_id", ID, "compare with this snapshot"),
    Param("base", TEXT, "compare with what this names, as in the command line"),
)
"""What says how a snapshot is shown, besides its address."""

_BASE = {"session_id": "base_session_id", "scope_id": "base_scope_id", "kind": "base_kind"}
_COMPARED_BYTES_MAX = 8 * limits.MIB  # above, the chat does not say what is new in it
_SCOPES_MAX = 12  # offered to compare with
_NOTES_MAX = 50
_NOTE_CHARS_MAX = 20_000
_SHOWN_ERRORS = (Corrupt, InvalidInput, NotFound, Unsupported)


class Detail(NamedTuple):
    """All that is shown of a snapshot, and what to type in a terminal for the same."""

    command: links.Command
    problem: str | None = None
    names: Sequence[str] = ()
    parent: SnapshotRef | None = None
    status: str = ""
    chat: Window | None = None
    turns: Markup = Markup()
    state: Mapping[str, Any] | None = None
    """The state as a tree, from the value at a path on; and what is stored with it."""
    changes: Mapping[str, Any] | None = None
    """What changed since another snapshot; its `base` is None if there is none."""
    heads: Sequence[SnapshotInfo] = ()


@page("/ui/snapshot", *SCOPE_PARAMS, SNAPSHOT, *DETAIL_PARAMS)
async def show_snapshot(call: Call) -> Response:
    """One snapshot, as a part of the page of its session."""

    def read(store: Store) -> dict[str, Any]:
        info = existing(store.scope(*call.scope).info(call.id))
        return read_detail(store, info, call.params, call.grant)

    return await _shown(call, "_snapshot.html", read)


@page("/ui/tree", *SCOPE_PARAMS, ONE, *_TREE)
async def show_members(call: Call) -> Response:
    """The members of a value, as a part of the tree of its state."""

    def read(store: Store) -> dict[str, Any]:
        snapshot = _load(store, call.scope, call.params["id"])
        return {"info": snapshot, "level": _level(snapshot.state, call.params)}

    return await _shown(call, "_members.html", read)


async def _shown(call: Call, template: str, read: Callable[[Store], dict[str, Any]]) -> Response:
    """Return a part of a page; what is damaged is a message in it."""
    try:
        values = await call.store.run(read)
    except Corrupt as error:
        return render(call, "_problem.html", problem=call.grant.told(error), names=())
    return render(call, template, **values)


def read_detail(
    store: Store, info: SnapshotInfo, params: Mapping[str, Any], grant: Grant
) -> dict[str, Any]:
    """Return what the template `_snapshot.html` needs to show a snapshot: info, view and detail.

    `params` are the checked parameters of the request, of which it uses `DETAIL_PARAMS`. A state
    that is damaged or was deleted just now is a message in the page, not an error.
    """
    info = grant.visible(info)
    view, status = params.get("view", "chat"), info.status
    try:
        found = _load(store, info.scope, info.id)
        state, status = found.state, status_of(store, found)
        chat = read_chat(state) if view == "chat" else None
        if view == "chat" and chat is None:
            view = "state"
        if chat is not None:
            window = chat_window(state, chat, _news(store, info, chat), params.get("turns"))
            detail = Detail(_command("show", info), chat=window, turns=_trusted(window.html))
        elif view == "state":
            detail = _state(store, info, state, params)
        else:
            detail = _changes(store, info, state, params, grant)
    except _SHOWN_ERRORS as error:
        detail = _problem(Detail(_command("show", info)), error, grant)
    detail = detail._replace(status=status)
    if info.parent_id is not None:
        detail = detail._replace(parent=SnapshotRef(info.scope, info.parent_id))
    return {"info": info, "view": view, "detail": detail}


def _problem(detail: Detail, error: LimpetError, grant: Grant) -> Detail:
    names = error.addresses if isinstance(error, SeveralMatch) else ()
    return detail._replace(problem=grant.told(error), names=names)


def _load(store: Store, key: ScopeKey, id: str) -> Snapshot:
    return existing(store.scope(*key).load(id))


def _command(verb: str, *infos: SnapshotInfo, more: Sequence[str] = ()) -> links.Command:
    names = [address_text(info.scope, info.id) for info in infos]
    return links.Command(verb, [*links.kind_option(infos[-1].scope), *more], names)


# As a chat


def _news(store: Store, info: SnapshotInfo, chat: Chat) -> NewMessages:
    if info.size > _COMPARED_BYTES_MAX:
        return NewMessages()
    try:
        base = find_base(store, info)
        if base is None or base.size > _COMPARED_BYTES_MAX:
            return NewMessages()
        return new_messages(read_chat(_load(store, base.scope, base.id).state), chat)
    except (Corrupt, NotFound):
        return NewMessages()  # the page of what changed says why


# As a tree


def _state(store: Store, info: SnapshotInfo, state: JSON, params: Mapping[str, Any]) -> Detail:
    path = params.get("path", "")
    notes = notes_with(store.scope(*info.scope), info.id)
    found = {
        "level": _level(state, params),
        "crumbs": [*crumbs(path)],
        "notes": shown_notes((info.scope, note) for note in notes),
        "metadata": _folded(info.metadata) if info.metadata else None,
    }
    more = ["--path", path] if path else ["--raw"]
    return Detail(_command("show", info, more=more), state=found)


def shown_notes(notes: Iterable[tuple[ScopeKey, Note]]) -> list[dict[str, Any]]:
    """Return the first of some notes as the pages show them."""
    return [
        {"key": key, "note": note, "html": _folded(note_value(key, note))}
        for key, note in islice(notes, _NOTES_MAX)
    ]


def _level(state: JSON, params: Mapping[str, Any]) -> Level:
    path = params.get("path", "")
    return read_level(value_at(state, path), path, params.get("start", 0), params.get("stop"))


def _folded(value: JSON) -> Markup:
    return _trusted(folded_code(json_start(value, _NOTE_CHARS_MAX)))


# As what changed


def _changes(
    store: Store, info: SnapshotInfo, state: JSON, params: Mapping[str, Any], grant: Grant
) -> Detail:
    scopes = islice(store.scopes(info.session_id), _SCOPES_MAX + 1)
    heads = [each.head for each in scopes if each.head is not None and each.key != info.scope]
    detail = Detail(_command("diff", info), heads=heads)
    is_named = not {*_BASE.values(), "base_id", "base"}.isdisjoint(params)
    try:
        base = _base(store, info, params, grant) if is_named else find_base(store, info)
        if base is None:
            return detail._replace(changes={"base": None, "html": ""})
        before = _load(store, base.scope, base.id).state
    except _SHOWN_ERRORS as error:
        return _problem(detail, error, grant)
    html = _trusted("".join(changes_html(before, state)))
    if is_named:
        detail = detail._replace(command=_command("diff", base, info))
    return detail._replace(changes={"base": base, "html": html, "is_parent": not is_named})


def _base(
    store: Store, info: SnapshotInfo, params: Mapping[str, Any], grant: Grant
) -> SnapshotInfo:
    if "base" in params:
        text = params["base"].strip()
        try:
            return _typed(store, info, text, grant)
        except (Corrupt, NotFound):
            if not grant.prefix:
                raise
            # It may be about what is outside, to which the steps back from a fork lead.
            raise NotFound(f"there is no such snapshot. name=`{text}`") from None
    own = links.address(info)
    key = limits.check_scope(*(params.get(_BASE[name], own[name]) for name in _BASE))
    grant.check_session(key.session_id)
    return existing(store.scope(*key).info(params.get("base_id")))


def _typed(store: Store, info: SnapshotInfo, text: str, grant: Grant) -> SnapshotInfo:
    """Return the snapshot that a text names: in the scope, or in the session, or by its address."""
    # What is before an @ may name a session, in full or by its beginning.
    before = [text[:at] for at, char in enumerate(text) if char == "@" and at]
    named = {*before, *(each.rpartition(":")[0] or each for each in before)}
    if not all(each.startswith(grant.prefix) for each in named):
        raise NotFound(f"there is no such snapshot. name=`{text}`")
    session_id, scope_id, kind = info.scope
    inside = partial(find_snapshot, store, text, session=session_id)
    if text.startswith("@"):
        found = inside(scope=scope_id, kind=kind)
    else:
        try:
            found = inside()
        except SeveralMatch as several:
            try:
                found = inside(scope=scope_id, kind=kind)
            except NotFound:
                raise several from None
    if not found.session_id.startswith(grant.prefix):
        raise NotFound(f"there is no such snapshot. name=`{text}`")
    return found


def _trusted(html: str) -> Markup:
    """Mark HTML of `views.page`, which escapes what it shows."""
    return Markup(html)  # noqa: S704
