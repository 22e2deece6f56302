"""Leases: part of the head, so that its compare-and-set decides who has one and fences writes.

Nothing depends on clocks of other machines: a lease has expired when this process has seen it
unrenewed for the whole time to live.
"""

from limpet.backends.objects.objects import HeadLease
from limpet.backends.objects.storage import Beaten, Held
from limpet.backends.objects.writer import Change, Part, Writer
from limpet.backends.support.recent import Recent
from limpet.core.commits import check_fence
from limpet.model import ScopeKey
from limpet.protocol import Claim, Hold

_SCOPES_MAX = 16_384  # whose leases one process watches at the same time


class Leases(Part):
    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        # The last write of a lease, and when this process first saw it.
        self._seen: Recent[ScopeKey, tuple[str, float]] = Recent(_SCOPES_MAX)

    def claim(self, claim: Claim) -> Hold:
        def attempt() -> Hold:
            asked_s = self._storage.clock.monotonic()
            held = self._storage.read_head(claim.scope)
            lease = None if held.head is None else held.head.lease
            if lease is not None and lease.key != claim.key:
                seen_s = asked_s - self._first_seen(claim.scope, lease.w)
                left_us = lease.ttl_us - max(0, int(seen_s * 1_000_000))
                if left_us > 0:
                    return Hold(lease.key, lease.owner, left_us)
            return self._write_lease(claim, held)

        return self._storage.contend(claim.scope, attempt)

    def renew(self, claim: Claim) -> Hold:
        def attempt() -> Hold:
            held = self._storage.remembered(claim.scope) or self._storage.read_head(claim.scope)
            if held.head is None or held.head.fence != claim.key:
                held = self._storage.read_head(claim.scope)
            fence = None if held.head is None else held.head.fence
            check_fence(claim.key, fence, claim.scope)
            return self._write_lease(claim, held)

        return self._storage.contend(claim.scope, attempt)

    def release(self, claim: Claim) -> None:
        def attempt() -> None:
            held = self._storage.read_head(claim.scope)
            head = held.whole()
            if head is not None and head.fence == claim.key:
                nonce = self._storage.draw().nonce
                new = head.rewritten(nonce, lease=None)
                self._writer.store(held, Change(new, held.newest))

        self._storage.contend(claim.scope, attempt)

    def read_lease(self, scope: ScopeKey, *, now: int) -> Hold | None:
        head = self._storage.read_head(scope).head
        lease = None if head is None else head.lease
        if lease is None:
            return None
        return Hold(lease.key, lease.owner, lease.at + lease.ttl_us - now)

    def _write_lease(self, claim: Claim, held: Held) -> Hold:
        """Store the lease in the head, whose snapshots and revisions stay the same."""
        nonce = self._storage.draw().nonce
        lease = HeadLease(claim.key, claim.owner, claim.ttl_us, claim.stamp.now, nonce)
        head = held.whole()
        if head is None:
            head, _ = self._writer.begin(claim.scope, held, claim.stamp)
        stored = self._writer.store(held, Change(head.rewritten(nonce, lease=lease), held.newest))
        if stored.version is None:
            raise Beaten  # it was stored and replaced, perhaps by another claim
        self._first_seen(claim.scope, nonce)
        return Hold(claim.key, claim.owner, claim.ttl_us)

    def _first_seen(self, scope: ScopeKey, w: str) -> float:
        """Return when this process first saw this write of a lease: now, if not before."""
        seen = self._seen.get(scope)
        if seen is None or seen[0] != w:
            seen = (w, self._storage.clock.monotonic())
            self._seen.put(scope, seen)
        return seen[1]
