"""Chapter: leases. One holder at a time, and nothing written under a lease that has passed."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from limpet import Conflict, Lease, Redacted, Scope, ScopeKey, Store
from limpet.protocol import Backend, Claim, Stamp
from limpet.testing.kit import Kit, case, names, present, together, unchanged

_SHORT_S: Final = 0.3
_WAIT_S_MAX: Final = 60.0
SCOPE = ScopeKey("chat-42", "planner")

WRITES: Final[dict[str, Callable[[Any], object]]] = {
    "save": lambda lease: lease.save({"late": 1}),
    "save a draft": lambda lease: lease.save({"late": 1}, keep=False),
    "save aside": lambda lease: lease.save({"late": 1}, id="late", head=False),
    "overwrite": lambda lease: lease.save({"late": 1}, id="a", overwrite=True),
    "append": lambda lease: lease.append("m", ["late"]),
    "update": lambda lease: lease.update("b", lambda s: s.with_(state={"late": 1})),
    "update of another": lambda lease: lease.update("a", lambda s: s.with_(status="late")),
    "prune": lambda lease: lease.prune(keep_last=0),
    "delete_snapshot": lambda lease: lease.delete_snapshot("b"),
    "delete_snapshot of another": lambda lease: lease.delete_snapshot("a"),
    "delete": lambda lease: lease.delete(),
    "redact": lambda lease: lease.redact(""),
    "redact a note": lambda lease: lease.redact("notes/n"),
    "set_note": lambda lease: lease.set_note("n", "late"),
    "set_note with a function": lambda lease: lease.set_note("n", lambda value: "late"),
    "delete_note": lambda lease: lease.delete_note("n"),
}


def _claim(number: int, *, ttl_s: float = _WAIT_S_MAX, key: str = "") -> Claim:
    now = time.time_ns() // 1000
    stamp = Stamp(now, f"{number:016x}", number)
    return Claim(SCOPE, key or f"key-{number}", f"owner-{number}", int(ttl_s * 1_000_000), stamp)


def _take(scope: Scope, lease: Lease, store: Store) -> ExitStack:
    """Let another owner take a lease, as if it had expired."""
    claim = _claim(7, key=lease.token)._replace(scope=scope.key)
    store.driver.run(lambda backend: backend.release(claim))
    stack = ExitStack()
    stack.enter_context(store.scope(*scope.key).claim(owner="rival", ttl_s=_WAIT_S_MAX))
    return stack


class Leasing(Kit):
    """`claim`, and what is written under it."""

    def test_a_lease_is_a_scope(self, scope: Scope) -> None:
        with scope.claim(owner="worker-1") as lease:
            assert lease.key == scope.key
            assert len(lease.token) >= 16
            assert lease.expires_at.tzinfo is UTC
            assert lease.expires_at > datetime.now(UTC)
            saved = lease.save({"n": 1})
            lease.append("m", [1])
            lease.set_note("n", 1)
            lease.update(saved.id, lambda s: s.with_(status="seen"))
            draft = lease.save({"n": 2}, keep=False, expect=present(lease.info()).revision)
            fork = lease.fork(saved.id, scope_id="fork")
            assert lease.redact("/n") == Redacted(4, 0)

        assert scope.info() == lease.info(draft.id)
        assert present(scope.load()).state == {"n": None}
        assert present(scope.note("n")).value == 1
        assert present(scope.info(saved.id)).status == "seen"
        assert fork.save(4).kept

    def test_a_claimed_scope_cannot_be_claimed_by_another(
        self, store: Store, scope: Scope, rival: Scope
    ) -> None:
        """Conflict, which says who holds it; tokens are never the same."""
        with scope.claim(owner="worker-1") as lease:
            for owner in ("worker-1", "worker-2"):
                with pytest.raises(Conflict, match="worker-1"), rival.claim(owner=owner):
                    raise AssertionError
            with store.scope("chat-42", "other").claim(owner="w") as other:
                assert other.token != lease.token
            lease.save(1)

        assert present(scope.load()).state == 1

    def test_a_lease_given_back_is_free_at_once(self, scope: Scope, rival: Scope) -> None:
        with scope.claim(owner="a") as first:
            pass
        with pytest.raises(ZeroDivisionError), rival.claim(owner="b"):
            raise ZeroDivisionError
        with scope.claim(owner="c") as third:
            assert third.token != first.token
            third.save(3)
        with pytest.raises(Conflict):
            first.save(1)

        assert present(scope.load()).state == 3

    def test_a_claim_waits_for_up_to_wait_s(self, scope: Scope, rival: Scope) -> None:
        order: list[str] = []

        def work(name: str) -> Callable[[], None]:
            def run() -> None:
                with rival.claim(owner=name, wait_s=_WAIT_S_MAX) as lease:
                    order.append(f"begin {name}")
                    lease.append("m", [name])
                    order.append(f"end {name}")

            return run

        together([work(name) for name in "abc"])

        begun = [each.removeprefix("begin ") for each in order[::2]]
        assert order == [f"{what} {name}" for name in begun for what in ("begin", "end")]
        assert present(scope.load()).state == {"m": begun}

    def test_a_claim_gives_up_after_wait_s(self, scope: Scope, rival: Scope) -> None:
        with scope.claim(owner="a"):
            begun = time.monotonic()
            with pytest.raises(Conflict), rival.claim(owner="b", wait_s=_SHORT_S):
                raise AssertionError
            assert time.monotonic() - begun >= _SHORT_S

    def test_a_lease_is_renewed_in_the_background(self, scope: Scope, rival: Scope) -> None:
        with scope.claim(owner="a", ttl_s=1) as lease:
            before, ends = lease.expires_at, time.monotonic() + 1
            while time.monotonic() < ends or lease.expires_at == before:
                assert time.monotonic() < ends + _WAIT_S_MAX
                time.sleep(0.01)
            with pytest.raises(Conflict), rival.claim(owner="b"):
                raise AssertionError
            lease.save(1)

        assert present(scope.load()).state == 1

    def test_nothing_is_written_under_a_lease_that_has_passed(
        self, scope: Scope, plain: Store
    ) -> None:
        scope.save({"m": [1]}, id="a")
        scope.save({"m": [2]}, id="b")
        scope.set_note("n", 1)
        with scope.claim(owner="slow") as lease:
            lease.save({"m": [2]}, id="b")
            with _take(scope, lease, plain):
                for name, write in WRITES.items():
                    with case(name), unchanged(plain, on=["late"]), pytest.raises(Conflict):
                        write(lease)

    def test_the_end_of_a_lost_lease_does_not_free_the_new_one(
        self, scope: Scope, plain: Store
    ) -> None:
        """Who was late gives back what is no longer theirs: nothing happens."""
        with ExitStack() as rivals:
            with scope.claim(owner="slow") as lease:
                rivals.enter_context(_take(scope, lease, plain))
            with pytest.raises(Conflict), scope.claim(owner="third"):
                raise AssertionError

    def test_a_lease_does_not_shut_out_plain_writers(self, scope: Scope, rival: Scope) -> None:
        """Nor does it change the head, whose revision can still be compared."""
        head = scope.save(0)
        with scope.claim(owner="a") as lease:
            assert scope.info() == head
            lease.save(1, expect=head.revision)
            assert rival.save(2).parent_id is not None
            lease.save(3)
            rival.set_note("n", 1)

        assert [s.state for s in scope.load_many(names(scope.history()))] == [3, 2, 1, 0]

    def test_a_scope_that_is_only_claimed_is_listed(self, store: Store, scope: Scope) -> None:
        with scope.claim(owner="a"):
            assert [(s.key, s.head) for s in store.scopes()] == [(scope.key, None)]
            assert list(store.sessions()) == [scope.session_id]
            assert scope.load() is None
        assert list(store.scopes()) == []
        assert list(store.sessions()) == []
        scope.save(1, expect=None)
        assert names(scope.history()) == [present(scope.info()).id]

    def test_deleting_a_scope_ends_its_lease(self, store: Store, scope: Scope) -> None:
        """Whoever deletes it: another, or its holder."""
        deletions: list[Callable[[Lease], int]] = [
            lambda lease: scope.delete(),
            lambda lease: store.delete_session(scope.session_id),
            lambda lease: lease.delete(expect=present(lease.info()).revision),
        ]
        for delete in deletions:
            with scope.claim(owner="a") as lease:
                lease.save(1, expect=None)
                assert delete(lease) == 1
                with pytest.raises(Conflict):
                    lease.save(2)
                assert list(store.scopes()) == []
                with scope.claim(owner="b") as second:
                    second.save(3)
            assert present(scope.load()).state == 3
            scope.delete()

    # The engine itself

    def test_a_claim_may_be_repeated(self, backend: Backend) -> None:
        """The same key again is granted; another key gets the owner and the time left."""
        for _ in range(2):
            held = backend.claim(_claim(1))
            assert held.key == "key-1"
        other = backend.claim(_claim(2))
        assert (other.key, other.owner) == ("key-1", "owner-1")
        assert 0 < other.left_us <= _WAIT_S_MAX * 1_000_000
        lease = present(backend.read_lease(SCOPE, now=time.time_ns() // 1000))
        assert (lease.key, lease.owner) == ("key-1", "owner-1")
        assert 0 < lease.left_us <= (_WAIT_S_MAX + 1) * 1_000_000

    def test_a_lease_that_is_not_renewed_ends(self, backend: Backend) -> None:
        """Then another key gets it, and not before; the old key is refused."""
        begun = time.monotonic()
        backend.claim(_claim(1, ttl_s=_SHORT_S))
        while backend.claim(_claim(2)).key != "key-2":
            assert time.monotonic() < begun + _WAIT_S_MAX
            time.sleep(0.01)
        assert time.monotonic() >= begun + _SHORT_S
        with pytest.raises(Conflict):
            backend.renew(_claim(1))
        backend.release(_claim(1))
        assert backend.claim(_claim(3)).key == "key-2"

    def test_a_lease_that_ended_can_be_renewed_while_it_is_free(self, backend: Backend) -> None:
        backend.claim(_claim(1, ttl_s=0.01))
        time.sleep(0.05)
        assert backend.renew(_claim(1)).key == "key-1"
        assert backend.claim(_claim(2)).key == "key-1"

    def test_renewing_what_was_never_held_is_a_conflict(self, backend: Backend) -> None:
        with pytest.raises(Conflict):
            backend.renew(_claim(1))
        backend.release(_claim(1))
        assert backend.read_lease(SCOPE, now=0) is None
        assert backend.list_sessions(prefix="", after="", limit=10) == []
        backend.claim(_claim(1))
        backend.release(_claim(1))
        with pytest.raises(Conflict):
            backend.renew(_claim(1))
        assert backend.read_lease(SCOPE, now=0) is None
