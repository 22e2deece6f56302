"""The rules of leases, without the storage, and their document in object stores."""

from typing import Any, NamedTuple

import orjson

from limpet.core import codec, times
from limpet.core.commits import check_fence
from limpet.errors import Corrupt
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


# The document of a lease in directories and object stores:
#
#     {"limpet":{"sum":<hex>,"n":…,"key":…,"owner":…,"ttl_us":…,"updated_at":…,"w":…,…}}
#
# `sum` covers everything after it. `key` is null once the lease was released. `w` is the nonce of
# this write, `trail` has those of the writes before, and the ids are set if the key has them
# clipped, as in a snapshot's document.

_KINDS: dict[str, tuple[type, ...]] = {
    "n": (int,),
    "key": (str, type(None)),
    "owner": (str,),
    "ttl_us": (int,),
    "updated_at": (int,),
    "w": (str,),
}


class LeaseFile(NamedTuple):
    """The document of a lease. `n` counts the claims; `updated_at` is its writer's time.

    `key` is None once it was released; the rest then describes the last holder.
    """

    n: int
    key: str | None
    owner: str
    ttl_us: int
    updated_at: int
    w: str
    trail: tuple[str, ...] = ()
    session_id: str | None = None
    scope_id: str | None = None

    def hold(self, left_us: int) -> Hold | None:
        return None if self.key is None else Hold(self.key, self.owner, left_us)


def write(file: LeaseFile) -> bytes:
    facts: dict[str, Any] = {name: getattr(file, name) for name in _KINDS}
    more = {"trail": file.trail, "session_id": file.session_id, "scope_id": file.scope_id}
    facts |= {name: value for name, value in more.items() if value}
    return codec.write_summed(orjson.dumps(facts)[1:] + b"}")


def read(stored: bytes) -> LeaseFile:
    codec.read_summed(stored, what="lease")
    try:
        facts = orjson.loads(stored)["limpet"]
        trail = tuple(facts.get("trail", ()))
        names = (facts.get("session_id"), facts.get("scope_id"))
        if not all(type(facts[name]) in kinds for name, kinds in _KINDS.items()):
            raise TypeError
        if not all(type(text) is str for text in trail):
            raise TypeError
        if not all(name is None or type(name) is str for name in names):
            raise TypeError
        times.from_us(facts["updated_at"])
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as cause:
        raise Corrupt(f"a lease has an unknown form. bytes=`{len(stored)}`") from cause
    given = {name: facts[name] for name in _KINDS}
    return LeaseFile(**given, trail=trail, session_id=names[0], scope_id=names[1])
