"""Leases over buckets: no clock of another process counts, and a lost answer is harmless."""

from collections.abc import Callable
from typing import Any

import pytest

from limpet import Conflict, Corrupt, ScopeKey, Unavailable
from limpet.backends.objects.heads import parse_head
from limpet.backends.objects.keys import head_key
from limpet.engine import Engine
from limpet.model import Expect
from limpet.opening import draw
from limpet.protocol import Claim, Clock, Commit, Hold
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import engine_on
from tests.cases import for_each

SCOPE = ScopeKey("s", "main", "agent")
TTL_US = 10_000_000
HEAD = head_key(SCOPE)


class Site(CountingBucket):
    """A bucket, engines over it that stand for processes, and a clock whose hands a test moves.

    Something may happen before a put of a head, whose answer may then be lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.before: list[Callable[[], object]] = []
        self.lost = -1  # the number of the put whose answer is lost

    def engine(self) -> Engine:
        clock = Clock(lambda: self.now_s, self.pass_s, lambda: 0.5)
        return engine_on(self, clock=clock)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        if self.before and key == HEAD:
            self.before.pop()()
        version = super().put(key, data, expect=expect)
        self.lost -= key == HEAD
        if key == HEAD and self.lost == -1:
            raise Unavailable("the answer is lost", outcome_known=False)
        return version

    def fence(self) -> str | None:
        record = parse_head(self.objects[HEAD][0]).record
        return None if record is None else record.fence


@pytest.fixture
def site() -> Site:
    return Site()


def claim(key: str) -> Claim:
    return Claim(SCOPE, key, "me", TTL_US, draw())


def commit(state: str, fence: str | None = None, **facts: Any) -> Commit:
    return Commit(SCOPE, b'"%b"' % state.encode(), "", b"{}", b"{}", draw(), fence=fence, **facts)


def test_a_lease_lasts_from_when_it_was_first_seen(site: Site) -> None:
    """Each renewal is seen by others, the first one too; only what a process saw itself counts."""
    one, two = site.engine(), site.engine()
    assert one.claim(claim("a")) == Hold("a", "me", TTL_US)
    for _ in range(3):
        assert two.claim(claim("b")) == Hold("a", "me", TTL_US)
        site.pass_s(4)
        assert two.claim(claim("b")) == Hold("a", "me", TTL_US - 4_000_000)
        site.pass_s(5)
        assert one.renew(claim("a")).left_us == TTL_US
    site.pass_s(3600)
    newcomer = site.engine()
    assert newcomer.claim(claim("c")) == Hold("a", "me", TTL_US)
    assert one.renew(claim("a")).left_us == TTL_US  # it is still free
    one.commit(commit("mine", "a"))

    assert two.claim(claim("b")).left_us == TTL_US
    site.pass_s(10.1)
    assert two.claim(claim("b")).key == "b"
    assert site.fence() == "b"
    for facts in ({}, {"keep": False}, {"head": False}, {"id": "own"}):
        with pytest.raises(Conflict):
            one.commit(commit("late", "a", **facts))
    with pytest.raises(Conflict):
        one.renew(claim("a"))
    two.commit(commit("mine", "b"))


def test_how_much_is_left_is_a_hint(site: Site) -> None:
    engine, asked = site.engine(), claim("a")
    assert engine.read_lease(SCOPE, now=0) is None
    engine.claim(asked)
    for passed_us, left_us in ((0, TTL_US), (2 * TTL_US, -TTL_US)):
        found = engine.read_lease(SCOPE, now=asked.stamp.now + passed_us)
        assert found == Hold("a", "me", left_us)


@for_each("damage", [lambda head: head.replace(b'"trail":"', b'"trail":"f'), lambda head: b""])
def test_a_damaged_head_carries_no_lease(damage: Callable[[bytes], bytes]) -> None:
    site = Site()
    site.engine().commit(commit("y"))
    damaged = damage(site.objects[HEAD][0])
    site.objects[HEAD] = damaged, 1
    with pytest.raises(Corrupt):
        site.engine().claim(claim("a"))
    assert site.objects[HEAD] == (damaged, 1)


def test_a_damaged_state_is_not_in_the_way_of_a_lease(site: Site) -> None:
    """And the lease does not make it look whole, nor harm the states next to it."""
    engine = site.engine()
    first = engine.commit(commit("first"))
    engine.commit(commit("second"))
    site.objects[HEAD] = site.objects[HEAD][0].replace(b'"second"', b'"sekond"'), 1
    engine = site.engine()
    engine.claim(claim("a"))
    assert site.fence() == "a"
    with pytest.raises(Corrupt):
        engine.read_snapshots(SCOPE, [None])
    assert engine.read_snapshots(SCOPE, [first.id]) == [(first, b'"first"')]
