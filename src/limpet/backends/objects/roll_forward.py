"""The parts of every write: attempts, roll-forward, and restored heads.

The compare-and-set of the head is the commit. A kept head is copied into history before it is
replaced, by the writer that replaces it: so the work of a killed writer is rolled forward.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from limpet.backends.buckets.protocol import Moved
from limpet.backends.objects.documents import Beaten, Doc, Files, Found, Grave, trail_after
from limpet.backends.objects.heads import Head, Heads, Life
from limpet.backends.objects.history import History
from limpet.backends.objects.index import Index
from limpet.backends.support.backoff import Backoff
from limpet.core import document, ids
from limpet.core.document import Header
from limpet.core.limits import CONTENTION_WAIT_S_MAX
from limpet.errors import Corrupt, Unavailable
from limpet.model import ScopeKey
from limpet.protocol import Clock, Stamp

T = TypeVar("T")

_PAUSE_S_MIN = 0.000_5
_PAUSE_S_MAX = 0.05
_RESENDS_MAX = 8
_CHUNK = 16  # copies read to find one of ours


class Writer:
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

    @property
    def monotonic(self) -> float:
        return self._clock.monotonic()

    def pause(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def contend(self, scope: ScopeKey, attempt: Callable[[], T]) -> T:
        """Repeat an attempt while other writers win the compare-and-set, for up to 30 seconds."""
        backoff = Backoff(
            self._clock,
            first_s=_PAUSE_S_MIN,
            longest_s=_PAUSE_S_MAX,
            wait_s=CONTENTION_WAIT_S_MAX,
        )
        while True:
            try:
                return attempt()
            except Beaten:
                self.heads.remember(scope, None)
            if not backoff.sleep():
                raise Unavailable(
                    "other writers kept changing the scope first: try again later. "
                    f"waited_s=`{CONTENTION_WAIT_S_MAX:g}`"
                )

    def whole(self, scope: ScopeKey, head: Head) -> Doc:
        """Return the document of a head with its state; raise Beaten if it has moved."""
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
        return ids.mint(now, self.draw().bits, "")

    def life(self, scope: ScopeKey, head: Head, now: int, *, is_kept_only: bool = False) -> Life:
        """Return the life that continues with this head, or a new one.

        A save with head=False (`is_kept_only`) does not need to know what history holds.
        """
        floor, last = self.heads.given(scope)
        header = head.header
        strange = head.is_foreign or head.damage is not None
        if strange:
            header = self._adopted(scope, head)
        if header is None or header.line is None:
            # Each attempt begins another line: a delayed write of an earlier one is then ignored.
            line = self.new_line(now)
            old = 0 if header is None else header.seq
            prefix = self.files.layout.history_prefix(scope)
            if is_kept_only:
                return Life(line, max(last, old), floor, None, True, mixed=True, foreign=True)
            listed = self.files.bucket.list(prefix, limit=_CHUNK)
            # If all copies count without a line, none belongs to an earlier life. It is worth these
            # reads: otherwise every listing of ids has to read all copies.
            alike = len(listed) < _CHUNK and len(self.history.at(Head(), listed)) == len(listed)
            return Life(
                line, max(last, old), floor, None, True, mixed=not alike, foreign=bool(listed)
            )
        last, floor = max(last, header.last, header.seq), max(floor, header.floor)
        # A foreign head has no lease, and that of a copy below it may have passed on since.
        fence = None if strange else header.fence
        foreign = strange or header.foreign
        return Life(header.line, last, floor, fence, False, mixed=header.mixed, foreign=foreign)

    def _adopted(self, scope: ScopeKey, head: Head) -> Header | None:
        """Return the newest copy of ours below a foreign head: its line continues."""
        if self.index.enabled:
            pointers = self.index.history(scope, after=None, limit=_CHUNK)
            while chunk := list(islice(pointers, _CHUNK)):
                ids = list(dict.fromkeys(each.ref.id for each in chunk))
                newest = _newest(self.history.copies(scope, head, ids))
                if newest is not None:
                    return newest
        # By modification time: many copies of other tools may be newer than ours.
        places = sorted(self.history.listed(scope), key=lambda each: each.modified, reverse=True)
        for start in range(0, len(places), _CHUNK):
            newest = _newest(self.history.at(head, places[start : start + _CHUNK]))
            if newest is not None:
                return newest
        return None

    def roll_forward(self, scope: ScopeKey, head: Head) -> None:
        """Copy a kept head into history before it is replaced."""
        shown = head.shown
        if shown is None or shown.foreign or not shown.header.kept or head.copied:
            return
        found = self.files.read_one(self.files.copy_place(scope, shown.header.id))
        if not is_done(shown.header, found):
            # A document with a damaged state is copied as it is; `check` reports it.
            stored = shown.stored or self._stored(scope, head)
            self.copy(scope, shown.header, stored)

    def _stored(self, scope: ScopeKey, head: Head) -> bytes:
        (found,) = self.files.bucket.get([self.files.layout.head_key(scope)])
        if found is None or found.version != head.version:
            raise Beaten
        return found.data

    def copy(self, scope: ScopeKey, header: Header, stored: bytes, *, known: Found = None) -> None:
        """Copy a head into history: its pointers, then its copy. Any process may do so, any time.

        An older version of the same line is replaced; a copy of another line only while the head
        still has this one. Its own tombstone stays. `known` is the present copy, if known.
        """
        beside = known.header if isinstance(known, Doc) and not known.foreign else None
        self.index.point(scope, header, beside=beside)
        place = self.files.copy_place(scope, header.id)
        expect = known.version if isinstance(known, Doc | Grave) else None
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
        """Return the header for writing the same snapshot again."""
        return replace(header, w=self.draw().nonce, trail=trail_after(header), pending=None)

    def void(self, header: Header) -> Header:
        return replace(
            self.rewritten(header),
            size=0,
            kept=False,
            void=True,
            parent=None,
            forked_from=None,
            status="",
            labels=b"{}",
            metadata=b"{}",
        )

    def bump(self, scope: ScopeKey, head: Head, *, until: int = 0) -> None:
        """Write a void head again, so that no writer that read it restores what will be changed.

        `until` is the greatest `seq` that the scope may show from now on.
        """
        if head.header is not None and head.is_void:
            header = replace(head.header, last=max(head.header.last, until))
            self.swap_head(scope, head, self.rewritten(header), b"{}")

    def restore(self, scope: ScopeKey, head: Head) -> None:
        """Make the snapshot that a void head shows the head again, and raise Beaten."""
        newest = self.history.newest(scope, head)
        if newest is None or newest.foreign or head.header is None:
            return
        place = self.files.copy_place(scope, newest.header.id)
        found = self.files.read_one(place, whole=True, versions=True)
        if not isinstance(found, Doc) or found.header.revision != newest.header.revision:
            raise Beaten
        # The copy is written again, so that no writer that read it before can change it.
        void = head.header
        touched = replace(
            self.rewritten(found.header), line=void.line, mixed=void.mixed, foreign=void.foreign
        )
        data, base = document.write(touched, scope.kind, found.body), found.header.w
        self.files.swap(place.key, data, expect=found.version, nonce=touched.w, base=base)
        shown = replace(
            touched,
            last=max(void.last, touched.seq),
            floor=void.floor,
            fence=void.fence,
            pending=None,
            w=self.draw().nonce,
            trail=trail_after(void),
        )
        self.swap_head(scope, head, shown, found.body)
        raise Beaten


def _newest(docs: Sequence[Doc]) -> Header | None:
    ours = [doc.header for doc in docs if doc.header.line is not None]
    return max(ours, key=lambda header: header.seq, default=None)


def _line_of(found: Doc | Grave) -> str | None:
    return found.header.line if isinstance(found, Doc) else found.tombstone.line


def is_done(header: Header, found: Found) -> bool:
    """Return whether history has this version of a snapshot, a newer one, or its tombstone."""
    if isinstance(found, Doc) and found.header.line == header.line:
        return (found.header.seq, found.header.rev) >= (header.seq, header.rev)
    if isinstance(found, Grave) and found.tombstone.line == header.line:
        return found.tombstone.seq >= header.seq
    return False
