"""Chapter: watching. The present first, then what is new; the last is never missed."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import pytest

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.errors import InvalidInput, Unsupported
from limpet.model import SnapshotInfo
from limpet.protocol import Backend, Target
from limpet.testing.conformance._kit import Kit, finds, names, present, together

_LONG_S: Final = 20.0  # never waited for, unless something is wrong
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

    def test_the_present_comes_first_and_then_what_is_new(self, scope: Scope, rival: Scope) -> None:
        """From this store or another."""
        first = scope.save(1)
        watch = scope.watch(timeout_s=_LONG_S)
        assert next(watch) == first
        for number in range(3):
            info = rival.save(number)
            assert next(watch) == info

    def test_the_last_of_many_is_never_missed(self, scope: Scope, rival: Scope) -> None:
        """Those in between may be; the order is kept, and none comes twice."""
        watch = scope.watch(timeout_s=_LONG_S)
        saved = [rival.save(number) for number in range(20)]
        heard = _until(watch, saved[-1].revision)

        positions = [saved.index(info) for info in heard]
        assert positions == sorted(set(positions))

    def test_every_kind_of_change_of_the_head_is_heard(self, scope: Scope, rival: Scope) -> None:
        """Drafts, updates, and the snapshot that a delete uncovers."""
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

    def test_what_does_not_change_the_head_is_not_heard(self, scope: Scope, rival: Scope) -> None:
        """Notes, leases, what is saved aside, other scopes; nor a repetition."""
        head = scope.save(1, id="a")
        watch = scope.watch(timeout_s=_QUIET_S)
        assert next(watch) == head
        rival.set_note("n", 1)
        rival.save(2, id="b", head=False)
        rival.save(1, id="a")
        Store(rival.driver.opened).scope("chat-42", "other").save(3)
        with rival.claim(owner="w"):
            pass
        assert list(watch) == []

    def test_it_may_begin_before_there_is_anything(self, scope: Scope, rival: Scope) -> None:
        """Then it waits for the first."""
        watch = scope.watch(timeout_s=_LONG_S)
        answers: list[Any] = together([lambda: next(watch), lambda: rival.save(1)])
        assert answers[0] == answers[1]

    def test_one_snapshot(self, scope: Scope, rival: Scope) -> None:
        """Only its own changes are heard: of an older one, before it is there, and its end."""
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

    @pytest.mark.parametrize("what", ["scope", "session", "snapshots"])
    def test_it_ends_when_what_is_watched_is_deleted(
        self, scope: Scope, rival: Scope, plain: Store, what: str
    ) -> None:
        """By whatever verb; a new watch waits for what comes after."""
        info = scope.save(1)
        watch = scope.watch(timeout_s=_LONG_S)
        assert next(watch) == info
        if what == "scope":
            rival.delete()
        elif what == "session":
            plain.delete_session(scope.session_id)
        else:
            rival.delete_snapshot(info.id)
        assert list(watch) == []
        assert list(scope.watch(timeout_s=0.05)) == []
        again = scope.save(2)
        assert next(scope.watch(timeout_s=_LONG_S)) == again

    def test_the_time_without_a_change(self, scope: Scope) -> None:
        """Then the loop ends; a change restarts the time."""
        assert list(scope.watch(timeout_s=0.05)) == []
        info = scope.save(1)
        begun = time.monotonic()
        assert list(scope.watch(timeout_s=_QUIET_S)) == [info]
        assert time.monotonic() - begun >= _QUIET_S

    def test_a_session(self, store: Store, plain: Store) -> None:
        """What each of its scopes shows, those that come later too; nothing of other sessions."""
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

    def test_a_session_with_many_scopes(self, store: Store, plain: Store, small_pages: int) -> None:
        """More than a page of them."""
        count = 2 * small_pages + 1
        saved = [plain.scope("s", f"scope-{n}").save(n) for n in range(count)]
        watch = store.watch(session_id="s", timeout_s=_LONG_S)
        heard = list(islice(watch, count))
        assert {info.revision for info in heard} == {info.revision for info in saved}

    def test_everything_below_a_prefix(self, store: Store, plain: Store) -> None:
        """Sessions come and go; it does not end with them."""
        watch = store.watch(prefix="team/", timeout_s=_LONG_S)
        for session_id in ("team/a", "team/b"):
            plain.scope("other").save(0)
            saved = plain.scope(session_id).save(1)
            assert next(watch) == saved
            plain.delete_session(session_id)
        saved = plain.scope("team/c").save(1)
        assert next(watch) == saved

    def test_a_snapshot_wherever_it_is(self, backend: Backend, store: Store, plain: Store) -> None:
        """Before it is saved, after an update, and its end; a prefix shuts out the others."""
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

    def test_many_watch_the_same(self, scope: Scope, rival: Scope) -> None:
        """Each hears of everything by itself, and one that leaves takes nothing from the others."""
        first = scope.save(1)
        watches = [scope.watch(timeout_s=_LONG_S) for _ in range(5)]
        assert [next(watch) for watch in watches] == [first] * 5
        watches.pop().close()  # type: ignore[attr-defined]
        second = rival.save(2)
        assert [next(watch) for watch in watches] == [second] * 4

    def test_a_lease_watches_as_its_scope_does(self, scope: Scope, rival: Scope) -> None:
        """For one who holds it, to hear of others."""
        with scope.claim(owner="a") as lease:
            info = lease.save({}, status="running")
            watch = lease.watch(timeout_s=_LONG_S)
            assert next(watch) == info
            rival.update(info.id, lambda s: s.with_(status="aborted"))
            assert next(watch).status == "aborted"

    def test_it_ends_with_the_store(self, backend: Backend, scope: Scope) -> None:
        """A loop that waits when the store is closed comes to its end."""
        info = scope.save(1)
        watch = scope.watch()
        assert next(watch) == info
        heard: list[Any] = []

        def close() -> None:
            time.sleep(0.05)
            Store(scope.driver.opened).close()

        together([lambda: heard.extend(watch), close])
        assert heard == []

    def test_bad_watches(self, store: Store, scope: Scope) -> None:
        """Refused at the call."""
        bad: list[Callable[[], object]] = [
            lambda: scope.watch(""),
            lambda: scope.watch(7),  # type: ignore[arg-type]
            lambda: scope.watch(timeout_s=-1),
            lambda: scope.watch(timeout_s=float("nan")),
            lambda: scope.watch(timeout_s="1"),  # type: ignore[arg-type]
            lambda: store.watch(session_id=""),
            lambda: store.watch(snapshot_id="a\0"),
            lambda: store.watch(session_id="s", snapshot_id="a"),
            lambda: store.watch(prefix=7),  # type: ignore[arg-type]
        ]
        for attempt in bad:
            with pytest.raises(InvalidInput):
                attempt()

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
