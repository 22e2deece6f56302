"""How the SQLite engine stores states: what is written, what it builds on, and what is read."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

import limpet
from limpet import Corrupt, Scope, Store
from limpet.backends.sql.bodies import Bodies
from limpet.backends.sqlite.in_place import Connection
from limpet.backends.sqlite.transaction import SqliteTransaction
from limpet.core.codec import DELTA, SEALED, WHOLE, form_of
from limpet.core.deltas.chain import BodyRow, read_chain

GROUP = 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path) as store:
        yield store


def open_store(path: Path) -> Store:
    return limpet.open(f"sqlite:///{path}", synchronous="off")


def words(seed: object, count: int = 60) -> str:
    chance = Random(str(seed))
    return " ".join(chance.choice(VOCABULARY) for _ in range(count))


VOCABULARY = [Random(seed).randbytes(4).hex() for seed in range(500)]


PROMPT = words("prompt", 250)  # so that no state is small, which would be written whole at first


def chat(turns: int) -> dict[str, Any]:
    messages = [{"content": words(turn)} for turn in range(turns)]
    return {"turn": turns, "prompt": PROMPT, "messages": messages}


def rows(path: Path, columns: str = "seq, base, encoding", where: str = "1") -> list[Any]:
    with closing(sqlite3.connect(path)) as conn:
        return conn.execute(f"SELECT {columns} FROM bodies WHERE {where} ORDER BY seq").fetchall()


def forms(path: Path) -> list[int]:
    return [form_of(encoding) for _, _, encoding in rows(path)]


def unlisted(path: Path) -> int:
    return len(rows(path, where="seq NOT IN (SELECT seq FROM snapshots)"))


def save_chat(scope: Scope, turns: int, start: int = 1, **options: Any) -> None:
    for turn in range(start, turns + 1):
        scope.save(chat(turn), **options)


def test_a_group_is_closed_by_a_pack_and_sealed_against_it(store: Store, path: Path) -> None:
    scope = store.scope("s")
    save_chat(scope, GROUP + 1)
    assert forms(path) == [WHOLE] + [DELTA] * GROUP
    assert [base for _, base, _ in rows(path)] == [None, *range(1, GROUP + 1)]

    scope.save(chat(GROUP + 2))

    assert forms(path) == [WHOLE] + [SEALED] * GROUP + [DELTA]
    pack = GROUP + 2
    assert [base for _, base, _ in rows(path)] == [None] + [pack] * GROUP + [1]
    lengths = [length for (length,) in rows(path, "length(body)")]
    assert max(lengths[1:-1]) < 100 < lengths[-1]
    for turn, info in enumerate(reversed(list(scope.history())), 1):
        assert scope.load(info.id).state == chat(turn)  # type: ignore[union-attr]


def test_a_long_chat_never_stores_the_state_again(store: Store, path: Path) -> None:
    save_chat(store.scope("s"), 6 * (GROUP + 1))
    assert forms(path).count(WHOLE) == 1
    (total,) = rows(path, "sum(length(body))")[0]
    text = len(str(chat(6 * (GROUP + 1))))
    assert total < text


def test_states_that_shrink_and_grow_are_stored_whole_now_and_then(
    store: Store, path: Path
) -> None:
    """What went away stands in the packs: they must not outgrow the state without end."""
    scope = store.scope("s")
    for turn in range(12 * (GROUP + 1)):
        scope.save({"window": [words(each) for each in range(turn, turn + 12)]})
    assert 2 <= forms(path).count(WHOLE) <= 12
    assert scope.load().state["window"][0] == words(12 * (GROUP + 1) - 1)  # type: ignore[union-attr]


def test_what_has_nothing_in_common_builds_on_nothing(store: Store, path: Path) -> None:
    """Not even later, when small states are folded; nor are larger ones that are whole."""
    for size in (300, 3_000):
        for number in range(20):
            store.scope("s").save({"text": Random(number).randbytes(size).hex()})
    assert forms(path) == [WHOLE] * 40


def test_drafts_leave_no_more_than_a_group_behind(store: Store, path: Path) -> None:
    scope = store.scope("s")
    most = 0
    for turn in range(1, 5 * (GROUP + 1)):
        scope.save(chat(turn), keep=False)
        most = max(most, unlisted(path))
    assert scope.load().state == chat(5 * (GROUP + 1) - 1)  # type: ignore[union-attr]
    # A group, and the packs that hold what the state is made of.
    assert most <= GROUP + 5

    store.compact()
    assert unlisted(path) == 0
    assert forms(path) == [WHOLE]
    assert scope.load().state == chat(5 * (GROUP + 1) - 1)  # type: ignore[union-attr]


def test_a_draft_that_is_deleted_leaves_nothing(store: Store, path: Path) -> None:
    scope = store.scope("s")
    save_chat(scope, 10, keep=False)
    head = scope.info()
    assert head is not None
    assert scope.delete_snapshot(head.id) == 1
    assert rows(path) == []


def test_drafts_are_not_lost_to_a_window_that_slides(store: Store, path: Path) -> None:
    """When a draft is stored whole, all that it built on goes."""
    scope = store.scope("s")
    for turn in range(8 * (GROUP + 1)):
        scope.save({"window": [words(each) for each in range(turn, turn + 12)]}, keep=False)
    assert len(rows(path)) < 2 * GROUP


def test_forks_share_the_state(store: Store, path: Path) -> None:
    scope = store.scope("s")
    head = scope.save(chat(200))
    line = scope
    for _ in range(5):
        info = line.info()
        assert info is not None
        line = line.fork(info.id)
        assert line.load().state == chat(200)  # type: ignore[union-attr]
    found = rows(path, "base, length(body)")
    assert [base for base, _ in found] == [None] + [1] * 5  # a copy of a copy builds on the first
    assert max(length for _, length in found[1:]) < 32

    other = scope.fork(head.id, to="elsewhere")
    assert rows(path)[-1][1] is None  # self-contained
    assert store.delete_session("s") == 6
    assert other.load().state == chat(200)  # type: ignore[union-attr]
    assert len(rows(path)) == 1


def test_the_source_of_forks_can_go(store: Store, path: Path) -> None:
    scope = store.scope("s")
    save_chat(scope, 40)
    ids = [info.id for info in scope.history()]
    lines = [scope.fork(each) for each in ids[::8]]
    states = [line.load().state for line in lines]  # type: ignore[union-attr]
    assert scope.delete() == 40
    assert [line.load().state for line in lines] == states  # type: ignore[union-attr]
    assert unlisted(path) == 0
    assert list(store.check()) == []


def test_the_same_state_again_is_a_few_bytes(store: Store, path: Path) -> None:
    scope = store.scope("s")
    scope.save(chat(50))
    scope.save(chat(50))
    assert rows(path, "length(body)")[-1][0] < 20


def test_an_update_of_facts_alone_leaves_the_body(store: Store, path: Path) -> None:
    scope = store.scope("s")
    save_chat(scope, 10)
    before = rows(path, "*")
    for info in list(scope.history()):
        scope.update(info.id, lambda found: found.with_(status="seen"))
    assert rows(path, "*") == before
    scope.append("messages", [{"content": "more"}])
    assert len(scope.load().state["messages"]) == 11  # type: ignore[union-attr]


def test_a_patched_fork_is_what_was_patched(store: Store, path: Path) -> None:
    scope = store.scope("s")
    head = scope.save(chat(50))
    bold = scope.fork(head.id, patch={"mood": "bold"})
    assert rows(path, "base, length(body) < 100")[-1] == (1, 1)
    assert bold.load().state == {**chat(50), "mood": "bold"}  # type: ignore[union-attr]


def test_forks_of_forks_stay_near(store: Store, path: Path) -> None:
    """Each fork builds on the one before, with a save between: chains must not grow for ever."""
    line = store.scope("s")
    line.save(chat(20))
    depth = 0
    for turn in range(120):
        info = line.save(chat(20) | {"turn": turn})
        line = line.fork(info.id)
        with closing(sqlite3.connect(path, factory=Connection)) as conn:
            (last,) = conn.execute("SELECT max(seq) FROM bodies").fetchone()
            depth = max(depth, len(Bodies(SqliteTransaction(conn)).links(last)))
    assert depth < 100
    assert line.load().state == chat(20) | {"turn": 119}  # type: ignore[union-attr]


def test_what_was_changed_is_stored_nowhere_any_more(store: Store, path: Path) -> None:
    """Not in the body of a draft either that was replaced and had been built on it."""
    scope = store.scope("s")
    secret = words("secret", 5)
    first = scope.save(chat(5) | {"z": secret})
    scope.save(chat(5) | {"z": secret, "draft": 1}, keep=False)
    scope.save(chat(5) | {"z": "fine"})
    scope.update(first.id, lambda found: found.with_(state=chat(5) | {"z": "redacted"}))
    stored = b"".join(body for (body,) in rows(path, "body"))
    assert secret.encode() not in stored
    assert unlisted(path) == 0
    assert scope.load(first.id).state == chat(5) | {"z": "redacted"}  # type: ignore[union-attr]


def test_damage_below_a_group_ends_with_the_group(store: Store, path: Path) -> None:
    """A process that knows the last state goes on; what it saves is readable again soon."""
    scope = store.scope("s")
    save_chat(scope, 10)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("UPDATE bodies SET checksum = checksum + 1 WHERE seq = 1")
    save_chat(scope, GROUP + 12, 11)
    assert scope.load().state == chat(GROUP + 12)  # type: ignore[union-attr]


def test_leaves_of_an_id_that_is_used_again(store: Store) -> None:
    scope = store.scope("s")
    for each in "abc":
        scope.save(each, id=each)
    scope.delete_snapshot("b")
    scope.save(0, id="b", parent=None)
    assert [info.id for info in scope.leaves()] == ["c", "a"]


def test_branches_build_on_their_parents(store: Store, path: Path) -> None:
    scope = store.scope("s")
    texts = {side: [words((side, each)) for each in range(60)] for side in "ab"}
    parents: dict[str, str | None] = {"a": None, "b": None}
    for turn in range(10):
        for side, text in texts.items():
            text.append(words((side, "new", turn)))
            info = scope.save({"text": text}, parent=parents[side], head=False)
            parents[side] = info.id
            loaded = scope.load(info.id)
            assert loaded is not None
            assert loaded.state == {"text": text}
    assert forms(path).count(WHOLE) == 2
    assert max(length for (length,) in rows(path, "length(body)", "base IS NOT NULL")) < 2_000


@pytest.mark.parametrize(("period", "rounds"), [(2, 70), (3, 10)])
def test_states_that_alternate_build_on_one_another(
    store: Store, path: Path, period: int, rounds: int
) -> None:
    scope = store.scope("s")
    texts = [[words((side, each)) for each in range(140)] for side in range(period)]
    for turn in range(rounds * period):
        state = {"turn": turn, "text": texts[turn % period]}
        info = scope.save(state)
        loaded = scope.load(info.id)
        assert loaded is not None
        assert loaded.state == state
    assert forms(path).count(WHOLE) <= 2 * period
    assert max(len(each) for (each,) in rows(path, "body", "base IS NOT NULL")) < 1_000


def spy(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note which states are read."""
    read: list[int] = []

    def noted(rows: Sequence[BodyRow], *given: Any) -> Any:
        read.append(rows[0].seq)
        return read_chain(rows, *given)

    monkeypatch.setattr("limpet.backends.sql.bodies.read_chain", noted)
    return read


def test_append_reads_no_state(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = store.scope("s")
    scope.save({"a": [], "turn": 1, "b": [1], "c": {"d": []}})
    read = spy(monkeypatch)
    expected: dict[str, Any] = {"a": [], "turn": 1, "b": [1], "c": {"d": []}}
    for turn in range(3 * GROUP):
        key = ("a", "b", "new", 'odd "\\ ü')[turn % 4]
        expected.setdefault(key, []).append(words(turn))
        if turn % 3 == 0:  # cold: nothing is known but what the file says
            with open_store(path) as other:
                other.scope("s").append(key, [words(turn)])
        else:
            scope.append(key, [words(turn)])
    fork = scope.fork(scope.info().id)  # type: ignore[union-attr]
    fork.append("a", ["on a fork"])
    assert read == []
    assert scope.load().state == expected  # type: ignore[union-attr]
    assert list(scope.load().state) == list(expected)  # type: ignore[union-attr]
    assert fork.load().state["a"] == [*expected["a"], "on a fork"]  # type: ignore[union-attr]


def test_a_save_in_the_same_process_reads_no_state(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = store.scope("s")
    scope.save(chat(1))
    read = spy(monkeypatch)
    save_chat(scope, 2 * GROUP, 2)
    assert read == []
    with open_store(path) as other:  # one that does not know it reads it once
        save_chat(other.scope("s"), 2 * GROUP + 5, 2 * GROUP + 1)
    assert len(read) == 1
    scope.save(chat(2 * GROUP + 6))  # what is known here is stale by now
    assert len(read) == 2
    assert scope.load().state == chat(2 * GROUP + 6)  # type: ignore[union-attr]


def test_a_damaged_chain_state_is_not_followed(store: Store, path: Path) -> None:
    scope = store.scope("s")
    save_chat(scope, 10)
    for turn in range(10, 14):
        with closing(sqlite3.connect(path, isolation_level=None)) as conn:
            conn.execute(
                "UPDATE scopes SET codec = CAST(replace(codec, '10', '11') || x'' AS BLOB)"
                if turn % 2
                else "UPDATE scopes SET codec = substr(codec, 2)"
            )
        scope.append("messages", [{"content": words(turn)}])
    assert scope.load().state["messages"] == chat(14)["messages"]  # type: ignore[union-attr]
    assert list(store.check()) == []


def test_damage_reaches_what_builds_on_it_and_no_more(store: Store, path: Path) -> None:
    scope = store.scope("s")
    save_chat(scope, 20)
    store.scope("other").save(chat(3))
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("UPDATE bodies SET body = CAST('[]' || body AS BLOB) WHERE seq = 11")
    ids = [info.id for info in scope.history()][::-1]

    for turn, each in enumerate(ids, 1):
        if turn < 11:
            assert scope.load(each).state == chat(turn)  # type: ignore[union-attr]
        else:
            with pytest.raises(Corrupt):
                scope.load(each)
    found = [each for each in store.check() if each.severity != "info"]
    assert [(each.code, each.id) for each in found] == [("body_damaged", ids[10])]
    assert "dependents=`9`" in found[0].message
    # A process that does not know the last state cannot build on it, and stores the new one whole.
    with open_store(path) as other:
        saved = other.scope("s").save(chat(21))
        assert other.scope("s").load(saved.id).state == chat(21)  # type: ignore[union-attr]
    assert scope.delete_snapshot(ids[10]) == 1
    assert scope.load(ids[0]).state == chat(1)  # type: ignore[union-attr]
    with pytest.raises(Corrupt):
        scope.load(ids[11])
    assert scope.delete() == 20


def test_what_builds_on_damage_is_not_overwritten_with_something_else(
    store: Store, path: Path
) -> None:
    """Overwriting a damaged state would make those that build on it wrong instead of unreadable."""
    scope = store.scope("s")
    save_chat(scope, 5)
    ids = [info.id for info in scope.history()][::-1]
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("UPDATE bodies SET checksum = 0 WHERE seq = 3")
    with pytest.raises(Corrupt):
        scope.save({"other": 1}, id=ids[2], overwrite=True)
    with pytest.raises(Corrupt):
        scope.load(ids[3])


def test_space_comes_back(store: Store, path: Path) -> None:
    scope = store.scope("s")
    save_chat(scope, 150)
    for number in range(20):
        scope.save({"noise": Random(number).randbytes(50_000).hex()})
    store.compact()  # the file alone, without a log
    size = os.path.getsize(path)
    assert scope.prune(keep_last=1).count == 169
    assert store.compact() > 500_000
    assert os.path.getsize(path) < size - 500_000
    assert scope.load().state["noise"] == Random(19).randbytes(50_000).hex()  # type: ignore[union-attr]
