"""Watching: revisions of what is watched, and a listener that reports sessions.

A head is read again only where its fingerprint has changed: nothing else can change what is
watched.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from limpet.backends.objects import keys
from limpet.backends.objects.files import Files
from limpet.backends.objects.keys import ROOT
from limpet.backends.objects.reader import ObjectReader, read_moment
from limpet.backends.support.recent import Recent
from limpet.core import ids
from limpet.core.names import unescape
from limpet.errors import LimpetError, Unavailable
from limpet.model import ScopeKey
from limpet.protocol import Listener, Target, Topic

_KNOWN_MAX = 16_384  # targets
_UNREAD = "unread"  # the revision of what cannot be read now: a caller reads it and gets the error


class _Known(NamedTuple):
    """The revision of a target, and the fingerprint of its head before that was read."""

    revision: str | None
    token: str | None


class Watching:
    """Reads the revisions of many targets, and caches them."""

    files: Files

    def __init__(self) -> None:
        self._recent: Recent[Target, _Known] = Recent(_KNOWN_MAX)
        super().__init__()

    def revisions(self, targets: Sequence[Target]) -> list[str | None]:
        known = {each: found for each in targets if (found := self._recent.get(each)) is not None}
        asked: dict[str, str | None] = {keys.head_key(each.scope): None for each in targets}
        asked |= {keys.head_key(each.scope): found.token or None for each, found in known.items()}
        # Before any head is read: what changes from now on has another fingerprint next time.
        tokens = self.files.bucket.fingerprints(asked)
        changed: dict[ScopeKey, list[Target]] = {}
        for each in dict.fromkeys(targets):
            token = tokens[keys.head_key(each.scope)]
            if each not in known or known[each].token != token:
                changed.setdefault(each.scope, []).append(each)
        read, failed = dict[Target, _Known](), list[Unavailable]()
        for scope, some in changed.items():
            try:
                read |= self._read_targets(scope, some, tokens[keys.head_key(scope)])
            except Unavailable as error:
                failed.append(error)
        if failed and not read:
            raise failed[0]
        for target, value in read.items():
            self._recent.put(target, value)
        unread = _Known(_UNREAD, None)
        return [(read.get(each) or known.get(each) or unread).revision for each in targets]

    def _read_targets(
        self, scope: ScopeKey, targets: Sequence[Target], token: str | None
    ) -> dict[Target, _Known]:
        def read(reader: ObjectReader) -> dict[Target, _Known]:
            # A pending fork depends on another scope for a moment.
            settled = token if reader.head.pending is None else ""
            return {each: _Known(_revision(reader, each.id), settled) for each in targets}

        try:
            return read_moment(self.files, scope, read)
        except Unavailable:
            raise
        except LimpetError:
            return dict.fromkeys(targets, _Known(f"damaged.{token}", token))


def _revision(reader: ObjectReader, id: str | None) -> str | None:
    if id is not None:
        return next((row.revision for row in reader.rows([id])), None)
    row = reader.head_row()
    return None if row is None else row.revision


class _Followed(NamedTuple):
    """The keys to listen for, and the session to report for them."""

    prefixes: tuple[str, ...]
    session_prefix: str
    session_id: str | None


class ObjectListener:
    """Reports the sessions of the keys that the listener of the bucket reports."""

    def __init__(self, listener: Listener[str]) -> None:
        self._listener = listener
        self._followed: dict[Topic, _Followed] = {}
        self._sessions: dict[str, str] = {}  # by the prefix of their keys

    def follow(self, topics: Collection[Topic]) -> None:
        # Thousands may be followed, one more at a time.
        self._followed = {each: self._followed.get(each) or _followed(each) for each in topics}
        followed = set(self._followed.values())
        self._sessions = {
            each.session_prefix: each.session_id for each in followed if each.session_id
        }
        self._listener.follow({prefix for each in followed for prefix in each.prefixes})

    def wait(self, *, active: bool) -> frozenset[str] | None:
        while True:
            reported = self._listener.wait(active=active)
            if not reported:
                return reported
            sessions = {self._session_of(key) for key in reported if _is_watched(key)}
            if None in sessions:
                return None
            if sessions:
                return frozenset(each for each in sessions if each is not None)

    def _session_of(self, key: str) -> str | None:
        """Return the session of a key or a folder; None if it is not known."""
        if not key.startswith(ROOT):
            return None
        name = key[len(ROOT) :].partition("/")[0]
        known = self._sessions.get(f"{ROOT}{name}/")
        if known is not None:
            return known
        session_id = unescape(name) if name else None
        return session_id if isinstance(session_id, str) else None

    def wake(self) -> None:
        self._listener.wake()

    def close(self) -> None:
        self._listener.close()


def _is_watched(key: str) -> bool:
    found = keys.parse(key)
    return found is None or found.is_head


def _followed(topic: Topic) -> _Followed:
    session_id = topic.session_id
    if topic.target is not None:
        session_id = topic.target.scope.session_id
    session = "" if session_id is None else keys.session_prefix(session_id)
    if topic.target is not None:
        prefixes = [keys.scope_prefix(topic.target.scope)]
    elif topic.id is not None:
        # Its scope is not known yet, but there will be a pointer to it.
        prefixes = [keys.id_prefix(topic.id)]
        tag = ids.tag_of(topic.id)
        if tag is not None:
            prefixes.append(keys.line_prefix(tag))
    else:
        prefixes = [session or ROOT]
    return _Followed(tuple(prefixes), session, session_id)
