"""Resolves what people type: a session, a scope of it, a snapshot.

| text                | what it names                                                       |
|---------------------|---------------------------------------------------------------------|
| `019ab3…`           | a snapshot by its id, or by a unique beginning of it                |
| `019ab3f0…9c2e`     | the same by both ends, as ids are shown; `..` works for `…`         |
| `@`                 | the head                                                            |
| `@~3`, `019ab3~3`   | three before it, along the parents, and from a fork to its source   |
| `chat-42@`          | the head of a session with one scope, or else of its scope `main`   |
| `chat-42:planner@`  | the head of one scope; `chat-42:planner@~1`, `chat-42:planner@019a` |
| `chat-42`           | the head as well, if no snapshot has this id; `chat-42:planner`     |

An exact name always wins.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from operator import add
from typing import NamedTuple, TypeVar

from limpet.api.store import Store
from limpet.core import limits
from limpet.errors import InvalidInput, NotFound, Unsupported
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.protocol import Query
from limpet.views.format import address_text, visible

# The id of a fork ends in `~` and eight characters.
_STEPS_BACK = re.compile(r"(.*)~([0-9]{1,7})", re.DOTALL)
_GAP = re.compile(r"…|\.{2,3}")
_PLAIN = re.compile(r"[\w@%+=:,./-][\w@%+=:,./~-]*", re.ASCII)
_CANDIDATES_SHOWN = 6  # in an error message
_LISTS = {
    "session": "limpet ls",
    "scope": "limpet ls SESSION",
    "snapshot": "limpet log SESSION",
    "snapshot or session": "limpet ls",
}
_CANDIDATES_MAX = 1000

T = TypeVar("T")


class _Address(NamedTuple):
    """Where a snapshot is searched, as far as it is said."""

    session: str | None
    scope: str | None
    kind: str | None


def find_session(store: Store, text: str) -> str:
    """Return the session with this id, or the only one that begins with it.

    Raises:
        NotFound: there is none.
        InvalidInput: there are several.
    """
    if not text:
        raise InvalidInput("the session id is empty")
    return text if _is_session(store, text) else _session_by_prefix(store, text)


def find_scope(
    store: Store, session: str | None = None, scope: str | None = None, kind: str | None = None
) -> ScopeInfo:
    """Return one scope of a session: the named one, the only one, or `main`.

    Without a session it is the store's only one. Ids may be shortened if they stay unique.

    Raises:
        NotFound: there is no such session or scope.
        InvalidInput: several match.
    """
    session_id = _only_session(store) if session is None else find_session(store, session)
    listed = partial(store.scopes, session_id, kind=kind)
    if scope is not None:
        here = [each for each in listed() if each.key.scope_id == scope]
        begins = (each for each in listed() if each.key.scope_id.startswith(scope))
        return _only(
            here or list(islice(begins, _CANDIDATES_SHOWN + 1)), "scope", scope, _scope_address
        )
    few, usual = list(islice(listed(), _CANDIDATES_SHOWN + 1)), ScopeKey(session_id)
    if len(few) > 1:
        mains = [each for each in listed() if each.key.scope_id == usual.scope_id]
        if len(mains) > 1:
            mains = [each for each in mains if each.key == usual]
        if mains:
            return mains[0]
    return _only(few, "scope", session_id, _scope_address)


def find_snapshot(
    store: Store,
    text: str,
    *,
    session: str | None = None,
    scope: str | None = None,
    kind: str | None = None,
) -> SnapshotInfo:
    """Return the snapshot that a text names, in the given session and scope, or anywhere.

    Raises:
        NotFound: there is none.
        InvalidInput: several match.
    """
    address = _Address(session, scope, kind)
    if not text:
        raise InvalidInput("the snapshot reference is empty")
    found = _exactly(store, text, address)
    if found is not None:
        return found
    if session is None and _is_session(store, text):
        return _head(store, text, scope, kind)
    back = _STEPS_BACK.fullmatch(text)
    if back is not None:
        name = back[1] or "@"
        start = find_snapshot(store, name, **address._asdict())
        return _before(store, start, int(back[2]), text)
    if text == "@":
        return _head(store, *address)
    # From the end: session ids are often e-mail addresses.
    for at in (at for at in range(len(text) - 1, 0, -1) if text[at] == "@"):
        exact = _exact_scope(store, text[:at], address)
        if exact is not None:
            return _inside(store, exact, text[at + 1 :])
    name, at_end, id = text.rpartition("@")
    if not at_end or not name:
        return _by_prefix(store, text, address)
    session_id, colon, scope_id = name.rpartition(":")
    if colon and session_id:
        return _inside(store, _Address(session_id, scope_id, kind), id)
    return _inside(store, _Address(name, scope, kind), id)


def _inside(store: Store, address: _Address, id: str) -> SnapshotInfo:
    if not id:
        return _head(store, *address)
    inside = find_scope(store, *address).key
    return find_snapshot(
        store, id, session=inside.session_id, scope=inside.scope_id, kind=inside.kind
    )


def is_exact(
    store: Store,
    text: str,
    info: SnapshotInfo,
    *,
    session: str | None = None,
    scope: str | None = None,
    kind: str | None = None,
) -> bool:
    """Return whether a text that found `info` names no session or scope by its beginning alone."""
    session_id, scope_id, _ = info.scope
    if session not in (None, session_id) or scope not in (None, scope_id):
        return False
    place, at_end, _ = text.rpartition("@")
    if text == info.id or (at_end and place in ("", session_id, f"{session_id}:{scope_id}")):
        return True
    back = _STEPS_BACK.fullmatch(text)
    if back is not None:
        address = {"session": session, "scope": scope, "kind": kind}
        start = find_snapshot(store, back[1], **address)
        return is_exact(store, back[1], start, **address)
    return not at_end and info.id.startswith(_GAP.split(text)[0])  # else it is a shortened session


def find_base(store: Store, info: SnapshotInfo) -> SnapshotInfo | None:
    """Return the snapshot that another one is based on; None if it is the first.

    That is its parent, or its fork source. If no snapshot has a parent, as in data of other tools,
    it is the one saved before.

    Raises:
        NotFound: it was deleted.
    """
    ref = info.forked_from
    if info.parent_id is not None:
        ref = SnapshotRef(info.scope, info.parent_id)
    if ref is None:
        last = info if info.kept else None
        before = next(store.scope(*info.scope).history(after=last, limit=1), None)
        return before if before is not None and before.parent_id is None else None
    found = store.scope(*ref.scope).info(ref.id)
    if found is None:
        raise NotFound(f"the parent or fork source was deleted. id=`{ref.id}`")
    return found


def _exactly(store: Store, text: str, address: _Address) -> SnapshotInfo | None:
    """Return the snapshot with this id; InvalidInput if several scopes have one."""
    if address.session is None and address.scope is None:
        query = Query(id=limits.check_id("id", text))
        try:
            found = store.driver.run(
                lambda backend: backend.list_snapshots(query, limit=_CANDIDATES_SHOWN + 1)
            )
        except Unsupported:
            return None  # there is no index: a session is needed
        found = [info for info in found if address.kind in (None, info.scope.kind)]
    else:
        here = (store.scope(*key).info(text) for key in _scopes(store, address))
        found = list(islice((info for info in here if info is not None), _CANDIDATES_SHOWN + 1))
    return _only(found, "snapshot", text, _ref_address) if found else None


def _by_prefix(store: Store, text: str, address: _Address) -> SnapshotInfo:
    start, *rest = _GAP.split(text, maxsplit=1)
    end = rest[0] if rest else ""
    if not start and not end:
        raise InvalidInput(f"this is not a snapshot reference. name=`{text}`")
    here = chain(_kept(store, start, address), _drafts(store, start, address))
    refs = islice((ref for ref in here if ref.id.endswith(end)), _CANDIDATES_SHOWN + 1)
    candidates = list(dict.fromkeys(refs))
    if not candidates and address.session is None and not rest:
        session_id, colon, scope_id = text.rpartition(":")
        if colon and address.scope is None and _is_session(store, session_id):
            return _head(store, session_id, scope_id, address.kind)
        found = _session_by_prefix(store, text, "snapshot or session")
        return _head(store, found, address.scope, address.kind)
    ref = _only(candidates, "snapshot", text, _ref_address)
    info = store.scope(*ref.scope).info(ref.id)
    if info is None:
        raise NotFound(f"the snapshot was deleted just now. id=`{ref.id}`")
    return info


def _kept(store: Store, start: str, address: _Address) -> Iterator[SnapshotRef]:
    anywhere = address == _Address(None, None, None)
    found: list[SnapshotRef] | None = None
    try:
        found = store.driver.run(lambda backend: backend.find_refs(start, limit=_CANDIDATES_MAX))
    except Unsupported:  # there is no index
        if anywhere and next(store.sessions(prefix=start, limit=1), None) is None:
            raise
        if anywhere:
            return
    if found is not None and len(found) < _CANDIDATES_MAX:
        inside = () if anywhere else set(_scopes(store, address))
        yield from (ref for ref in found if anywhere or ref.scope in inside)
    elif anywhere:
        every = (SnapshotRef(info.scope, info.id) for info in store.history())
        yield from (ref for ref in every if ref.id.startswith(start))
    else:
        for key in _scopes(store, address):
            ids = store.scope(*key).ids()
            yield from (SnapshotRef(key, id) for id in ids if id.startswith(start))


def _drafts(store: Store, start: str, address: _Address) -> Iterator[SnapshotRef]:
    session = None if address.session is None else find_session(store, address.session)
    for each in store.scopes(session, kind=address.kind):
        head = each.head
        if head is not None and not head.kept and head.id.startswith(start):
            yield SnapshotRef(each.key, head.id)


def _scopes(store: Store, address: _Address) -> Iterator[ScopeKey]:
    session, scope, kind = address
    if scope is not None:
        yield find_scope(store, session, scope, kind).key
        return
    session_id = _only_session(store) if session is None else find_session(store, session)
    for each in store.scopes(session_id, kind=kind):
        yield each.key


def _exact_scope(store: Store, name: str, address: _Address) -> _Address | None:
    """Return the session and scope that `SESSION` or `SESSION:SCOPE` names in full."""
    _, scope, kind = address
    if _is_session(store, name):
        return _Address(name, scope, kind)
    session_id, colon, scope_id = name.rpartition(":")
    found = store.scopes(session_id, kind=kind) if colon and session_id else iter(())
    is_there = any(each.key.scope_id == scope_id for each in found)
    return _Address(session_id, scope_id, kind) if is_there else None


def _head(store: Store, session: str | None, scope: str | None, kind: str | None) -> SnapshotInfo:
    found = find_scope(store, session, scope, kind)
    if found.head is None:
        store.scope(*found.key).info()  # raises Corrupt if it is damaged
        hint = "it has only notes, or a lease: `limpet notes SESSION` lists notes"
        raise NotFound(f"the scope has no head; {hint}. scope=`{address_text(found.key)}`")
    return found.head


def _before(store: Store, start: SnapshotInfo, steps: int, text: str) -> SnapshotInfo:
    at: SnapshotInfo | None = start
    met: set[SnapshotRef] = set()
    while at is not None and SnapshotRef(at.scope, at.id) not in met:
        met.add(SnapshotRef(at.scope, at.id))
        last = at
        for last in store.scope(*at.scope).ancestors(at.id):
            if not steps:
                return last
            steps -= 1
        at = find_base(store, last) if last.parent_id is None else None
    raise NotFound(f"the history does not go back that far. ref=`{text}`")


def _is_session(store: Store, text: str) -> bool:
    return bool(text) and next(iter(store.scopes(text)), None) is not None


def _only_session(store: Store) -> str:
    found = list(store.sessions(limit=2))
    if not found:
        raise NotFound("the store is empty")
    if len(found) > 1:
        raise InvalidInput("the store has several sessions: name one; `limpet ls` lists them")
    return found[0]


def _ref_address(ref: SnapshotRef | SnapshotInfo) -> tuple[str, str]:
    return address_text(ref.scope, ref.id), ref.scope.kind


def _scope_address(info: ScopeInfo) -> tuple[str, str]:
    return address_text(info.key), info.key.kind


def _session_address(session_id: str) -> tuple[str, str]:
    return session_id, ""


def _typed(name: str) -> str:
    """Return a name as it is typed in a shell."""
    return name if _PLAIN.fullmatch(name) else shlex.quote(name)


class SeveralMatch(InvalidInput):
    """Several things match; `addresses` are the first of what to type instead."""

    def __init__(self, message: str, addresses: list[str]) -> None:
        super().__init__(message)
        self.addresses = addresses


def _session_by_prefix(store: Store, text: str, what: str = "session") -> str:
    found = list(store.sessions(prefix=text, limit=_CANDIDATES_SHOWN + 1))
    # A mistake may be in its second half.
    like = store.sessions(prefix=text[: len(text) // 2], limit=_CANDIDATES_MAX)
    return _only(found, what, text, _session_address, like)


def _only(
    found: list[T],
    what: str,
    text: str,
    address: Callable[[T], tuple[str, str]],
    like: Iterable[str] = (),
) -> T:
    if not found:
        from difflib import get_close_matches

        near = [_typed(visible(each)) for each in get_close_matches(text, like, n=1)]
        hint = "".join(f"did you mean `{each}`? " for each in near)
        raise NotFound(f"there is no such {what}: {hint}`{_LISTS[what]}` lists them. name=`{text}`")
    if len(found) > 1:
        named = sorted(map(address, found))[:_CANDIDATES_SHOWN]
        addresses = [_typed(visible(name)) for name, _ in named]
        if len(set(addresses)) < len(addresses):  # they differ in their kind
            kinds = (f" --kind {kind}" for _, kind in named)
            addresses = list(map(add, addresses, kinds))
        addresses += ["…"] if len(found) > _CANDIDATES_SHOWN else []
        raise SeveralMatch(f"several {what}s match: name one in full. name=`{text}`", addresses)
    return found[0]
