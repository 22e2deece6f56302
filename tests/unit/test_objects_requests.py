"""Requests are a cost: what each verb asks of a bucket, counted there and on the wire."""

import bisect
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from xxhash import xxh3_128_hexdigest

from limpet import Scope, ScopeKey
from limpet.backends.buckets.protocol import Bucket, Listed, Moved, Stored
from limpet.backends.objects.backend import ObjectBackend
from limpet.backends.support.polling import Poller
from limpet.core.layout import Layout
from limpet.model import ANY, Expect
from limpet.opening import CLOCK, draw, store_over
from limpet.protocol import Clock, Query
from tests.servers.proxy import Proxy
from tests.servers.service import Service

PAGE_KEYS = 1000  # what a service returns for one LIST, and takes for one DELETE


@dataclass
class DictBucket:
    """A bucket in a dictionary that counts what a service would be asked."""

    objects: dict[str, bytes] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0
    keys_listed: int = 0

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        self.asked["GET"] += len(keys)
        found: list[Stored | None] = []
        for key in keys:
            data = self.objects.get(key)
            if data is None:
                found.append(None)
                continue
            part = data[:first]
            self.bytes_read += len(part)
            found.append(Stored(part, len(data), xxh3_128_hexdigest(data), 0))
        return found

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        self.asked["PUT"] += 1
        stored = self.objects.get(key)
        if expect is not ANY and expect != (stored and xxh3_128_hexdigest(stored)):
            raise Moved
        self.objects[key] = data
        return xxh3_128_hexdigest(data)

    def mark(self, keys: Sequence[str]) -> None:
        self.asked["PUT"] += len(keys)
        self.objects.update((key, b"") for key in keys)

    def delete(self, keys: Sequence[str]) -> None:
        self.asked["DELETE"] += -(-len(keys) // PAGE_KEYS)
        for key in keys:
            self.objects.pop(key, None)

    def list(self, prefix: str, *, after: str = "", limit: int) -> list[Listed]:
        self.asked["LIST"] += max(1, -(-limit // PAGE_KEYS))
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        page = keys[bisect.bisect_right(keys, after) :][:limit]
        self.keys_listed += len(page)
        return [Listed(key, len(self.objects[key]), 0) for key in page]

    def fingerprints(self, known: Mapping[str, str | None]) -> dict[str, str | None]:
        found = self.get(list(known), first=1)
        return {key: each and each.version for key, each in zip(known, found, strict=True)}

    def listen(self, *, poll_s: float, clock: Clock) -> Poller:
        return Poller(first_s=poll_s, poll_s=poll_s, clock=clock)

    def close(self) -> None:
        pass


class Counted:
    """A store over a bucket that is counted."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.backend = ObjectBackend(bucket, layout=Layout(), index=True, clock=CLOCK, draw=draw)
        self.store = store_over(self.backend)

    def counts(self) -> dict[str, int]:
        raise NotImplementedError

    def forget(self) -> None:
        raise NotImplementedError


class InMemory(Counted):
    def __init__(self) -> None:
        self.own = DictBucket()
        super().__init__(self.own)

    def counts(self) -> dict[str, int]:
        return dict(self.own.asked)

    def forget(self) -> None:
        self.own.asked.clear()
        self.own.bytes_read = self.own.keys_listed = 0


class OnTheWire(Counted):
    """SeaweedFS, with every HTTP request counted on its way."""

    def __init__(self, service: Service, proxy: Proxy) -> None:
        self.proxy = proxy
        super().__init__(service.open(f"requests-{uuid.uuid4()}", endpoint_url=proxy.url))

    def counts(self) -> dict[str, int]:
        return self.proxy.counts()

    def forget(self) -> None:
        self.proxy.forget()


@pytest.fixture(params=["in memory", "on the wire"])
def counted(request: pytest.FixtureRequest) -> Iterator[Counted]:
    if request.param == "in memory":
        with (held := InMemory()).store:
            yield held
        return
    service: Service = request.getfixturevalue("seaweedfs")
    with Proxy(service.port) as proxy:
        wire = OnTheWire(service, proxy)
        wire.store.scope("warm").save({})  # the first write proves the service, once
        yield wire
        wire.store.close()


@pytest.fixture
def scope(counted: Counted) -> Scope:
    """A scope that the store has written to."""
    scope = counted.store.scope("s", "chat")
    scope.save({"n": 0}, id="zero", labels={"kind": "chat"})
    scope.save({"n": 1}, labels={"kind": "chat"})
    counted.forget()
    return scope


# Writing


def test_a_kept_save_by_a_writer_that_goes_on_is_four_puts(counted: Counted, scope: Scope) -> None:
    """The head, the pointers by id and by place, and the copy. Nothing is read."""
    for n in range(3):
        scope.save({"n": n})
    assert counted.counts() == {"PUT": 3 * 4}


def test_each_label_is_one_put_more(counted: Counted, scope: Scope) -> None:
    scope.save({"n": 2}, labels={"kind": "chat", "user": "u"})
    assert counted.counts() == {"PUT": 6}


def test_a_save_that_expects_the_head_reads_nothing(counted: Counted, scope: Scope) -> None:
    made = scope.save({"n": 2})
    counted.forget()
    scope.save({"n": 3}, expect=made.revision)
    assert counted.counts() == {"PUT": 4}


def test_a_head_only_save_is_one_put(counted: Counted, scope: Scope) -> None:
    """Also the first one on a kept head, and the tenth draft."""
    for n in range(10):
        scope.save({"n": n}, keep=False)
        assert counted.counts() == {"PUT": n + 1}


def test_drafts_in_a_scope_of_their_own_are_one_put_each(counted: Counted) -> None:
    scope = counted.store.scope("s", "drafts")
    scope.save({"n": 0}, keep=False)
    counted.forget()
    scope.save({"n": 1}, keep=False)
    scope.save({"n": 2}, keep=False)
    assert counted.counts() == {"PUT": 2}


def test_an_append_reads_the_head_once(counted: Counted, scope: Scope) -> None:
    scope.append("items", [1])
    counted.forget()
    scope.append("items", [2])
    assert counted.counts() == {"GET": 1, "PUT": 4}


# What a verb may ask for at most: GET, LIST, PUT, DELETE.
BOUNDS = {
    "a caller's own id": (1, 0, 4, 0),
    "an update of the head": (3, 0, 2, 0),
    "an update below": (4, 0, 1, 0),
    "a note": (1, 0, 1, 0),
    "a delete below": (2, 1, 1, 1),
    "a delete of the head": (4, 1, 2, 1),
    "a save on a void head": (3, 2, 4, 0),
    "a fork": (7, 2, 6, 0),
}


def test_what_other_verbs_cost(counted: Counted, scope: Scope) -> None:
    head = scope.info()
    assert head is not None
    verbs: dict[str, Callable[[], object]] = {
        "a caller's own id": lambda: scope.save({"n": 7}, id="seven"),
        "an update of the head": lambda: scope.update("seven", lambda was: was.with_(state={})),
        "an update below": lambda: scope.update("zero", lambda was: was.with_(state={})),
        "a note": lambda: scope.set_note("name", 1),
        "a delete below": lambda: scope.delete_snapshot("zero"),
        "a delete of the head": lambda: scope.delete_snapshot("seven"),
        "a save on a void head": lambda: scope.save({"n": 8}),
        "a fork": lambda: scope.fork(head.id, scope_id="other"),
    }
    costs = {}
    for name, verb in verbs.items():
        counted.forget()
        verb()
        asked = counted.counts()
        costs[name] = tuple(asked.get(each, 0) for each in ("GET", "LIST", "PUT", "DELETE"))
    too_many = {
        name: (cost, BOUNDS[name])
        for name, cost in costs.items()
        if any(found > bound for found, bound in zip(cost, BOUNDS[name], strict=True))
    }
    assert too_many == {}


# Reading


def test_the_head_is_loaded_by_one_get(counted: Counted, scope: Scope) -> None:
    assert scope.load() is not None
    assert counted.counts() == {"GET": 1}


def test_a_snapshot_is_loaded_by_two_gets(counted: Counted, scope: Scope) -> None:
    """Its scope's head tells whether it counts."""
    head = scope.info()
    assert head is not None
    counted.forget()
    assert scope.load("zero") is not None
    assert counted.counts() == {"GET": 2}
    counted.forget()
    assert scope.load(head.id) is not None
    assert counted.counts()["GET"] <= 2


def test_facts_are_read_from_the_first_bytes(scope: Scope, counted: Counted) -> None:
    scope.save({"text": "x" * 1_000_000}, id="large")
    scope.save({}, id="small")
    counted.forget()
    assert scope.info("large") is not None
    assert counted.counts() == {"GET": 2}
    assert not isinstance(counted, InMemory) or counted.own.bytes_read < 40_000


def fill(counted: Counted, count: int) -> ScopeKey:
    """Make a long history: saved in memory, then put there without its pointers by id."""
    key = ScopeKey("s", "long")
    source = counted if isinstance(counted, InMemory) else InMemory()
    scope = source.store.scope(*key)
    for n in range(count):
        scope.save({"n": n})
    if source is not counted:
        source.store.close()
        bucket, objects = counted.bucket, source.own.objects
        bucket.mark([key for key in objects if "/order/" in key])
        documents = [key for key in objects if not key.startswith(".limpet/")]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: bucket.put(key, objects[key], expect=ANY), documents))
    counted.forget()
    return key


def test_a_page_is_one_listing_and_not_the_whole_history(counted: Counted) -> None:
    """A page of 1,000 ids, and the newest twenty of a long history.

    The ids also take one small GET of the head, which may be kept and not yet in the listing.
    """
    count = 2_500 if isinstance(counted, InMemory) else 1_010
    key = fill(counted, count)
    ids = counted.backend.list_ids(key, after="", limit=1_000)
    assert len(ids) == 1_000
    assert ids == sorted(set(ids))
    assert counted.counts() == {"GET": 1, "LIST": 1}
    if isinstance(counted, InMemory):
        assert counted.own.keys_listed == 1_000  # and nothing beyond the page

    counted.forget()
    more = counted.backend.list_ids(key, after=ids[-1], limit=1_000)
    assert len(more) == min(count - 1_000, 1_000)
    assert more[0] > ids[-1]
    assert counted.counts() == {"GET": 1, "LIST": 1}

    counted.forget()
    page = counted.backend.list_snapshots(Query(key), limit=20)
    asked = counted.counts()
    assert len(page) == 20
    assert asked["LIST"] <= 3
    assert asked["GET"] <= 1 + 20  # the head, and what is shown
    if isinstance(counted, InMemory):
        assert counted.own.keys_listed <= 1_100  # of 20,000

    states = counted.backend.read_snapshots(key, [info.id for info in page])
    assert [body for _, body in states] == [b'{"n":%d}' % (count - n) for n in range(1, 21)]
