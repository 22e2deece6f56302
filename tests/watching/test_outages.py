"""A watch while what it listens to is away: it goes on, and tells what it missed."""

import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

import limpet
from limpet import Store, Unavailable
from tests.concurrency.crew import Worker
from tests.effort import slowly
from tests.servers.postgres import PrivatePostgres
from tests.waiting import until
from tests.watching.tools import APIS, Watching


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePostgres]:
    with PrivatePostgres() as server:
        yield server


@pytest.mark.parametrize(
    "how",
    slowly(("fast", "immediate", "killed", "connections"), but=("immediate",)),
)
def test_a_server_that_restarts(server: PrivatePostgres, how: str) -> None:
    """What was saved while nobody could listen is told when that is possible again."""
    url = f"{server.url}?schema=outage_{how}"
    with limpet.open(url) as store:
        scope = store.scope("s")
        watching = [
            Watching(store, lambda store: store.scope("s").watch(), api=api) for api in APIS
        ]
        unborn = Watching(store, lambda store: store.scope("unborn").watch())
        first = scope.save({"n": 1})
        for each in watching:
            each.wait_for(first.revision)

        if how == "connections":
            server.kill_connections()
        else:
            server.kill() if how == "killed" else server.stop(how)
            server.start()
        # At once, by somebody who was not there before: they may not listen again by now.
        with limpet.open(url) as other:
            missed = other.scope("s").save({"n": 2}).revision
            born = other.scope("unborn").save({"n": 3}).revision
        for each in watching:
            each.wait_for(missed)
        unborn.wait_for(born)

        last = saved_anyway(store)
        for each in watching:
            each.wait_for(last)
        assert [(each.error, each.is_alive()) for each in watching] == [(None, True)] * 2


def saved_anyway(store: Store) -> str:
    """Save with a store whose connections may have been lost."""
    revisions: list[str] = []

    def is_saved() -> bool:
        try:
            revisions.append(store.scope("s").save({"n": 4}).revision)
        except Unavailable:
            return False
        return True

    until(is_saved)
    return revisions[-1]


@pytest.mark.parametrize("notified", [True, False], ids=["inotify", "polling"])
def test_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notified: bool) -> None:
    """With `watchfiles`, and where it is not installed, by looking now and then."""
    if notified:
        assert find_spec("watchfiles"), "install watchfiles"
    else:
        for name in [name for name in sys.modules if name.partition(".")[0] == "watchfiles"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "watchfiles", None)
    url = f"file://{tmp_path}/store"
    script = "tests.watching.worker"
    with (
        closing(limpet.open(url)) as store,
        Worker(script, url, "writer") as writer,
    ):
        assert writer.hear() == "ready"
        watches = (
            lambda store: store.scope("s").watch(),
            lambda store: store.scope("s", "other", "graph").watch(),
            lambda store: store.watch(session_id="s"),
            lambda store: store.watch(prefix="s"),
        )
        watching = [Watching(store, watch, api=api) for watch in watches for api in APIS]
        for number in range(3):
            for scope, who in ((["s"], (0, 1)), (["s", "other", "graph"], (2, 3))):
                asked = {"scope": scope, "count": 5, "keep": number % 2 == 0}
                revision = writer.ask(["burst", asked])
                for at in (*who, 4, 5, 6, 7):
                    watching[at].wait_for(revision)
        store.delete_session("s")
        for each in watching[:6]:
            each.wait_for_end()
        assert [each.is_alive() for each in watching[6:]] == [True, True]


def test_the_folder_of_a_session_that_comes_and_goes(tmp_path: Path) -> None:
    """Whatever is deleted and made again under a watch of all sessions, the last is heard of."""
    with limpet.open(f"file://{tmp_path}/store") as store:
        watching = Watching(store, lambda store: store.watch(prefix="s"))
        one = Watching(store, lambda store: store.scope("s").watch())
        for number in range(5):
            saved = store.scope("s").save({"n": number})
            watching.wait_for(saved.revision)
            until(lambda saved=saved, one=one: saved.revision in one.revisions)  # type: ignore[misc]
            store.delete_session("s")
            one.wait_for_end()
            one = Watching(store, lambda store: store.scope("s").watch())
