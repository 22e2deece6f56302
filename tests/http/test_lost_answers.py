"""Answers that are lost between the engine `http` and its server: every write happens once.

For each verb the answer to its first request is lost, then that to its second, and so on until it
completes untouched; likewise requests that never arrive. What became of it is looked up past the
proxy and compared with what the same verb does where nothing is lost.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Conflict, Scope, Snapshot, Store, Unavailable, opening
from limpet.protocol import NoteDelete, NoteWrite
from tests.concurrency.pg_tools import Background
from tests.servers.http import Http
from tests.servers.proxy import Proxy
from tests.waiting import until

REQUESTS_MAX = 8


@pytest.fixture(scope="module")
def proxy(http: Http) -> Iterator[Proxy]:
    with Proxy(http.port) as proxy:
        yield proxy


@pytest.fixture(params=[pytest.param("one server", marks=pytest.mark.slow), "another server"])
def served(http: Http, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a store; a repeated request comes to the same server, or to another one."""
    database = f"sqlite:///{tmp_path / 'limpet.db'}?synchronous=off"
    url = http.mount(database, is_forgetful=request.param == "another server")
    yield url
    http.unmount(url)


@pytest.fixture
def direct(served: str) -> Iterator[Store]:
    with limpet.open(served) as store:
        yield store


@pytest.fixture
def store(served: str, proxy: Proxy) -> Iterator[Store]:
    """The same store behind the proxy."""
    with limpet.open(proxied(served, proxy)) as store:
        yield store
    proxy.forget()


def proxied(url: str, proxy: Proxy, **options: Any) -> str:
    given = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{proxy.url}/{url.rpartition('/')[2]}?{given}"


def plus_one(before: Snapshot) -> Snapshot:
    return before.with_(state={"n": before.state["n"] + 1})


def write_several(scope: Scope) -> None:
    first = NoteWrite(scope.key, "x", None, b"1", opening.draw(), expect=None)
    last = NoteDelete(scope.key, "count", None)
    scope.driver.run(lambda backend: backend.write_notes([first, last]))


def claim(scope: Scope) -> None:
    with scope.claim(owner="me") as lease:
        lease.save({"leased": 1})


WRITES: dict[str, Callable[[Scope], object]] = {
    "save": lambda s: s.save({"n": 9}),
    "save with an id": lambda s: s.save({"n": 9}, id="c"),
    "draft": lambda s: s.save({"n": 9}, keep=False),
    "aside": lambda s: s.save({"n": 9}, head=False),
    "save at a revision": lambda s: s.save({"n": 9}, expect=s.load().revision),  # type: ignore[union-attr]
    "overwrite": lambda s: s.save({"n": 9}, id="a", overwrite=True),
    "append": lambda s: s.append("items", [1]),
    "update": lambda s: s.update("b", plus_one),
    "fork": lambda s: s.fork("a", scope_id="line"),
    "restore": lambda s: s.restore("a"),
    "note": lambda s: s.set_note("title", "x"),
    "first note": lambda s: s.set_note("new", 1, expect=None),
    "count": lambda s: s.set_note("count", lambda n: (n or 0) + 1),
    "several notes": write_several,
    "claim": claim,
    "delete a note": lambda s: s.delete_note("title"),
    "delete a snapshot": lambda s: s.delete_snapshot("b"),
    "prune": lambda s: s.prune(keep_last=1),
}


def prepared(store: Store, name: str) -> Scope:
    scope = store.scope(name)
    scope.save({"n": 1, "items": []}, id="a")
    scope.save({"n": 2, "items": []}, id="b")
    scope.set_note("title", "old")
    scope.set_note("count", 5)
    return scope


def shown(store: Store, session_id: str) -> list[Any]:
    """Return what a session holds, without what is drawn for each write."""
    found: list[Any] = []
    for listed in store.scopes(session_id):
        scope = store.scope(*listed.key)
        head = scope.load()
        snapshots = [scope.load(each.id) for each in scope.history()]
        found += [listed.key[1:], None if head is None else (head.state, head.kept)]
        found += [(each.state, each.status, each.labels) for each in snapshots if each]
        found += [(note.name, note.value) for note in scope.notes()]
    return found


@pytest.mark.parametrize(
    "lose", ["drop_replies", pytest.param("drop_requests", marks=pytest.mark.slow)]
)
def test_a_write_whose_answer_is_lost_happens_once(
    store: Store, direct: Store, proxy: Proxy, lose: str
) -> None:
    for verb, write in WRITES.items():
        write(prepared(direct, f"{verb} untouched"))
        expected = shown(direct, f"{verb} untouched")
        for number in range(REQUESTS_MAX):
            name = f"{verb} {number}"
            prepared(direct, name)
            proxy.forget()
            if number:
                proxy.delay(0.0, number)
            getattr(proxy, lose)(1)
            write(store.scope(name))
            assert shown(direct, name) == expected, name
            if len(proxy.requests()) <= number:
                break
        else:
            raise AssertionError(f"{verb} takes too many requests")


def test_a_note_that_was_compared_is_found_by_its_nonce(
    store: Store, direct: Store, proxy: Proxy
) -> None:
    """The answer is that of the first attempt, and a counter counts exactly."""
    scope = store.scope("s")
    for number in range(1, 6):
        proxy.drop_replies(method="PUT")
        note = scope.set_note("count", lambda n: (n or 0) + 1)
        assert note == direct.scope("s").note("count")
        assert note is not None
        assert note.value == number


def test_what_nobody_can_know_is_said(http: Http, tmp_path: Path, proxy: Proxy) -> None:
    """Another server cannot tell whether a deletion that fails now has succeeded before."""
    url = http.mount(f"sqlite:///{tmp_path / 'limpet.db'}", is_forgetful=True)
    with limpet.open(proxied(url, proxy)) as store:
        scope = store.scope("s")
        revision = scope.save({}).revision
        proxy.drop_replies(method="DELETE")
        with pytest.raises(Unavailable) as caught:
            scope.delete(expect=revision)
        assert not caught.value.outcome_known
        assert list(store.sessions()) == []

        scope.save({})
        proxy.drop_replies(method="DELETE")
        assert scope.delete() == 0  # what the answer that was lost had counted
        assert list(store.sessions()) == []
    http.unmount(url)


def test_a_note_that_others_have_overwritten_since_is_in_doubt(
    http: Http, tmp_path: Path, proxy: Proxy
) -> None:
    url = http.mount(f"sqlite:///{tmp_path / 'limpet.db'}", is_forgetful=True)
    with limpet.open(proxied(url, proxy)) as store, limpet.open(url) as direct:
        proxy.drop_replies(method="PUT")
        release = proxy.hold(method="POST")  # the search for it
        writer = Background(lambda: store.scope("s").set_note("n", 1, expect=None))
        until(lambda: direct.scope("s").note("n"))
        theirs = direct.scope("s").set_note("n", 2)
        release.set()
        with pytest.raises(Unavailable) as caught:
            writer.result()
        assert not caught.value.outcome_known
        assert direct.scope("s").note("n") == theirs
    http.unmount(url)


def test_an_update_that_others_have_changed_since_is_not_applied_twice(
    http: Http, tmp_path: Path, proxy: Proxy
) -> None:
    url = http.mount(f"sqlite:///{tmp_path / 'limpet.db'}", is_forgetful=True)
    with limpet.open(proxied(url, proxy), retry_s=2) as store, limpet.open(url) as direct:
        direct.scope("s").save({"n": 0}, id="a")

        def add(count: int, scope: Scope) -> object:
            return scope.update(
                "a", lambda found: found.with_(state={"n": found.state["n"] + count})
            )

        proxy.drop_replies(method="POST")
        release = proxy.hold(method="POST")  # the repetition
        writer = Background(lambda: add(1, store.scope("s")))
        until(lambda: direct.scope("s").load().state["n"])  # type: ignore[union-attr]
        add(10, direct.scope("s"))
        release.set()
        with pytest.raises(Unavailable) as caught:
            writer.result()
        assert not caught.value.outcome_known
        assert direct.scope("s").load().state == {"n": 11}  # type: ignore[union-attr]
    http.unmount(url)


def test_one_server_answers_as_it_did_the_first_time(
    http: Http, tmp_path: Path, proxy: Proxy
) -> None:
    url = http.mount(f"sqlite:///{tmp_path / 'limpet.db'}")
    with limpet.open(proxied(url, proxy)) as store:
        scope = store.scope("s")
        revision = scope.save({}).revision
        proxy.drop_replies(method="DELETE")
        assert scope.delete(expect=revision) == 1
        proxy.drop_replies(method="POST")
        with pytest.raises(Conflict):
            scope.save({}, expect=revision)
    http.unmount(url)


def test_a_request_that_comes_after_its_repetition_changes_nothing(
    http: Http, tmp_path: Path, proxy: Proxy
) -> None:
    """It was delayed on the way, until the client had given up waiting and asked again."""
    url = http.mount(f"sqlite:///{tmp_path / 'limpet.db'}")
    with limpet.open(proxied(url, proxy, timeout_s=2)) as store:
        scope = store.scope("s")
        releases = []
        for number in range(2):
            releases.append(proxy.hold(method="POST"))
            scope.append("n", [number])
        replies = proxy.replies
        for release in releases:
            release.set()
        until(lambda: proxy.replies >= replies + 2)
        assert [each.id for each in scope.history()] == list(reversed(list(scope.ids())))
        assert [each.state for each in scope.load_many(scope.ids())] == [{"n": [0]}, {"n": [0, 1]}]
    http.unmount(url)


def test_a_server_that_is_gone_is_unavailable(http: Http, tmp_path: Path, served: str) -> None:
    """A write that was never sent did not happen; one whose answer was lost may have."""
    proxy = Proxy(http.port)
    store = limpet.open(proxied(served, proxy, retry_s=0.2))
    scope = store.scope("s")
    scope.save({}, id="a")
    proxy.drop_replies(100)
    with pytest.raises(Unavailable) as caught:
        scope.save({}, id="b")
    assert not caught.value.outcome_known
    with pytest.raises(Unavailable) as caught:
        scope.load()
    assert caught.value.outcome_known
    proxy.close()
    for attempt in (partial(scope.save, {}), scope.load, partial(scope.delete_note, "x")):
        with pytest.raises(Unavailable) as caught:
            attempt()
        assert caught.value.outcome_known
        assert str(proxy.port) in str(caught.value)
    store.close()
    with limpet.open(served) as direct:
        assert [each.id for each in direct.scope("s").history()] == ["b", "a"]
