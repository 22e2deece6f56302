"""The rules of leases, without the storage."""

from typing import NamedTuple

from limpet.core.commits import check_fence
from limpet.protocol import Claim, Hold


class LeaseRow(NamedTuple):
    """A lease as SQL engines store it; `until` is in microseconds of the engine's clock."""

    key: str
    owner: str
    until: int

    def hold(self, now: int) -> Hold:
        return Hold(self.key, self.owner, self.until - now)


def claimed(claim: Claim, found: LeaseRow | None, now: int) -> LeaseRow:
    """Return the lease after a claim: that of the claim, or another one that has not expired."""
    if found is not None and found.key != claim.key and found.until > now:
        return found
    return LeaseRow(claim.key, claim.owner, now + claim.ttl_us)


def renewed(claim: Claim, found: LeaseRow | None, now: int) -> LeaseRow:
    """Return the extended lease, or raise Conflict if it is not held any more."""
    check_fence(claim.key, None if found is None else found.key, claim.scope)
    return LeaseRow(claim.key, claim.owner, now + claim.ttl_us)
