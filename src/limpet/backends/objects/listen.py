"""What those who watch look at: revisions, read again only where a document has changed."""

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from limpet.backends.buckets.protocol import Ear
from limpet.backends.objects.documents import Doc, Files
from limpet.backends.objects.heads import Head, Heads
from limpet.backends.objects.history import History
from limpet.core.layout import File, Layout, id_prefix, unescape
from limpet.errors import Corrupt, Unavailable
from limpet.model import ScopeKey
from limpet.protocol import Target, Topic

_KNOWN_MAX = 16_384  # targets
_UNREAD = "unread"  # the mark of what cannot be read now: whoever wants to know, asks

Tokens: TypeAlias = dict[str, str | None]


class _Known(NamedTuple):
    """The mark of a target, and the documents that it was read from, as they were before."""

    mark: str | None
    tokens: Tokens


class Marks:
    """Reads the revisions of many targets, and remembers them."""

    def __init__(self, files: Files, heads: Heads, history: History) -> None:
        self._files = files
        self._heads = heads
        self._history = history
        self._lock = threading.Lock()
        self._known: OrderedDict[Target, _Known] = OrderedDict()
        _all.add(self)

    def read(self, targets: Sequence[Target]) -> list[str | None]:
        """Return the revisions, as `Backend.read_marks` promises."""
        known = self._remembered(targets)
        asked: Tokens = {key: None for target in targets for key in self._keys(target)}
        for each in known.values():
            asked |= {key: token or None for key, token in each.tokens.items()}
        # Before anything is read: what changes from now on is another the next time.
        tokens = self._files.bucket.fingerprints(asked)
        moved = [
            target
            for target in dict.fromkeys(targets)
            if target not in known
            or any(tokens[key] != token for key, token in known[target].tokens.items())
        ]
        found = self._look(moved, tokens)
        self._remember(found)
        unread = _Known(_UNREAD, {})
        return [(found.get(each) or known.get(each) or unread).mark for each in targets]

    def _keys(self, target: Target) -> list[str]:
        layout = self._files.layout
        keys = [layout.head_key(target.scope)]
        if target.id is not None:
            keys.append(layout.copy_key(target.scope, target.id))
        return keys

    def _look(self, targets: Sequence[Target], tokens: Tokens) -> dict[Target, _Known]:
        """Read targets anew; one that cannot be read is left out, if others can."""
        try:
            return self._look_at(targets, tokens)
        except Unavailable:
            if len(targets) == 1:
                raise
        found: dict[Target, _Known] = {}
        for each in targets:
            with suppress(Unavailable):
                found |= self._look_at([each], tokens)
        if not found:
            raise Unavailable("nothing that is watched can be read")
        return found

    def _look_at(self, targets: Sequence[Target], tokens: Tokens) -> dict[Target, _Known]:
        """Read targets anew: all heads together, then all copies."""
        scopes = list(dict.fromkeys(each.scope for each in targets))
        docs = self._files.read([self._files.head_place(scope) for scope in scopes])
        heads = {scope: self._heads.found(doc) for scope, doc in zip(scopes, docs, strict=True)}
        beneath = [
            (target, self._files.copy_place(target.scope, target.id))
            for target in targets
            if target.id is not None and not _shows(heads[target.scope], target.id)
        ]
        copies = self._files.read([place for _, place in beneath])
        found = {target: copy for (target, _), copy in zip(beneath, copies, strict=True)}
        known: dict[Target, _Known] = {}
        for target in targets:
            head, keys = heads[target.scope], self._keys(target)
            if target in found:
                doc = found[target]
                if isinstance(doc, Doc) and not head.counts(doc.header):
                    doc = None
            else:
                doc = head.damage or self._shown(target.scope, head)
            if head.is_void and isinstance(doc, Doc) and target.id is None:
                # What a void head shows may change without it.
                keys.append(self._files.layout.copy_key(target.scope, doc.header.id))
            seen = {key: tokens.get(key, "") for key in keys}
            if head.header is not None and head.header.pending is not None:
                seen[keys[0]] = ""  # it depends on another scope for a moment
            if isinstance(doc, Corrupt):
                mark: str | None = f"damaged.{'.'.join(map(str, seen.values()))}"
            else:
                mark = doc.header.revision if isinstance(doc, Doc) else None
            known[target] = _Known(mark, seen)
        return known

    def _shown(self, scope: ScopeKey, head: Head) -> Doc | Corrupt | None:
        try:
            return self._history.shown(scope, head)
        except Corrupt as error:
            return error

    def _remembered(self, targets: Iterable[Target]) -> dict[Target, _Known]:
        with self._lock:
            known = {each: self._known[each] for each in targets if each in self._known}
            for each in known:
                self._known.move_to_end(each)
            return known

    def _remember(self, known: dict[Target, _Known]) -> None:
        with self._lock:
            self._known |= known
            while len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)


_all: "weakref.WeakSet[Marks]" = weakref.WeakSet()


def _after_fork() -> None:
    # A thread that the child lacks may have held a lock. What is remembered is compared anyway.
    for marks in list(_all):
        marks._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _shows(head: Head, id: str) -> bool:
    return head.shown is not None and head.shown.header.id == id


# Hears of changes in sessions: what a bucket hears of its keys, by the layout.

# Nobody watches these, and a lease is renewed again and again.
_UNWATCHED = frozenset({File.LEASE, File.MANIFEST, File.NOTE})


class _Place(NamedTuple):
    folder: str
    session: str  # what its keys begin with
    session_id: str | None
    awaited: bool = False


class ObjectListener:
    """Tells in which sessions something may have changed."""

    def __init__(self, ear: Ear, layout: Layout) -> None:
        self._ear = ear
        self._layout = layout
        self._known: dict[Topic, _Place] = {}
        self._sessions: dict[str, str] = {}  # by what their keys begin with

    def follow(self, topics: Collection[Topic]) -> None:
        """Listen to the folders in which these topics are."""
        # Thousands may be followed, one more at a time.
        self._known = {each: self._known.get(each) or self._place(each) for each in topics}
        places = set(self._known.values())
        self._sessions = {place.session: place.session_id for place in places if place.session_id}
        self._ear.follow(
            {place.folder for place in places if not place.awaited},
            awaited={place.folder for place in places if place.awaited},
        )

    def _place(self, topic: Topic) -> "_Place":
        layout, session_id = self._layout, topic.session_id
        if topic.target is not None:
            session_id = topic.target.scope.session_id
        session = "" if session_id is None else layout.session_prefix(session_id)
        if topic.target is not None:
            return _Place(layout.scope_prefix(topic.target.scope), session, session_id)
        if topic.id is not None:
            # Nobody knows where it will be, but there will be a pointer to it.
            return _Place(id_prefix(topic.id), session, session_id, awaited=True)
        return _Place(session or layout.root, session, session_id)

    def wait(self, *, lively: bool) -> frozenset[str] | None:
        """Wait until something is heard; return the sessions."""
        while True:
            keys = self._ear.wait(lively=lively)
            if not keys:
                return keys
            sessions = {self._session_of(key) for key in keys if self._is_watched(key)}
            if None in sessions:
                return None
            if sessions:
                return frozenset(each for each in sessions if each is not None)

    def _is_watched(self, key: str) -> bool:
        found = self._layout.parse(key)
        return found is None or found.file not in _UNWATCHED

    def _session_of(self, key: str) -> str | None:
        """Return the session of a key or a folder; None if it cannot be told."""
        root = self._layout.root
        if not key.startswith(root):
            return None
        name = key[len(root) :].partition("/")[0]
        known = self._sessions.get(f"{root}{name}/")
        if known is not None:
            return known
        session_id = unescape(name) if name else None
        return session_id if isinstance(session_id, str) else None

    def wake(self) -> None:
        """End a wait."""
        self._ear.wake()

    def close(self) -> None:
        """Let go of what the bucket holds."""
        self._ear.close()
