"""Chapter: threads. One store, many threads, and exact results."""

from collections.abc import Callable
from threading import Event

from limpet import (
    ANY,
    JSON,
    Conflict,
    InvalidInput,
    LimpetError,
    Scope,
    SnapshotInfo,
    Store,
)
from limpet.model import Expect
from limpet.protocol import Backend
from limpet.testing.kit import (
    Kit,
    is_durable,
    names,
    outcome,
    present,
    read_during,
    together,
)

THREADS = 4
ROUNDS = 6


def _attempt(
    scope: Scope, state: JSON, *, id: str | None = None, expect: Expect = ANY
) -> Callable[[], SnapshotInfo | LimpetError]:
    return lambda: outcome(lambda: scope.save(state, id=id, expect=expect))


class Threads(Kit):
    """What several threads do at the same time has one outcome."""

    def test_one_winner_each_round(self, scope: Scope) -> None:
        winner: SnapshotInfo | None = None
        for n in range(ROUNDS):
            expect = None if winner is None else winner.revision
            answers = together(
                _attempt(scope, {"round": n, "who": who}, expect=expect) for who in range(THREADS)
            )
            won = [
                (who, info) for who, info in enumerate(answers) if isinstance(info, SnapshotInfo)
            ]
            assert len(won) == 1
            assert sum(isinstance(answer, Conflict) for answer in answers) == THREADS - 1
            who, winner = won[0]
            assert scope.info() == winner
            assert present(scope.load()).state == {"round": n, "who": who}
            assert len(list(scope.history())) == n + 1

    def test_one_body_for_one_id(self, scope: Scope) -> None:
        for n in range(ROUNDS):
            answers = together(_attempt(scope, who % 2, id=f"{n}") for who in range(THREADS))
            won = [info for info in answers if isinstance(info, SnapshotInfo)]
            assert len(won) == THREADS // 2
            assert all(info == won[0] for info in won)
        assert len(list(scope.history())) == ROUNDS

    def test_concurrent_writes_all_take_effect(self, store: Store, scope: Scope) -> None:
        """Saves, appends and notes. Each is there once; those of one thread stay in its order."""
        saved = store.scope("saved")

        def write(who: int) -> Callable[[], None]:
            def run() -> None:
                for n in range(ROUNDS):
                    saved.save("x" * 100)
                    scope.append("items", [[who, n]], keep=n % 2 == 0)
                    scope.set_note("n", lambda value: (value or 0) + 1, on="a")

            return run

        together([write(who) for who in range(THREADS)])

        ids = names(saved.history())
        assert len(set(ids)) == THREADS * ROUNDS
        assert ids == sorted(ids, reverse=True)
        items = present(scope.load()).state["items"]
        assert sorted(items) == [[who, n] for who in range(THREADS) for n in range(ROUNDS)]
        for who in range(THREADS):
            assert [n for by, n in items if by == who] == list(range(ROUNDS))
        assert present(scope.note("n", on="a")).value == THREADS * ROUNDS

    def test_readers_see_whole_lists(self, store: Store, scope: Scope) -> None:
        def write() -> None:
            for n in range(25):
                info = scope.save({"n": n}, keep=n % 5 != 0)
                if n % 4 == 0:
                    scope.delete_snapshot(info.id)

        def read() -> None:
            history = names(scope.history())
            assert history == sorted(set(history), reverse=True)
            ids = list(scope.ids())
            assert ids == sorted(set(ids))
            assert list(store.sessions()) in ([], ["chat-42"])
            assert len(list(store.scopes())) <= 1

        read_during(write, read)

    def test_deleting_against_saving(self, backend: Backend, store: Store, scope: Scope) -> None:
        """A scope that is deleted while others save is never half there.

        An engine that does not delete in one step may count a save that overlaps it wrongly.
        """

        def delete() -> int:
            return sum(scope.delete() for _ in range(ROUNDS))

        def save() -> int:
            for _ in range(ROUNDS):
                scope.append("items", [1])
            return 0

        removed = sum(together([delete, save, save]))

        left = list(scope.history())
        if "atomic" in backend.capabilities:
            assert removed + len(left) == 2 * ROUNDS
        head = scope.load()
        assert (head is None) == (left == [])
        assert head is None or len(head.state["items"]) == len(left)
        assert len(list(store.scopes())) == bool(left)

    def test_closing_while_others_save(
        self, backend: Backend, store: Store, scope: Scope, reopen: Callable[[], Store]
    ) -> None:
        """A call that a close interrupts is InvalidInput; what was acknowledged before is there."""
        acknowledged: list[str] = []
        under_way = Event()

        def save_on() -> None:
            while True:
                answer = outcome(lambda: scope.save("x"))
                if not isinstance(answer, SnapshotInfo):
                    assert isinstance(answer, InvalidInput)
                    return
                acknowledged.append(answer.id)
                if len(acknowledged) >= 5:
                    under_way.set()

        def close() -> None:
            under_way.wait(30)
            store.close()

        together([save_on, save_on, close])

        assert isinstance(outcome(scope.load), InvalidInput)
        if is_durable(backend):
            found = set(reopen().scope(*scope.key).ids())
            assert found >= set(acknowledged)
            assert len(found) <= len(acknowledged) + 2
