"""Leases: a document that tells who holds a scope, and its key in the head, which is what fences.

A claim writes the document, then stamps its key into the head. Every later head carries it on, and
who writes under a lease needs to find its own key there: the compare-and-set of the head is the
proof, so nothing depends on a clock. The document only tells whether a scope is free: a lease has
lapsed when its document was seen unchanged for as long as it lasts, on the clock of who looks.
"""

from dataclasses import replace
from typing import NamedTuple

from limpet.backends.buckets.protocol import Stored
from limpet.backends.objects.documents import TRAIL_MAX, Beaten, trail_after
from limpet.backends.objects.heads import Head
from limpet.backends.objects.roll_forward import Writer
from limpet.backends.support.recent import Recent
from limpet.core import leases
from limpet.core.commits import check_fence
from limpet.core.document import Header
from limpet.core.layout import clipped_ids
from limpet.core.leases import LeaseFile
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.protocol import Claim, Hold

_SCOPES_MAX = 16_384  # whose leases one process watches at the same time


class _Found(NamedTuple):
    file: LeaseFile | None
    version: str | None
    asked_s: float  # when it was asked for: it was not yet renewed then


class Leases:
    """Claims, renews and gives back leases."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._files = writer.files
        self._heads = writer.heads
        # The last write of a lease, and when this process first saw it.
        self._seen: Recent[ScopeKey, tuple[str, float]] = Recent(_SCOPES_MAX)

    def claim(self, claim: Claim) -> Hold:
        """Take a lease, as `Backend.claim` promises."""
        return self._writer.contend(claim.scope, lambda: self._claim(claim))

    def _claim(self, claim: Claim) -> Hold:
        scope, found = claim.scope, self._read(claim.scope)
        other = self._lasting(claim, found)
        if other is not None:
            return other
        self._write(claim, found, claim.key)
        # The head first, then the lease once more, then the compare-and-set of the head: who was
        # asleep for so long that its claim has lapsed must not put out the one that came after it.
        try:
            head = self._heads.read(scope, whole=True, versions=True)
        except Corrupt:
            self.drop(scope, claim.key)  # what is damaged cannot carry a lease
            raise
        mine = self._read(scope).file
        if mine is None or mine.key != claim.key:
            raise Beaten
        self._stamp(claim, head, claim.key)
        return Hold(claim.key, claim.owner, claim.ttl_us)

    def _lasting(self, claim: Claim, found: _Found) -> Hold | None:
        """Return the lease of another, unless it was given back or has lapsed."""
        file = found.file
        if file is None or file.key in (None, claim.key):
            return None
        seen_s = found.asked_s - self._first_seen(claim.scope, file.w)
        left_us = file.ttl_us - max(0, int(seen_s * 1_000_000))
        return None if left_us <= 0 else file.hold(left_us)

    def _first_seen(self, scope: ScopeKey, w: str) -> float:
        """Return when this process first saw this write of a lease: now, if not before."""
        now_s = self._writer.monotonic
        seen = self._seen.get(scope)
        if seen is None or seen[0] != w:
            seen = (w, now_s)
            self._seen.put(scope, seen)
        return seen[1]

    def renew(self, claim: Claim) -> Hold:
        """Let a lease last from now on, as `Backend.renew` promises."""

        def attempt() -> Hold:
            found = self._read(claim.scope)
            check_fence(claim.key, None if found.file is None else found.file.key, claim.scope)
            self._write(claim, found, claim.key)
            return Hold(claim.key, claim.owner, claim.ttl_us)

        return self._writer.contend(claim.scope, attempt)

    def release(self, claim: Claim) -> None:
        """Give a lease back, as `Backend.release` promises.

        The head goes first: who claims the scope afterwards must not be put out by it.
        """

        def attempt() -> None:
            found = self._read(claim.scope)
            head = self._heads.look(claim.scope, whole=True)
            if head.fence == claim.key:
                self._stamp(claim, head, None)
            if found.file is not None and found.file.key == claim.key:
                self._write(claim, found, None)

        self._writer.contend(claim.scope, attempt)

    def key_of(self, scope: ScopeKey) -> str | None:
        """Return the key of the lease of a scope; "" for one that is damaged."""
        try:
            file = self._read(scope).file
        except Corrupt:
            return ""
        return None if file is None else file.key

    def drop(self, scope: ScopeKey, key: str) -> None:
        """Let a lease end, unless it is another by now; with "" one that is damaged goes."""

        def attempt() -> None:
            try:
                found = self._read(scope)
            except Corrupt:
                self._files.bucket.delete([self._files.layout.lease_key(scope)])
                return
            if found.file is not None and found.file.key == key:
                claim = Claim(scope, key, found.file.owner, found.file.ttl_us, self._writer.draw())
                self._write(claim, found, None)

        self._writer.contend(scope, attempt)

    def read(self, scope: ScopeKey, now: int) -> Hold | None:
        """Return the lease of a scope, as `Backend.read_lease` promises."""
        file = self._read(scope).file
        return None if file is None else file.hold(file.updated_at + file.ttl_us - now)

    def _read(self, scope: ScopeKey) -> _Found:
        asked_s = self._writer.monotonic
        (stored,) = self._files.bucket.get([self._files.layout.lease_key(scope)])
        if stored is None:
            return _Found(None, None, asked_s)
        return _Found(leases.read(stored.data), stored.version, asked_s)

    def _write(self, claim: Claim, found: _Found, key: str | None) -> None:
        """Put a lease in the place of what was found; None as its key gives it back."""
        scope, before = claim.scope, found.file
        trail = () if before is None else (before.w, *before.trail)
        count = 0 if before is None else before.n
        is_new = key is not None and (before is None or before.key != key)
        file = LeaseFile(
            count + is_new,
            key,
            claim.owner,
            claim.ttl_us,
            claim.stamp.now,
            self._writer.draw().nonce,
            trail[:TRAIL_MAX],
            *clipped_ids(scope),
        )
        version = self._files.swap(
            self._files.layout.lease_key(scope),
            leases.write(file),
            expect=found.version,
            nonce=file.w,
            base="" if before is None else before.w,
            nonces_of=_nonces_of,
        )
        if version is not None:
            self._first_seen(scope, file.w)

    def _stamp(self, claim: Claim, head: Head, fence: str | None) -> None:
        """Let a head carry a lease. What it shows stays, and so does its revision."""
        if head.header is not None and head.fence == fence:
            return
        scope = claim.scope
        header = self._stamped(claim, head)
        body = b"{}" if header.void else self._writer.whole(scope, head).body
        doc = self._writer.swap_head(scope, head, replace(header, fence=fence), body)
        if doc.version is None:
            raise Beaten  # it was stored and replaced: by another claim, perhaps
        known = self._heads.remembered(scope)
        if known is None or known.version != head.version:
            known = Head()
        copied, bare = known.copied, known.bare
        stamped = Head(doc._replace(stored=None), doc.version, copied=copied, bare=bare)
        self._heads.remember(scope, stamped)

    def _stamped(self, claim: Claim, head: Head) -> Header:
        """Return the header of the same head, or of a void one where there is none."""
        if head.header is not None and not head.is_foreign:
            # Its source lives, or it would not be the head: so a fork under way is settled by this.
            return self._writer.rewritten(head.header)
        life = self._writer.life(claim.scope, head, claim.stamp.now)
        header = head.header
        if header is None:
            header = _void(claim.stamp.now, life.line)
        session_id, scope_id = clipped_ids(claim.scope)
        return replace(
            header,
            line=life.line,
            last=header.last and life.last,
            floor=life.floor,
            mixed=life.mixed,
            foreign=life.foreign,
            w=self._writer.draw().nonce,
            trail=() if header.void else trail_after(header),
            session_id=session_id,
            scope_id=scope_id,
        )


def _void(now: int, line: str) -> Header:
    """Return a head that has never shown anything, and does not show what was only kept so far."""
    return Header(
        id="",
        line=line,
        seq=0,
        rev=0,
        nonce="",
        born="",
        w="",
        created_at=now,
        updated_at=now,
        at=now // 1000,
        size=0,
        kept=False,
        void=True,
    )


def is_held(stored: Stored | None) -> bool:
    """Tell whether a document is that of a lease that was not given back, or damaged."""
    try:
        return stored is not None and leases.read(stored.data).key is not None
    except Corrupt:
        return True


def is_damaged(stored: Stored) -> bool:
    """Tell whether a document is none of a lease."""
    try:
        leases.read(stored.data)
    except Corrupt:
        return True
    return False


def _nonces_of(data: bytes) -> tuple[str, ...]:
    file = leases.read(data)
    return (file.w, *file.trail)
