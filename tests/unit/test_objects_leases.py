"""Leases over buckets: one holder, whatever clocks say, and a fence that late writers run into."""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from limpet import Conflict, Corrupt, ScopeKey, Unavailable
from limpet.backends.buckets.directory.bucket import DirectoryBucket
from limpet.backends.buckets.protocol import Bucket, Stored
from limpet.backends.objects.heads import parse_head
from limpet.backends.objects.keys import head_key
from limpet.engine import Engine
from limpet.errors import AlreadyExists
from limpet.model import ANY, Expect
from limpet.opening import CLOCK, draw
from limpet.protocol import Claim, Clock, Commit, Hold, NoteWrite
from tests.buckets.opened import engine_on
from tests.servers.service import Service

SCOPE = ScopeKey("s", "main", "agent")
TTL_US = 10_000_000
HEAD = head_key(SCOPE)


class Hands:
    """A clock whose hands are moved by the test."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_s, self.pass_s, lambda: 0.5)


class Site:
    """A bucket, and as many engines over it as a test likes: each stands for a process."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.hands = Hands()

    def engine(self, bucket: Bucket | None = None) -> Engine:
        return engine_on(bucket or self.bucket, clock=self.hands.clock)

    def document(self, key: str) -> bytes:
        (stored,) = self.bucket.get([key])
        assert stored is not None
        return stored.data

    def fence(self) -> str | None:
        record = parse_head(self.document(HEAD)).record
        return None if record is None else record.fence


def folder(path: Path) -> DirectoryBucket:
    return DirectoryBucket(
        str(path), token=lambda: uuid.uuid4().hex, now=lambda: 0, clock=CLOCK, sync=False
    )


@pytest.fixture(params=["directory", "seaweedfs"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if request.param == "directory":
        yield Site(folder(tmp_path / "store"))
        return
    service: Service = request.getfixturevalue("seaweedfs")
    bucket = service.open(f"leases-{uuid.uuid4()}")
    yield Site(bucket)
    bucket.close()


@pytest.fixture
def here(tmp_path: Path) -> Site:
    return Site(folder(tmp_path / "store"))


def claim(key: str, owner: str = "me", *, scope: ScopeKey = SCOPE, ttl_us: int = TTL_US) -> Claim:
    return Claim(scope, key, owner, ttl_us, draw())


def commit(state: Any, fence: str | None = None, **facts: Any) -> Commit:
    body = json.dumps(state, separators=(",", ":")).encode()
    return Commit(SCOPE, body, "completed", b"{}", b"{}", draw(), fence=fence, **facts)


# One holder


def test_a_lease_is_held_by_one(site: Site) -> None:
    one, two = site.engine(), site.engine()
    assert one.claim(claim("a", "ann")) == Hold("a", "ann", TTL_US)
    assert two.claim(claim("b", "bob")) == Hold("a", "ann", TTL_US)
    site.hands.pass_s(4)
    assert two.claim(claim("b", "bob")) == Hold("a", "ann", TTL_US - 4_000_000)
    assert site.fence() == "a"


def test_a_claim_may_be_repeated(site: Site) -> None:
    one = site.engine()
    for _ in range(3):
        assert one.claim(claim("a")).key == "a"
        assert site.engine().claim(claim("a")).key == "a"
    one.commit(commit({}, "a"))


def test_a_lease_that_is_not_renewed_lapses(site: Site) -> None:
    one, two = site.engine(), site.engine()
    one.claim(claim("a"))
    two.claim(claim("b"))
    site.hands.pass_s(9.9)
    assert two.claim(claim("b")).key == "a"
    site.hands.pass_s(0.2)
    assert two.claim(claim("b")).key == "b"
    assert site.fence() == "b"
    with pytest.raises(Conflict):
        one.commit(commit({"late": True}, "a"))
    with pytest.raises(Conflict):
        one.renew(claim("a"))
    assert one.claim(claim("a")).key == "b"
    two.commit(commit({"mine": True}, "b"))


def test_a_lease_that_is_renewed_lasts(site: Site) -> None:
    one, two = site.engine(), site.engine()
    one.claim(claim("a"))
    for _ in range(5):
        site.hands.pass_s(6)
        assert two.claim(claim("b")).key == "a"
        assert one.renew(claim("a")).left_us == TTL_US
    assert two.claim(claim("b")).left_us == TTL_US
    one.commit(commit({}, "a"))


def test_each_renewal_is_seen_by_others(site: Site) -> None:
    """The first one too: another process has watched the lease since the claim."""
    one, two = site.engine(), site.engine()
    one.claim(claim("a"))
    for _ in range(3):
        assert two.claim(claim("b")).left_us == TTL_US
        site.hands.pass_s(9)
        assert one.renew(claim("a")).left_us == TTL_US
    one.commit(commit({}, "a"))


def test_only_what_an_engine_saw_itself_counts(here: Site) -> None:
    here.engine().claim(claim("a"))
    here.hands.pass_s(3600)
    newcomer = here.engine()
    assert newcomer.claim(claim("b")) == Hold("a", "me", TTL_US)
    here.hands.pass_s(10)
    assert newcomer.claim(claim("b")).key == "b"


def test_an_expired_lease_is_renewed_while_it_is_free(site: Site) -> None:
    one = site.engine()
    one.claim(claim("a"))
    site.hands.pass_s(3600)
    assert one.renew(claim("a")).left_us == TTL_US
    one.commit(commit({}, "a"))


def test_a_released_lease_is_none(site: Site) -> None:
    one, two = site.engine(), site.engine()
    one.claim(claim("a"))
    one.release(claim("a"))
    assert two.read_lease(SCOPE, now=0) is None
    assert site.fence() is None
    with pytest.raises(Conflict):
        one.commit(commit({}, "a"))
    with pytest.raises(Conflict):
        one.renew(claim("a"))
    assert two.claim(claim("b")).key == "b"
    one.release(claim("a"))
    assert site.fence() == "b"
    two.commit(commit({}, "b"))


def test_a_release_of_nothing_is_harmless(site: Site) -> None:
    engine = site.engine()
    engine.release(claim("a"))
    assert engine.list_sessions(prefix="", after="", limit=10) == []


def test_how_much_is_left_is_a_hint(site: Site) -> None:
    engine = site.engine()
    assert engine.read_lease(SCOPE, now=0) is None
    asked = claim("a", "ann")
    engine.claim(asked)
    now = asked.stamp.now
    assert engine.read_lease(SCOPE, now=now) == Hold("a", "ann", TTL_US)
    assert engine.read_lease(SCOPE, now=now + 2 * TTL_US) == Hold("a", "ann", -TTL_US)


# The head


def test_the_head_stays_what_it_was(site: Site) -> None:
    one = site.engine()
    saved = one.commit(commit({"x": 1}, id="first"))
    for key in ("a", "b"):
        one.claim(claim(key))
        assert one.read_info(SCOPE, None) == saved
        one.release(claim(key))
    assert one.read_snapshots(SCOPE, [None]) == [(saved, b'{"x":1}')]
    assert one.commit(commit({"x": 2}, expect=saved.revision)).parent_id == "first"


def test_every_head_carries_the_lease_on(site: Site) -> None:
    one, other = site.engine(), site.engine()
    one.claim(claim("a"))
    for engine, fence in ((one, "a"), (other, None), (one, "a")):
        last = engine.commit(commit({"x": 1}, fence))
        assert site.fence() == "a"
    one.commit(commit({"x": 2}, "a", id=last.id, replaces=last.revision))
    one.commit(commit({"x": 3}, "a", keep=False))
    one.delete_snapshots(SCOPE, [last.id], fence="a")
    shown = one.read_info(SCOPE, None)
    assert shown is not None
    one.delete_snapshots(SCOPE, [shown.id], fence="a")
    assert site.fence() == "a"
    one.commit(commit({"x": 4}, "a", expect=None if one.read_info(SCOPE, None) is None else ANY))
    assert site.fence() == "a"


def test_a_lease_on_nothing_shows_nothing(site: Site) -> None:
    engine = site.engine()
    engine.commit(commit({"aside": 1}, id="aside", head=False))
    engine.claim(claim("a"))
    assert engine.read_info(SCOPE, None) is None
    assert engine.read_snapshots(SCOPE, [None]) == []
    assert engine.list_ids(SCOPE, after="", limit=9) == ["aside"]
    assert engine.commit(commit({"x": 1}, "a", id="x", expect=None)).parent_id == "aside"
    assert engine.list_ids(SCOPE, after="", limit=9) == ["aside", "x"]


# Notes


def note(value: bytes, fence: str | None) -> NoteWrite:
    return NoteWrite(SCOPE, "n", None, value, draw(), fence=fence)


def test_notes_need_the_lease_that_they_name(site: Site) -> None:
    one, two = site.engine(), site.engine()
    with pytest.raises(Conflict):
        one.write_note(note(b"0", "a"))
    one.claim(claim("a"))
    one.write_note(note(b"1", "a"))
    one.release(claim("a"))
    two.claim(claim("b"))
    with pytest.raises(Conflict):
        one.write_note(note(b"2", "a"))
    with pytest.raises(Conflict):
        one.delete_note(SCOPE, "n", on=None, fence="a")
    (found,) = two.list_notes(SCOPE, on=[None], name=None, after="", limit=9)
    assert found.value == 1
    one.write_note(note(b"3", None))
    assert two.delete_note(SCOPE, "n", on=None, fence="b") == 1


# Which scopes there are


def scopes(engine: Engine) -> list[ScopeKey]:
    page = engine.list_scopes(session_id=None, kind=None, prefix="", after=None, limit=99)
    assert all(info.head is None for info in page)
    return [info.key for info in page]


LONG = ScopeKey("É" * 400, "Ö" * 400, "agent")


@pytest.mark.parametrize("scope", [SCOPE, LONG], ids=["short", "long"])
def test_a_scope_with_a_lease_alone_is_listed(site: Site, scope: ScopeKey) -> None:
    engine = site.engine()
    engine.claim(claim("a", scope=scope))
    assert scopes(engine) == [scope]
    assert engine.list_sessions(prefix="", after="", limit=9) == [scope.session_id]
    with pytest.raises(AlreadyExists):
        engine.commit(commit({}, new_scope=True)._replace(scope=scope))
    engine.release(claim("a", scope=scope))
    assert scopes(engine) == []
    assert engine.list_sessions(prefix="", after="", limit=9) == []
    engine.commit(commit({}, new_scope=True)._replace(scope=scope))


@pytest.mark.parametrize("verb", ["session", "scope", "expect", "fence"])
def test_deleting_takes_the_lease_along(site: Site, verb: str) -> None:
    one, two = site.engine(), site.engine()
    one.claim(claim("a"))
    last = one.commit(commit({}, "a"))
    ends: dict[str, Callable[[], int]] = {
        "session": lambda: one.delete_session("s"),
        "scope": lambda: one.delete_scope(SCOPE),
        "expect": lambda: one.delete_scope(SCOPE, expect=last.revision),
        "fence": lambda: one.delete_scope(SCOPE, fence="a"),
    }
    assert ends[verb]() == 1
    assert two.read_lease(SCOPE, now=0) is None
    assert scopes(two) == []
    with pytest.raises(Conflict):
        one.commit(commit({}, "a"))
    with pytest.raises(Conflict):
        one.renew(claim("a"))
    assert two.claim(claim("b")).key == "b"


def test_who_deletes_needs_the_lease_that_it_names(site: Site) -> None:
    engine = site.engine()
    engine.claim(claim("a"))
    last = engine.commit(commit({}))
    with pytest.raises(Conflict):
        engine.delete_scope(SCOPE, fence="b")
    with pytest.raises(Conflict):
        engine.delete_snapshots(SCOPE, [last.id], fence="b")
    assert engine.read_info(SCOPE, None) == last


# Damage


def test_a_damaged_head_carries_no_lease(site: Site) -> None:
    one, two = site.engine(), site.engine()
    one.commit(commit({"x": "y"}))
    whole = site.document(HEAD)
    for damaged in (whole.replace(b'"trail":"', b'"trail":"f'), whole[:99], b""):
        site.bucket.put(HEAD, damaged, expect=ANY)
        with pytest.raises(Corrupt):
            two.claim(claim("a"))
        assert site.document(HEAD) == damaged


def test_a_damaged_state_is_not_in_the_way_of_a_lease(site: Site) -> None:
    """And the lease does not make it look whole, nor harm the states next to it."""
    one, two = site.engine(), site.engine()
    first = one.commit(commit({"x": "first"}))
    one.commit(commit({"x": "y"}))
    whole = site.document(HEAD)
    for damaged in (whole[:-3], whole.replace(b'"x":"y"', b'"x":"z"')):
        site.bucket.put(HEAD, damaged, expect=ANY)
        two.claim(claim("a"))
        assert site.fence() == "a"
        with pytest.raises(Corrupt):
            two.read_snapshots(SCOPE, [None])
        assert two.read_snapshots(SCOPE, [first.id]) == [(first, b'{"x":"first"}')]


# Lost answers and others in between


class Meddled:
    """A bucket in which something happens just before, or just after, one of its puts."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.at = -1
        self.before: Callable[[], None] = lambda: None
        self.lost = False
        self.puts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        return self._bucket.get(keys, first=first)

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        at, self.puts = self.puts, self.puts + 1
        if at == self.at:
            self.before()
        version = self._bucket.put(key, data, expect=expect)
        if at == self.at and self.lost:
            raise Unavailable("the answer is lost", outcome_known=False)
        return version


def meddled(site: Site) -> tuple[Meddled, Engine]:
    bucket: Any = Meddled(site.bucket)
    return bucket, site.engine(bucket)


@pytest.mark.parametrize("at", range(2))
@pytest.mark.parametrize("saved", [False, True])
def test_lost_answers_are_harmless(here: Site, at: int, saved: bool) -> None:
    if saved:
        here.engine().commit(commit({"x": 1}, id="x"))
    bucket, engine = meddled(here)
    bucket.lost, bucket.at = True, at
    assert engine.claim(claim("a")).key == "a"
    assert here.fence() == "a"
    assert engine.renew(claim("a")).key == "a"
    engine.commit(commit({"x": 2}, "a", head=False))
    bucket.puts, bucket.at = 0, at
    engine.release(claim("a"))
    assert here.fence() is None
    shown = engine.read_info(SCOPE, None)
    assert (shown and shown.id) == ("x" if saved else None)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("saved", [False, True])
def test_a_save_in_between_is_neither_lost_nor_in_the_way(here: Site, at: int, saved: bool) -> None:
    if saved:
        here.engine().commit(commit({"x": 1}, id="x"))
    bucket, engine = meddled(here)
    bucket.at = at
    bucket.before = lambda: check_saved(here)
    assert engine.claim(claim("a")).key == "a"
    engine.commit(commit({"x": 2}, "a", id="last"))
    ids = engine.list_ids(SCOPE, after="", limit=9)
    assert ids == (["between", "last", "x"] if saved else ["between", "last"])


def check_saved(site: Site) -> None:
    site.engine().commit(commit({"x": "between"}, id="between"))


def test_a_claim_that_slept_for_too_long_ends_no_other_claim(here: Site) -> None:
    bucket, sleeper = meddled(here)
    other = here.engine()

    def overtake() -> None:
        bucket.at = -1
        other.claim(claim("b"))
        here.hands.pass_s(11)
        assert other.claim(claim("b")).key == "b"

    bucket.at, bucket.before = 0, overtake
    assert sleeper.claim(claim("a")).key == "b"
    assert here.fence() == "b"
    other.commit(commit({}, "b"))
    with pytest.raises(Conflict):
        sleeper.commit(commit({}, "a"))


def test_a_session_that_is_deleted_while_it_is_claimed(here: Site) -> None:
    here.engine().commit(commit({"x": 1}))
    bucket, engine = meddled(here)

    def delete() -> None:
        bucket.at = -1
        here.engine().delete_session("s")

    bucket.at, bucket.before = 0, delete
    assert engine.claim(claim("a")).key == "a"
    assert here.fence() == "a"
    engine.commit(commit({"x": 2}, "a"))
    assert len(engine.list_ids(SCOPE, after="", limit=9)) == 1


def test_a_writer_that_knows_the_head_notices_a_claim(site: Site) -> None:
    one, two = site.engine(), site.engine()
    one.claim(claim("a"))
    one.commit(commit({"x": 1}, "a"))
    two.claim(claim("b"))
    site.hands.pass_s(11)
    assert two.claim(claim("b")).key == "b"
    for facts in ({}, {"keep": False}, {"head": False}, {"id": "own"}):
        with pytest.raises(Conflict):
            one.commit(commit({"late": 1}, "a", **facts))
    assert len(two.list_ids(SCOPE, after="", limit=9)) == 1
