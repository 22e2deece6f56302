"""Watching objects: revisions of what is watched, and a listener that reports sessions.

A document is read again only where its fingerprint has changed.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from limpet.backends.buckets.protocol import KeyPrefix
from limpet.backends.objects.documents import Doc, Files, Found
from limpet.backends.objects.heads import Head, Heads
from limpet.backends.objects.history import History
from limpet.backends.support.recent import Recent
from limpet.core.layout import File, Layout, id_prefix, unescape
from limpet.errors import Corrupt, Unavailable
from limpet.model import ScopeKey
from limpet.protocol import Listener, Target, Topic

_KNOWN_MAX = 16_384  # targets
_UNREAD = "unread"  # the revision of what cannot be read now: a caller reads it and gets the error

Tokens: TypeAlias = dict[str, str | None]


class _Known(NamedTuple):
    """The revision of a target, and the fingerprints of its documents before they were read."""

    revision: str | None
    tokens: Tokens


class Revisions:
    """Reads the revisions of many targets, and caches them."""

    def __init__(self, files: Files, heads: Heads, history: History) -> None:
        self._files = files
        self._heads = heads
        self._history = history
        self._recent: Recent[Target, _Known] = Recent(_KNOWN_MAX)

    def read(self, targets: Sequence[Target]) -> list[str | None]:
        """Return the revisions, as `Backend.read_revisions` promises."""
        known = {each: found for each in targets if (found := self._recent.get(each)) is not None}
        asked: Tokens = {key: None for target in targets for key in self._keys(target)}
        for each in known.values():
            asked |= {key: token or None for key, token in each.tokens.items()}
        # Before any document is read: what changes from now on has another fingerprint next time.
        tokens = self._files.bucket.fingerprints(asked)
        changed = [
            target
            for target in dict.fromkeys(targets)
            if target not in known
            or any(tokens[key] != token for key, token in known[target].tokens.items())
        ]
        read = self._read_available(changed, tokens)
        for target, value in read.items():
            self._recent.put(target, value)
        unread = _Known(_UNREAD, {})
        return [(read.get(each) or known.get(each) or unread).revision for each in targets]

    def _keys(self, target: Target) -> list[str]:
        layout = self._files.layout
        keys = [layout.head_key(target.scope)]
        if target.id is not None:
            keys.append(layout.copy_key(target.scope, target.id))
        return keys

    def _read_available(self, targets: Sequence[Target], tokens: Tokens) -> dict[Target, _Known]:
        """Read targets; those that cannot be read are left out, unless that is all of them."""
        try:
            return self._read(targets, tokens)
        except Unavailable:
            if len(targets) == 1:
                raise
        read: dict[Target, _Known] = {}
        for each in targets:
            with suppress(Unavailable):
                read |= self._read([each], tokens)
        if not read:
            raise Unavailable(f"none of the watched documents can be read. count=`{len(targets)}`")
        return read

    def _read(self, targets: Sequence[Target], tokens: Tokens) -> dict[Target, _Known]:
        """Read all heads together, then all copies."""
        scopes = list(dict.fromkeys(each.scope for each in targets))
        docs = self._files.read([self._files.head_place(scope) for scope in scopes])
        heads = {scope: self._heads.found(doc) for scope, doc in zip(scopes, docs, strict=True)}
        copied = [
            (target, self._files.copy_place(target.scope, target.id))
            for target in targets
            if target.id is not None and not _shows(heads[target.scope], target.id)
        ]
        docs = self._files.read([place for _, place in copied])
        copies = {target: copy for (target, _), copy in zip(copied, docs, strict=True)}
        return {
            target: self._known(target, heads[target.scope], copies, tokens) for target in targets
        }

    def _known(
        self, target: Target, head: Head, copies: dict[Target, Found], tokens: Tokens
    ) -> _Known:
        keys = self._keys(target)
        if target in copies:
            doc = copies[target]
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
            return _Known(f"damaged.{'.'.join(map(str, seen.values()))}", seen)
        return _Known(doc.header.revision if isinstance(doc, Doc) else None, seen)

    def _shown(self, scope: ScopeKey, head: Head) -> Doc | Corrupt | None:
        try:
            return self._history.shown(scope, head)
        except Corrupt as error:
            return error


def _shows(head: Head, id: str) -> bool:
    return head.shown is not None and head.shown.header.id == id


# Not watched; leases are also renewed again and again.
_UNWATCHED = frozenset({File.LEASE, File.MANIFEST, File.NOTE})


class _Followed(NamedTuple):
    """The keys to listen for, and the session to report for them."""

    keys: KeyPrefix
    session_prefix: str
    session_id: str | None


class ObjectListener:
    """Reports the sessions of the keys that the listener of the bucket reports."""

    def __init__(self, listener: Listener[KeyPrefix], layout: Layout) -> None:
        self._listener = listener
        self._layout = layout
        self._followed: dict[Topic, _Followed] = {}
        self._sessions: dict[str, str] = {}  # by the prefix of their keys

    def follow(self, topics: Collection[Topic]) -> None:
        # Thousands may be followed, one more at a time.
        self._followed = {each: self._followed.get(each) or self._keys_of(each) for each in topics}
        followed = set(self._followed.values())
        self._sessions = {
            each.session_prefix: each.session_id for each in followed if each.session_id
        }
        self._listener.follow({each.keys for each in followed})

    def _keys_of(self, topic: Topic) -> _Followed:
        layout, session_id = self._layout, topic.session_id
        if topic.target is not None:
            session_id = topic.target.scope.session_id
        session = "" if session_id is None else layout.session_prefix(session_id)
        if topic.target is not None:
            keys = KeyPrefix(layout.scope_prefix(topic.target.scope))
        elif topic.id is not None:
            # Its scope is not known yet, but there will be an index entry for it.
            keys = KeyPrefix(id_prefix(topic.id))
        else:
            keys = KeyPrefix(session or layout.root)
        return _Followed(keys, session, session_id)

    def wait(self, *, active: bool) -> frozenset[str] | None:
        while True:
            keys = self._listener.wait(active=active)
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
        """Return the session of a key or a folder; None if it is not known."""
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
        self._listener.wake()

    def close(self) -> None:
        self._listener.close()
