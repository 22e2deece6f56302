"""Chapter: watching. The present first, then what is new; the last is never missed."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import pytest

from limpet import Scope, SnapshotInfo, Store, Unsupported
from limpet.protocol import Backend, Target
from limpet.testing.kit import Kit, finds, names, present, together

_LONG_S: Final = 120.0  # never waited for, unless something is wrong
_QUIET_S: Final = 0.4  # in which nothing may be heard


def _until(watch: Iterator[SnapshotInfo], revision: str) -> list[SnapshotInfo]:
    """Return what is heard up to a revision."""
    heard: list[SnapshotInfo] = []
    for info in watch:
        heard.append(info)
        if info.revision == revision:
            return heard
    raise AssertionError(f"ended before it was heard of: {heard}")


class Watching(Kit):
    """`watch` on scopes, snapshots, sessions and stores."""

    def test_watch_yields_the_present_first_and_then_what_is_new(
        self, scope: Scope, rival: Scope
    ) -> None:
        first = scope.save(1)
        watch = scope.watch(timeout_s=_LONG_S)
        assert next(watch) == first
        for number in range(3):
            info = rival.save(number)
            assert next(watch) == info

    def test_watch_never_misses_the_last_of_many(self, scope: Scope, rival: Scope) -> None:
        """Those in between may be; the order is kept, and none comes twice."""
        watch = scope.watch(timeout_s=_LONG_S)
        saved = [rival.save(number) for number in range(20)]
        heard = _until(watch, saved[-1].revision)

        positions = [saved.index(info) for info in heard]
        assert positions == sorted(set(positions))

    def test_watch_yields_every_kind_of_change_of_the_head(
        self, scope: Scope, rival: Scope
    ) -> None:
        kept = scope.save(1)
        watch = scope.watch(timeout_s=_LONG_S)
        assert next(watch) == kept
        draft = rival.save(2, keep=False)
        assert next(watch) == draft
        updated = present(rival.update(draft.id, lambda s: s.with_(status="aborted")))
        heard = next(watch)
        assert heard == updated
        assert (heard.id, heard.status) == (draft.id, "aborted")
        rival.delete_snapshot(draft.id)
        assert next(watch) == kept

    def test_watch_yields_nothing_when_the_head_does_not_change(
        self, scope: Scope, rival: Scope
    ) -> None:
        """Notes, leases, what is saved aside, other scopes; nor a repetition."""
        head = scope.save(1, id="a")
        watch = scope.watch(timeout_s=_QUIET_S)
        assert next(watch) == head
        rival.set_note("n", 1)
        rival.save(2, id="b", head=False)
        rival.save(1, id="a")
        Store(rival.driver).scope("chat-42", "other").save(3)
        with rival.claim(owner="w"):
            pass
        assert list(watch) == []

    def test_watch_may_begin_before_the_scope_exists(self, scope: Scope, rival: Scope) -> None:
        watch = scope.watch(timeout_s=_LONG_S)
        answers: list[Any] = together([lambda: next(watch), lambda: rival.save(1)])
        assert answers[0] == answers[1]

    def test_watch_of_one_snapshot(self, scope: Scope, rival: Scope) -> None:
        watch = scope.watch("a", timeout_s=_LONG_S)
        saved = rival.save(1, id="a")
        assert next(watch) == saved
        rival.save(2, id="b")
        updated = present(rival.update("a", lambda s: s.with_(state=3)))
        assert next(watch) == updated
        rival.save(4, id="a", overwrite=True)
        assert next(watch) == scope.info("a")
        rival.delete_snapshot("a")
        assert list(watch) == []

    def test_watch_ends_when_what_is_watched_is_deleted(
        self, scope: Scope, rival: Scope, plain: Store
    ) -> None:
        deletions: list[Callable[[str], int]] = [
            lambda watched: rival.delete(),
            lambda watched: plain.delete_session(scope.session_id),
            lambda watched: rival.delete_snapshot(watched),
        ]
        for delete in deletions:
            info = scope.save(1)
            watch = scope.watch(timeout_s=_LONG_S)
            assert next(watch) == info
            delete(info.id)
            begun = time.monotonic()
            assert list(watch) == []
            assert time.monotonic() - begun < _LONG_S / 2, "it was the timeout that ended it"
            assert list(scope.watch(timeout_s=0.05)) == []

    def test_watch_ends_after_timeout_s_without_a_change(self, scope: Scope) -> None:
        assert list(scope.watch(timeout_s=0.05)) == []
        info = scope.save(1)
        begun = time.monotonic()
        assert list(scope.watch(timeout_s=_QUIET_S)) == [info]
        assert time.monotonic() - begun >= _QUIET_S

    def test_watch_of_a_session(self, store: Store, plain: Store) -> None:
        first = plain.scope("s", "one").save(1)
        plain.scope("s1", "other").save(1)
        watch = store.watch(session_id="s", timeout_s=_LONG_S)
        assert next(watch) == first
        second = plain.scope("s", "two", "graph").save(2)
        assert next(watch) == second
        plain.scope("s1", "other").save(2)
        third = plain.scope("s", "one").save(3, keep=False)
        assert next(watch) == third
        plain.scope("s", "two", "graph").delete()
        plain.delete_session("s")
        assert list(watch) == []

    def test_watch_of_a_session_with_many_scopes(
        self, store: Store, plain: Store, small_pages: int
    ) -> None:
        count = 2 * small_pages + 1
        saved = [plain.scope("s", f"scope-{n}").save(n) for n in range(count)]
        watch = store.watch(session_id="s", timeout_s=_LONG_S)
        heard = list(islice(watch, count))
        assert {info.revision for info in heard} == {info.revision for info in saved}

    def test_watch_below_a_prefix(self, store: Store, plain: Store) -> None:
        watch = store.watch(prefix="team/", timeout_s=_LONG_S)
        for session_id in ("team/a", "team/b"):
            plain.scope("other").save(0)
            saved = plain.scope(session_id).save(1)
            assert next(watch) == saved
            plain.delete_session(session_id)
        saved = plain.scope("team/c").save(1)
        assert next(watch) == saved

    def test_watch_of_a_snapshot_in_any_scope(
        self, backend: Backend, store: Store, plain: Store
    ) -> None:
        if not finds(backend, store):
            with pytest.raises(Unsupported):
                list(store.watch(snapshot_id="a", timeout_s=_LONG_S))
            return
        plain.scope("other").save(0, id="a")
        watch = store.watch(snapshot_id="a", prefix="team/", timeout_s=_LONG_S)
        saved = plain.scope("team/x", "one").save(1, id="a")
        assert next(watch) == saved
        updated = plain.scope("team/x", "one").update("a", lambda s: s.with_(status="aborted"))
        assert next(watch) == updated
        plain.delete_session("team/x")
        assert list(watch) == []

    def test_each_of_many_watches_yields_every_change(self, scope: Scope, rival: Scope) -> None:
        first = scope.save(1)
        watches = [scope.watch(timeout_s=_LONG_S) for _ in range(5)]
        assert [next(watch) for watch in watches] == [first] * 5
        watches.pop().close()  # type: ignore[attr-defined]
        second = rival.save(2)
        assert [next(watch) for watch in watches] == [second] * 4

    def test_watch_ends_when_the_store_is_closed(self, backend: Backend, scope: Scope) -> None:
        info = scope.save(1)
        watch = scope.watch()
        assert next(watch) == info
        heard: list[Any] = []

        def close() -> None:
            time.sleep(0.05)
            Store(scope.driver).close()

        together([lambda: heard.extend(watch), close])
        assert heard == []

    # The engine itself

    def test_a_mark_is_the_revision(self, backend: Backend, plain: Store) -> None:
        """Of each target in the order asked, also twice; None where there is nothing."""
        scope = plain.scope("s", "x")
        scope.save(1, id="a")
        head = scope.save(2, keep=False)
        empty = plain.scope("s", "y")
        empty.set_note("n", 1)
        asked = [
            Target(scope.key), Target(scope.key, "a"), Target(scope.key, "gone"),
            Target(empty.key), Target(plain.scope("no").key), Target(scope.key),
            Target(scope.key, head.id),
        ]  # fmt: skip
        first = present(scope.info("a")).revision
        shown = head.revision
        assert backend.read_revisions(asked) == [shown, first, None, None, None, shown, shown]
        assert backend.read_revisions([]) == []
        updated = present(scope.update("a", lambda s: s.with_(status="x"))).revision
        assert backend.read_revisions(asked[:2]) == [shown, updated]
        scope.delete_snapshot(head.id)
        assert backend.read_revisions(asked[:2]) == [updated, updated]
        scope.delete()
        assert backend.read_revisions(asked) == [None] * 7
        assert names(scope.history()) == []
