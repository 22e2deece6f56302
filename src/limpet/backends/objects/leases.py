"""Leases: a document that says who holds a scope, and its key in the head, which fences writes.

A claim writes the document, then stores its key in the head. Every later head keeps it, and a write
under a lease must find its own key there: the compare-and-set of the head protects it, so nothing
depends on a clock. The document only says whether a scope is free: a lease has expired when its
document was seen unchanged for the whole time to live, on the clock of the claiming process.
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
    asked_s: float  # when it was read: it was not renewed yet


class Leases:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._files = writer.files
        self._heads = writer.heads
        # The last write of a lease, and when this process first saw it.
        self._seen: Recent[ScopeKey, tuple[str, float]] = Recent(_SCOPES_MAX)

    def claim(self, claim: Claim) -> Hold:
        return self._writer.contend(claim.scope, lambda: self._claim(claim))

    def _claim(self, claim: Claim) -> Hold:
        scope, found = claim.scope, self._read(claim.scope)
        other = self._lasting(claim, found)
        if other is not None:
            return other
        self._write(claim, found, claim.key)
        # Read the head, then the lease again, then compare-and-set the head: a process that was
        # suspended until its claim expired must not displace the next holder.
        try:
            head = self._heads.read(scope, whole=True, versions=True)
        except Corrupt:
            self.drop(scope, claim.key)  # a damaged head cannot have a lease
            raise
        mine = self._read(scope).file
        if mine is None or mine.key != claim.key:
            raise Beaten
        self._stamp(claim, head, claim.key)
        return Hold(claim.key, claim.owner, claim.ttl_us)

    def _lasting(self, claim: Claim, found: _Found) -> Hold | None:
        """Return the lease of another owner, unless it was released or has expired."""
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
        def attempt() -> Hold:
            found = self._read(claim.scope)
            check_fence(claim.key, None if found.file is None else found.file.key, claim.scope)
            self._write(claim, found, claim.key)
            return Hold(claim.key, claim.owner, claim.ttl_us)

        return self._writer.contend(claim.scope, attempt)

    def release(self, claim: Claim) -> None:
        """As `Backend.release`; the head first, so that the next holder keeps its key."""

        def attempt() -> None:
            found = self._read(claim.scope)
            head = self._heads.look(claim.scope, whole=True)
            if head.fence == claim.key:
                self._stamp(claim, head, None)
            if found.file is not None and found.file.key == claim.key:
                self._write(claim, found, None)

        self._writer.contend(claim.scope, attempt)

    def key_of(self, scope: ScopeKey) -> str | None:
        """Return the key of the lease of a scope; "" for a damaged one."""
        try:
            file = self._read(scope).file
        except Corrupt:
            return ""
        return None if file is None else file.key

    def drop(self, scope: ScopeKey, key: str) -> None:
        """End a lease, unless it has changed; with "" remove a damaged one."""

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
        file = self._read(scope).file
        return None if file is None else file.hold(file.updated_at + file.ttl_us - now)

    def _read(self, scope: ScopeKey) -> _Found:
        asked_s = self._writer.monotonic
        (stored,) = self._files.bucket.get([self._files.layout.lease_key(scope)])
        if stored is None:
            return _Found(None, None, asked_s)
        return _Found(leases.read(stored.data), stored.version, asked_s)

    def _write(self, claim: Claim, found: _Found, key: str | None) -> None:
        """Replace the document that was found; with None as the key the lease is released."""
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
        """Store the key of a lease in the head, whose snapshot and revision stay the same."""
        if head.header is not None and head.fence == fence:
            return
        scope = claim.scope
        header = self._stamped(claim, head)
        body = b"{}" if header.void else self._writer.whole(scope, head).body
        doc = self._writer.swap_head(scope, head, replace(header, fence=fence), body)
        if doc.version is None:
            raise Beaten  # it was stored and replaced, perhaps by another claim
        known = self._heads.remembered(scope)
        if known is None or known.version != head.version:
            known = Head()
        copied, bare = known.copied, known.bare
        stamped = Head(doc._replace(stored=None), doc.version, copied=copied, bare=bare)
        self._heads.remember(scope, stamped)

    def _stamped(self, claim: Claim, head: Head) -> Header:
        """Return the header of the same head, or of a void one if there is none."""
        if head.header is not None and not head.is_foreign:
            # A pending fork is finished by this: its source exists, or it would not be the head.
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
    """Return whether a lease was not released, or is damaged."""
    try:
        return stored is not None and leases.read(stored.data).key is not None
    except Corrupt:
        return True


def is_damaged(stored: Stored) -> bool:
    try:
        leases.read(stored.data)
    except Corrupt:
        return True
    return False


def _nonces_of(data: bytes) -> tuple[str, ...]:
    file = leases.read(data)
    return (file.w, *file.trail)
