"""How people name things: a session, a scope of it, a snapshot.

| text                | what it names                                                       |
|---------------------|---------------------------------------------------------------------|
| `019ab3…`           | a snapshot by its id, or by a beginning that no other one has       |
| `019ab3f0…9c2e`     | the same by both ends, as ids are shown; `..` will do for the dots  |
| `@`                 | the head                                                            |
| `@~3`, `019ab3~3`   | three before it, along the parents                                  |
| `chat-42@`          | the head of a session that has one scope, or else of its `main`     |
| `chat-42:planner@`  | the head of one scope; `chat-42:planner@~1`, `chat-42:planner@019a` |
| `chat-42`           | the head as well, if no snapshot is called so; `chat-42:planner`     |

An exact name always wins, so that whatever an id holds, it can be said.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

from holdfast.errors import InvalidInput, NotFound, Unsupported
from holdfast.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef
from holdfast.store import Store

_STEPS_BACK = re.compile(r"(.*)~(\d{1,7})", re.DOTALL)  # the name of a fork ends in eight
_GAP = re.compile(r"…|\.{2,3}")
_SHOWN = 4  # names told of those that could be meant
_CANDIDATES_MAX = 1000

T = TypeVar("T")


def find_session(store: Store, text: str) -> str:
    """Return the session of this name, or the only one whose name begins so.

    Raises:
        NotFound: there is none.
        InvalidInput: there are several.
    """
    if _is_session(store, text):
        return text
    found = list(store.sessions(prefix=text, limit=_SHOWN + 1))
    return _only(found, "session", text, str)


def find_scope(
    store: Store, session: str | None = None, scope: str | None = None, kind: str | None = None
) -> ScopeInfo:
    """Return one scope of a session: the one named, the only one, or the one called `main`.

    Without a session it is the store's only one. Names may be shortened as long as they are clear.

    Raises:
        NotFound: there is no such session or scope.
        InvalidInput: it is not clear which one is meant.
    """
    session_id = _only_session(store) if session is None else find_session(store, session)
    if scope is not None:
        here = [each for each in store.scopes(session_id, kind=kind) if each.key.scope_id == scope]
        if not here:
            begins = (s for s in store.scopes(session_id, kind=kind) if _begins(s.key, scope))
            here = list(islice(begins, _SHOWN + 1))
        return _only(here, "scope", scope, _scope_name)
    few = list(islice(store.scopes(session_id, kind=kind), _SHOWN + 1))
    if len(few) > 1:
        main = ScopeKey(session_id, kind=kind or ScopeKey(session_id).kind)
        named = next((s for s in store.scopes(session_id, kind=main.kind) if s.key == main), None)
        if named is not None:
            return named
    return _only(few, "scope", session_id, _scope_name)


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
        InvalidInput: there are several.
    """
    given = (session, scope, kind)
    found = _exactly(store, text, given)
    if found is not None:
        return found
    if session is None and _is_session(store, text):
        return _head(store, text, scope, kind)
    back = _STEPS_BACK.fullmatch(text)
    if back is not None:
        name = back[1] or "@"
        start = find_snapshot(store, name, session=session, scope=scope, kind=kind)
        return _before(store, start, int(back[2]), text)
    place, at, id = text.rpartition("@")
    if not at:
        return _by_prefix(store, text, given)
    if place:
        given = _placed(store, place, given)
    if not id:
        return _head(store, *given)
    inside = find_scope(store, *given).key
    return find_snapshot(
        store, id, session=inside.session_id, scope=inside.scope_id, kind=inside.kind
    )


_Given = tuple[str | None, str | None, str | None]


def _exactly(store: Store, text: str, given: _Given) -> SnapshotInfo | None:
    if not text:
        return None
    if given == (None, None, None):
        try:
            return store.find(text)
        except Unsupported:
            return None  # there is no index; the session has to be said
    found = (store.scope(*key).info(text) for key in _scopes(store, given))
    return next((info for info in found if info is not None), None)


def _by_prefix(store: Store, text: str, given: _Given) -> SnapshotInfo:
    start, *rest = _GAP.split(text, maxsplit=1)
    end = rest[0] if rest else ""
    here = chain(_kept(store, start, given), _drafts(store, start, given))
    refs = islice((ref for ref in here if ref.id.endswith(end)), _SHOWN + 1)
    candidates = list(dict.fromkeys(refs))
    if not candidates and given[0] is None and not rest:
        session_id, colon, scope_id = text.rpartition(":")
        if colon and given[1] is None and _is_session(store, session_id):
            return _head(store, session_id, scope_id, given[2])
        return _head(store, find_session(store, text), *given[1:])
    ref = _only(candidates, "snapshot", text, lambda ref: f"{ref.id} in {_place(ref.scope)}")
    info = store.scope(*ref.scope).info(ref.id)
    if info is None:
        raise NotFound(f"it was deleted just now. id=`{ref.id}`")
    return info


def _kept(store: Store, start: str, given: _Given) -> Iterator[SnapshotRef]:
    """Yield kept snapshots whose ids begin so."""
    anywhere = given == (None, None, None)
    try:
        found = store._run(lambda backend: backend.find_refs(start, limit=_CANDIDATES_MAX))
    except Unsupported:  # there is no index
        if anywhere and next(store.sessions(prefix=start, limit=1), None) is None:
            raise
        found = None
    if found is not None and (anywhere or len(found) < _CANDIDATES_MAX):
        inside = () if anywhere else set(_scopes(store, given))
        yield from (ref for ref in found if anywhere or ref.scope in inside)
    elif not anywhere:
        for key in _scopes(store, given):
            ids = store.scope(*key).ids()  # from the first: where a beginning stands is not known
            yield from (SnapshotRef(key, id) for id in ids if id.startswith(start))


def _drafts(store: Store, start: str, given: _Given) -> Iterator[SnapshotRef]:
    """Yield heads that are in no history, whose ids begin so."""
    session = None if given[0] is None else find_session(store, given[0])
    for each in store.scopes(session, kind=given[2]):
        head = each.head
        if head is not None and not head.kept and head.id.startswith(start):
            yield SnapshotRef(each.key, head.id)


def _scopes(store: Store, given: _Given) -> Iterator[ScopeKey]:
    """Yield the scopes that an id may be in."""
    session, scope, kind = given
    if scope is not None:
        yield find_scope(store, session, scope, kind).key
        return
    session_id = _only_session(store) if session is None else find_session(store, session)
    for each in store.scopes(session_id, kind=kind):
        yield each.key


def _placed(store: Store, place: str, given: _Given) -> _Given:
    """Return where `SESSION` or `SESSION:SCOPE` leads, what was given otherwise aside."""
    _, scope, kind = given
    session_id, colon, scope_id = place.rpartition(":")
    if _is_session(store, place) or not colon or not session_id or not scope_id:
        return place, scope, kind
    return session_id, scope_id, kind


def _head(store: Store, session: str | None, scope: str | None, kind: str | None) -> SnapshotInfo:
    found = find_scope(store, session, scope, kind)
    if found.head is None:
        raise NotFound(f"it shows nothing now. scope=`{_place(found.key)}`")
    return found.head


def _before(store: Store, start: SnapshotInfo, steps: int, text: str) -> SnapshotInfo:
    line = store.scope(*start.scope).ancestors(start.id)
    found = next(islice(line, steps, None), None)
    if found is None:
        raise NotFound(f"the line does not go back that far. ref=`{text}`")
    return found


def _is_session(store: Store, text: str) -> bool:
    return bool(text) and next(iter(store.scopes(text)), None) is not None


def _only_session(store: Store) -> str:
    found = list(store.sessions(limit=2))
    if not found:
        raise NotFound("the store is empty")
    if len(found) > 1:
        raise InvalidInput("there are several sessions: name one")
    return found[0]


def _begins(key: ScopeKey, text: str) -> bool:
    return key.scope_id.startswith(text)


def _place(key: ScopeKey) -> str:
    return f"{key.session_id}:{key.scope_id}"


def _scope_name(info: ScopeInfo) -> str:
    return f"{info.key.scope_id} ({info.key.kind})"


def _only(found: list[T], what: str, text: str, name: Callable[[T], str]) -> T:
    if not found:
        raise NotFound(f"there is no such {what}. name=`{text}`")
    if len(found) > 1:
        names = _listed(map(name, found))
        raise InvalidInput(f"several {what}s could be meant. name=`{text}` found=`{names}`")
    return found[0]


def _listed(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:_SHOWN]) + (", …" if len(shown) > _SHOWN else "")
