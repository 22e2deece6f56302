"""Several states that are read together: what they share is unpacked once."""

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

import limpet
from limpet import JSON, Corrupt
from limpet.core.codec import encode
from limpet.core.deltas import chain as chains
from limpet.core.deltas.chain import BodyRow, Chains, read_chain

TURNS = 90


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[int, BodyRow]:
    """Whole states, packs, sealed ones and open deltas: a conversation and a fork of it."""
    path = tmp_path_factory.mktemp("chains") / "store.db"
    chance = Random(7)
    with limpet.open(f"sqlite:///{path}", synchronous="off") as store:
        scope = store.scope("s")
        texts = [chance.randbytes(300).hex() for _ in range(20)]
        ids = []
        for turn in range(TURNS):
            texts.append(chance.randbytes(200).hex())
            if turn % 7 == 0:
                texts[chance.randrange(len(texts))] = "another"
            ids.append(scope.save({"turn": turn, "texts": texts}).id)
        fork = scope.fork(ids[TURNS // 2], scope_id="fork")
        for turn in range(10):
            fork.append("texts", [f"on the fork {turn}"])
    return stored(path)


def stored(path: Path) -> dict[int, BodyRow]:
    with closing(sqlite3.connect(path)) as conn:
        found = conn.execute("SELECT seq, base, encoding, body, checksum FROM bodies")
        return {row[0]: BodyRow._make(row) for row in found}


def chain(rows: dict[int, BodyRow], seq: int) -> list[BodyRow]:
    found = [rows[seq]]
    while found[-1].base is not None:
        found.append(rows[found[-1].base])
    return found


@pytest.mark.parametrize("order", ["newest first", "oldest first", "mixed", "twice"])
@pytest.mark.parametrize("short", [False, True], ids=["whole chains", "up to what was read"])
def test_together_they_are_what_each_is_alone(
    rows: dict[int, BodyRow], order: str, short: bool
) -> None:
    seqs = sorted(rows, reverse=order == "newest first")
    if order == "mixed":
        Random(1).shuffle(seqs)
    if order == "twice":
        seqs = [seq for seq in seqs for _ in range(2)]
    together = Chains()
    for seq in seqs:
        whole = chain(rows, seq)
        asked = whole[:1] if short and rows[seq].base in together else whole
        assert together.read(asked) == read_chain(whole)[0]
    assert len(together.sizes) == len(rows)  # each was unpacked once


@pytest.mark.parametrize("limit", [0, 3_000, 50_000])
def test_no_more_is_kept_than_a_little(
    rows: dict[int, BodyRow], monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(chains, "_SHARED_BYTES_MAX", limit)
    together = Chains()
    for seq in sorted(rows, reverse=True):
        whole = chain(rows, seq)
        asked = whole[:1] if rows[seq].base in together else whole
        assert together.read(asked) == read_chain(whole)[0]
    assert len(together.sizes) > len(rows)


def test_states_that_are_larger_than_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "_SHARED_BYTES_MAX", 3_000)
    with limpet.open(f"sqlite:///{tmp_path}/store.db") as store:
        scope = store.scope("s")
        texts = [Random(1).randbytes(4_000).hex()]
        for turn in range(40):
            texts.append(f"turn {turn}")
            scope.save({"texts": texts})
        ids = [*scope.ids()]
        for some in (ids, ids[::-1], [ids[3], ids[3], ids[30], ids[2]]):
            found = [snapshot.state for snapshot in scope.load_many(some)]
            assert found == [scope.load(id).state for id in some]  # type: ignore[union-attr]


def test_damage_is_found_wherever_a_chain_meets_it(rows: dict[int, BodyRow]) -> None:
    seqs = sorted(rows)
    bases = [row.base for row in rows.values() if row.base is not None]
    bad = max(set(bases), key=bases.count)
    broken = {**rows, bad: rows[bad]._replace(body=rows[bad].body[:-1] + b"?")}
    together = Chains()
    for seq in seqs:
        whole = chain(broken, seq)
        if broken[bad] in whole:
            with pytest.raises(Corrupt):
                together.read(whole)
        else:
            assert together.read(whole) == read_chain(whole)[0]


def test_a_gap_is_no_chain(rows: dict[int, BodyRow]) -> None:
    top = max(rows, key=lambda seq: len(chain(rows, seq)))
    whole = chain(rows, top)
    assert len(whole) > 3
    for broken in ([], whole[:-1], whole[:1], [whole[0], *whole[2:]]):
        with pytest.raises(Corrupt):
            Chains().read(broken)


def test_many_small_changes_of_a_large_state_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many packs makes the whole text again. Limits and state are scaled down."""
    path, chance, saved = tmp_path / "store.db", Random(7), dict[int, bytes]()
    texts: list[dict[str, JSON]] = [{"n": 0, "of": chance.randbytes(500).hex()} for _ in range(200)]
    with limpet.open(f"sqlite:///{path}", synchronous="off") as store:
        for seq in range(1, 260):
            for each in chance.sample(texts, 20):
                each["n"] = seq
            size = store.scope("s").save(texts).size
            saved[seq] = encode(texts)
    monkeypatch.setattr(chains, "_READ_BYTES_MAX", 4 * size)
    monkeypatch.setattr(chains, "_SHARED_BYTES_MAX", size // 2)
    rows = stored(path)
    for seq in range(1, 260, 13):
        assert read_chain(chain(rows, seq))[0] == saved[seq]
    together = Chains()
    for seq in range(200, 259):
        assert together.read(chain(rows, seq)) == saved[seq]
