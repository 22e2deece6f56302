"""What every write over a bucket is made of: attempts, roll-forward, and heads that are restored.

The compare-and-set of the head is the commit. A kept head is copied into history before another
takes its place, by whoever replaces it: so a writer that was killed in between is rolled forward.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from holdfast.backends._bucket.protocol import Moved
from holdfast.backends._objects.files import Beaten, Doc, Files, Found, Grave, trail_after
from holdfast.backends._objects.heads import Head, Heads
from holdfast.backends._objects.history import History
from holdfast.backends._objects.index import Index
from holdfast.core import document, ids
from holdfast.core.document import Header
from holdfast.core.limits import CONTENTION_WAIT_S_MAX
from holdfast.errors import Corrupt, Unavailable
from holdfast.model import ScopeKey
from holdfast.protocol import Clock, Stamp

T = TypeVar("T")

_PAUSE_S_MIN = 0.001
_PAUSE_S_MAX = 0.1
_RESENDS_MAX = 8
_HEALED_MAX = 10_000  # pointers compared before a foreign history is left to `repair`


class Life(NamedTuple):
    """The present life of a scope: its line, and what new places and ids must exceed."""

    line: str
    last: int
    floor: str
    fence: str | None
    is_new: bool


class Writer:
    """What every write is made of: attempts, roll-forward, and heads that are restored."""

    def __init__(
        self,
        files: Files,
        index: Index,
        heads: Heads,
        history: History,
        *,
        clock: Clock,
        draw: Callable[[], Stamp],
    ) -> None:
        self.files = files
        self.index = index
        self.heads = heads
        self.history = history
        self.draw = draw
        self._clock = clock

    def contend(self, scope: ScopeKey, attempt: Callable[[], T]) -> T:
        """Make an attempt again while others get in first, with jitter, for 30 seconds."""
        deadline = self._clock.monotonic() + CONTENTION_WAIT_S_MAX
        pause_s = _PAUSE_S_MIN
        while True:
            try:
                return attempt()
            except Beaten:
                self.heads.remember(scope, None)
            if self._clock.monotonic() > deadline:
                raise Unavailable(
                    f"others kept getting in first. waited_s=`{CONTENTION_WAIT_S_MAX:g}`"
                )
            self._clock.sleep(self._clock.jitter() * pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def whole(self, scope: ScopeKey, head: Head) -> Doc:
        """Return the document of a head with its state, unless it has moved."""
        if head.doc is not None and head.doc.stored is not None:
            return head.doc
        doc = self.files.read_head(scope, whole=True)
        if doc is None or doc.version != head.version:
            raise Beaten
        return doc

    def body_of(self, scope: ScopeKey, head: Head, doc: Doc | None) -> bytes | None:
        """Return the state of a document: of the head, or of a copy that was read whole."""
        if doc is None:
            return None
        return self.whole(scope, head).body if doc is head.shown else doc.body

    def new_line(self, now: int) -> str:
        """Mint the id of another life of a scope."""
        return ids.mint(now, self.draw().bits, "")

    def life(self, scope: ScopeKey, head: Head, now: int) -> Life:
        """Return the life that goes on with this head, or a new one."""
        floor, last = self.heads.given(scope)
        header = head.header
        if header is not None and head.is_foreign:
            header = self._adopted(scope, head)
        if header is None or header.line is None:
            # Each attempt begins another line: a lost one that arrives late is then never joined.
            line = self.new_line(now)
            old = 0 if header is None else header.seq
            return Life(line, max(last, old), floor, None, is_new=True)
        last = max(last, header.last, header.seq)
        return Life(header.line, last, max(floor, header.floor), header.fence, is_new=False)

    def _adopted(self, scope: ScopeKey, head: Head) -> Header | None:
        """Return the newest copy beneath a foreign head, whose line goes on; point to all others.

        Other tools write no pointers, and once the head is ours the pointers tell the history.
        """
        index, pointed = self.index, set[str]()
        if index.enabled:
            for pointer in index.history(scope, after=None, limit=_HEALED_MAX):
                pointed.add(pointer.ref.id)
                if len(pointed) >= _HEALED_MAX:
                    break
        newest: Header | None = None
        for doc in self.history.scan(scope, head):
            header = doc.header
            if doc.foreign and header.kept and header.id not in pointed:
                index.point(scope, header)
            if newest is None or (header.line is not None, header.seq) > (
                newest.line is not None,
                newest.seq,
            ):
                newest = header
        return newest

    def roll_forward(self, scope: ScopeKey, head: Head) -> None:
        """See that a kept head is in history, before anything else takes its place."""
        shown = head.shown
        if shown is None or shown.foreign or not shown.header.kept or head.copied:
            return
        found = self.files.read_one(self.files.copy_place(scope, shown.header.id))
        if not is_done(shown.header, found):
            # A document whose state is damaged is kept as it is: that is for `check` to tell.
            stored = shown.stored or self._stored(scope, head)
            self.copy(scope, shown.header, stored)

    def _stored(self, scope: ScopeKey, head: Head) -> bytes:
        (found,) = self.files.bucket.get([self.files.layout.head_key(scope)])
        if found is None or found.version != head.version:
            raise Beaten
        return found.data

    def copy(
        self, scope: ScopeKey, header: Header, stored: bytes, *, expect: str | None = None
    ) -> None:
        """Put a head into history: its pointers, then its copy. Anyone may do it, at any time.

        An older version of the same line is replaced, and what is left of another line only while
        the head is still of this one. A tombstone of its own stays. `expect` is the version that
        is known to stand there.
        """
        self.index.point(scope, header)
        place = self.files.copy_place(scope, header.id)
        for _ in range(_RESENDS_MAX):
            try:
                self.files.bucket.put(place.key, stored, expect=expect)
                return
            except Moved:
                pass
            except Unavailable as error:
                if error.outcome_known:
                    raise
            found = self.files.read_one(place, versions=True)
            if isinstance(found, Corrupt):
                raise found
            if is_done(header, found):
                return
            if found is not None and _line_of(found) != header.line:
                head = self.files.read_head(scope)
                if head is None or head.header.line != header.line:
                    return
            expect = None if found is None else found.version
        raise Unavailable(f"a copy cannot be written. key=`{place.key}`", outcome_known=False)

    def swap_head(self, scope: ScopeKey, head: Head, header: Header, body: bytes) -> Doc:
        """Replace the head; return the new one, without a version if it was replaced since."""
        data = document.write(header, scope.kind, body)
        version = self.files.swap(
            self.files.layout.head_key(scope),
            data,
            expect=head.version,
            nonce=header.w,
            base="" if head.header is None else head.header.w,
        )
        return Doc(header, version, data)

    def rewritten(self, header: Header) -> Header:
        """Return the header of another write of the same."""
        return replace(header, w=self.draw().nonce, trail=trail_after(header))

    def bump(self, scope: ScopeKey, head: Head, *, until: int = 0) -> None:
        """Write a void head anew, so that nobody who read it restores what is about to change.

        `until` is the last place that it may show from now on.
        """
        if head.header is not None and head.is_void:
            header = replace(head.header, last=max(head.header.last, until))
            self.swap_head(scope, head, self.rewritten(header), b"{}")

    def restore(self, scope: ScopeKey, head: Head) -> None:
        """Put what a void head shows into it; always begins anew afterwards."""
        newest = self.history.newest(scope, head)
        if newest is None or newest.foreign or head.header is None:
            return
        place = self.files.copy_place(scope, newest.header.id)
        found = self.files.read_one(place, whole=True, versions=True)
        if not isinstance(found, Doc) or found.header.revision != newest.header.revision:
            raise Beaten
        # The copy is written anew, so that nobody who read it before changes it behind our back.
        touched = self.rewritten(found.header)
        data, base = document.write(touched, scope.kind, found.body), found.header.w
        self.files.swap(place.key, data, expect=found.version, nonce=touched.w, base=base)
        void = head.header
        shown = replace(
            touched,
            line=void.line,
            last=max(void.last, touched.seq),
            floor=void.floor,
            fence=void.fence,
            w=self.draw().nonce,
            trail=trail_after(void),
        )
        self.swap_head(scope, head, shown, found.body)
        raise Beaten


def _line_of(found: Doc | Grave) -> str | None:
    return found.header.line if isinstance(found, Doc) else found.tombstone.line


def is_done(header: Header, found: Found) -> bool:
    """Tell whether history already holds this version of a snapshot, a newer one, or its end."""
    if isinstance(found, Doc) and found.header.line == header.line:
        return (found.header.seq, found.header.rev) >= (header.seq, header.rev)
    if isinstance(found, Grave) and found.tombstone.line == header.line:
        return found.tombstone.seq >= header.seq
    return False
