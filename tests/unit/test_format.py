"""docs/format.md is true: its examples read what is stored, its tables are those of the file."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import xxhash

import limpet
from limpet import Scope, Store
from limpet.backends.objects.objects import (
    Head,
    dump_head,
    dump_segment,
    parse_head,
    parse_segment,
    unpack,
)
from limpet.core import notes
from limpet.core.codec import encode
from limpet.core.deltas import delta

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "format.md").read_text("utf-8")
TURNS = 80

WORDS = ("harbour", "castle", "tram", "museum", "rain", "bridge", "ticket", "garden", "late", "two")


def section(heading: str) -> str:
    """Return the text below a heading, up to the next one."""
    (text,) = re.findall(rf"^### {re.escape(heading)}\n(.*?)(?=^##)", PAGE, re.M | re.S)
    return str(text)


def blocks(heading: str, language: str) -> list[str]:
    """Return the fenced blocks under a heading."""
    return re.findall(rf"^```{language}\n(.*?)^```$", section(heading), re.M | re.S)


class Filled(NamedTuple):
    """A store in a folder of its own, and the encoded state of every snapshot in it, by `seq`."""

    folder: Path
    store: Store
    states: dict[int, bytes]

    def add(self, scope: Scope, state: Any) -> None:
        """Expect a state under the `seq` of the scope's head."""
        self.states[seq_of(scope)] = encode(state)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / "agents.db")) as db:
            return db.execute(statement).fetchall()


def seq_of(scope: Scope, id: str | None = None) -> int:
    """Return the `seq` of a snapshot."""
    info = scope.info(id)
    assert info is not None
    return int(info.revision.partition(".")[0], 16)


def last_id(scope: Scope) -> str:
    info = scope.info()
    assert info is not None
    return info.id


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A store with bodies of every form: whole, delta, pack, sealed; forks, drafts, a deletion."""
    folder = tmp_path_factory.mktemp("format")
    with limpet.open(f"sqlite:///{folder / 'agents.db'}") as store:
        yield fill(Filled(folder, store, {}))


def fill(filled: Filled) -> Filled:
    chance = Random(7)

    def prose(count: int) -> str:
        return " ".join(chance.choices(WORDS, k=count))

    chat = filled.store.scope("chat-42", "planner")
    saved: dict[str, bytes] = {}
    state: dict[str, Any] = {"turn": 0, "scratch": "", "messages": []}
    for turn in range(TURNS):
        state["messages"].append({"role": "user", "content": prose(90)})
        if turn % 3 != 1:
            state |= {"turn": turn, "scratch": prose(25)}
            chat.save(state, id=f"turn-{turn}")
            saved[f"turn-{turn}"] = encode(state)
        else:
            chat.append("messages", state["messages"][-1:])
        filled.add(chat, state)
        if turn % 8 == 7:  # one more that is replaced by the next turn
            state["scratch"] = prose(25)
            chat.save(state, keep=False)
    filled.states.pop(seq_of(chat, "turn-41"))
    chat.delete_snapshot("turn-41")

    begun = json.loads(saved["turn-20"])
    bold = {**begun, "mood": "bold"}
    forks = [(chat.fork("turn-20"), begun), (chat.fork("turn-20", patch={"mood": "bold"}), bold)]
    for fork, begin in forks:
        filled.add(fork, begin)
        again = fork.fork(last_id(fork))
        filled.add(again, begin)
        again.append("messages", ["öäü 🜁"])
        filled.add(again, {**begin, "messages": [*begin["messages"], "öäü 🜁"]})
    filled.add(chat.fork("turn-51", to="chat-43"), json.loads(saved["turn-51"]))

    other = filled.store.scope("chat-43", "critic", "graph")
    values: list[Any] = [{}, None, [1, 1.0, 2**70], {"wide": 2**70, "list": []}, "x" * 40_000]
    for value in values:
        other.save(value)
        filled.add(other, value)
    chat.save({**state, "scratch": "unfinished"}, keep=False)
    filled.add(chat, {**state, "scratch": "unfinished"})
    return filled


def test_the_store_holds_everything_there_is_to_read(filled: Filled) -> None:
    """Guard the test below: none of the forms may be missing."""
    assert filled.rows("SELECT DISTINCT encoding FROM bodies ORDER BY 1") == [
        (n,) for n in range(6)
    ]
    on_packs = "SELECT 1 FROM bodies AS s JOIN bodies AS p ON p.seq = s.base WHERE s.encoding >= 4"
    assert filled.rows(f"{on_packs} AND p.encoding IN (2, 3)")
    assert filled.rows("SELECT 1 FROM bodies WHERE seq NOT IN (SELECT seq FROM snapshots)")
    assert filled.rows("SELECT 1 FROM snapshots WHERE NOT kept")
    assert len(filled.rows("SELECT 1 FROM snapshots WHERE forked_from IS NOT NULL")) == 5
    mere_copies = """
        SELECT 1 FROM bodies AS b JOIN snapshots AS n ON n.seq = b.seq
         WHERE b.body = CAST('[0,' || n.size || ',0]' AS BLOB)"""
    assert len(filled.rows(mere_copies)) == 3


# Runs behind the example of the page, with what it has defined.
PROBE = """
with closing(sqlite3.connect("file:agents.db?mode=ro", uri=True)) as db:
    seqs = db.execute("SELECT seq FROM snapshots").fetchall()
    print(json.dumps({seq: read_state(db, seq).hex() for (seq,) in seqs}))
"""


def test_the_python_example_reads_every_state(filled: Filled) -> None:
    """Byte for byte, without Limpet, while the store is open."""
    (example,) = blocks("Reading it with Python", "python")
    without = "import sys\nsys.modules['limpet'] = None\n"

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", without + example + PROBE],
        cwd=filled.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    *printed, found = done.stdout.splitlines()
    read = {int(seq): bytes.fromhex(state) for seq, state in json.loads(found).items()}
    assert read == filled.states
    chat = filled.store.scope("chat-42", "planner")
    kept = [chat.load(info.id) for info in chat.history()][::-1]
    assert printed == [f"{each.id} {each.state}" for each in kept if each is not None]


def test_the_shell_examples_run(filled: Filled) -> None:
    history, current = (
        re.findall(r'^sqlite3 -readonly agents.db "(.*)"$', block, re.M | re.S)[0]
        for block in blocks("Reading it with the sqlite3 shell", "sh")
    )
    assert len(filled.rows(history)) == 20
    assert filled.rows(current) == []  # a delta
    with limpet.open(f"sqlite:///{filled.folder / 'short.db'}") as store:
        store.scope("chat-42", "planner").save({"mood": "calm"})
        with closing(sqlite3.connect(filled.folder / "short.db")) as db:
            assert db.execute(current).fetchall() == [('{"mood":"calm"}',)]


def test_the_delta_on_the_page_is_one() -> None:
    lines = dict(re.findall(r"^(base|delta|state) +(\S.*)$", blocks("A delta", "")[0], re.M))
    base, packed, state = (lines[name].encode() for name in ("base", "delta", "state"))
    assert delta.apply(base, delta.parse(packed)) == state


INVARIANTS = {
    "a snapshot without a body": """
        SELECT seq FROM snapshots WHERE seq NOT IN (SELECT seq FROM bodies)""",
    "a body that is no snapshot's and no base": """
        SELECT seq FROM bodies
         WHERE seq NOT IN (SELECT seq FROM snapshots)
           AND seq NOT IN (SELECT base FROM bodies WHERE base IS NOT NULL)""",
    "a base of a whole body, or a delta without": """
        SELECT seq FROM bodies WHERE (base IS NULL) <> (encoding IN (0, 1))""",
    "a base that does not exist": """
        SELECT seq FROM bodies WHERE base IS NOT NULL AND base NOT IN (SELECT seq FROM bodies)""",
    "a sealed body on a whole one": """
        SELECT s.seq FROM bodies AS s JOIN bodies AS p ON p.seq = s.base
         WHERE s.encoding IN (4, 5) AND p.base IS NULL""",
    "a base in another session": """
        SELECT b.seq FROM bodies AS b
          JOIN snapshots AS n ON n.seq = b.seq JOIN scopes AS s ON s.pk = n.scope_pk
          JOIN snapshots AS m ON m.seq = b.base JOIN scopes AS o ON o.pk = m.scope_pk
         WHERE o.session_pk <> s.session_pk""",
    "not apart, though others are between it and its parent": """
        SELECT n.seq FROM snapshots AS n
          JOIN snapshots AS p ON p.scope_pk = n.scope_pk AND p.id = n.parent_id
         WHERE NOT n.apart AND p.seq <> (SELECT max(o.seq) FROM snapshots AS o
                                          WHERE o.scope_pk = n.scope_pk AND o.seq < n.seq)""",
}


@pytest.mark.parametrize("statement", INVARIANTS.values(), ids=INVARIANTS)
def test_what_the_page_says_of_every_file_holds(filled: Filled, statement: str) -> None:
    assert filled.rows(statement) == []


def test_the_chain_state_is_as_the_page_says(filled: Filled) -> None:
    head = """
        SELECT s.pk, s.codec, n.seq, n.nonce, n.size FROM scopes AS s
          JOIN snapshots AS n ON n.seq = s.head_seq WHERE s.scope_id = 'planner'"""
    pk, codec, *last = filled.rows(head)[0]
    names = re.findall(
        r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", section("Chain state"), re.M))
    )

    assert codec[-8:] == xxhash.xxh3_64_digest(b"%d:" % pk + codec[:-8])
    chain = dict(zip(names, json.loads(codec[:-8]), strict=True))
    assert [chain[name] for name in ("seq", "nonce", "size")] == last
    state = filled.states[chain["seq"]]
    for key, offset in chain["append_offsets"].items():
        value = json.loads(state)[key]
        assert (offset is None) == (not isinstance(value, list))
        if offset is not None:
            behind, nonempty = offset
            assert state[-behind:].startswith(b"]")
            assert nonempty == bool(value)


def test_the_page_names_every_table_column_and_index(filled: Filled) -> None:
    tables = dict(re.findall(r"^\*\*`(\w+)`\*\*(.*?)(?=^\*\*`|^##)", PAGE, re.M | re.S))
    ours = "FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'"

    assert tables.keys() == {
        name for (name,) in filled.rows(f"SELECT name {ours} AND type = 'table'")
    }
    for name, text in tables.items():
        columns = {column for _, column, *_ in filled.rows(f"PRAGMA table_info({name})")}
        assert {column for column in columns if f"`{column}`" not in text} == set()
    indexes = {name for (name,) in filled.rows(f"SELECT name {ours} AND type = 'index'")}
    assert {name for name in indexes if f"`{name} (" not in PAGE} == set()


# Part three: folders and buckets


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Store]]:
    """A folder with a history in which something of everything has happened."""
    place = tmp_path_factory.mktemp("objects")
    with limpet.open(f"file://{place / 'agents'}", sync=False) as store:
        chat = store.scope("chat-42", "planner")
        for turn in range(12):
            text = "".join(f"{(turn + 1) * 7919 * each % 1_000_003:06d}" for each in range(1, 900))
            state = {"turn": turn, "wide": 2**70, "text": f'öäü "data": 🜁 {text}'}
            chat.save(state, id=f"Turn {turn}", labels={"run": "7"})
        chat.update("Turn 3", lambda was: was.with_(state={"turn": "three"}))
        chat.delete_snapshot("Turn 5")
        chat.save([1, 1.0], id="L" * 300, head=False, metadata={"wide": 2**70})
        chat.set_note("goal", 1)
        chat.set_note("goal", 1, on="Turn 3")
        assert list(place.rglob("segments/*"))
        yield place, store


def run_example(place: Path) -> subprocess.CompletedProcess[str]:
    (example,) = blocks("Reading objects with Python", "python")
    without = "import sys\nsys.modules['limpet'] = None\n"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", without + example],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("last", ["kept", "draft", "deleted", "a young scope"])
def test_the_example_reads_objects(folder: tuple[Path, Store], last: str) -> None:
    place, store = folder
    chat = store.scope("chat-42", "planner")
    if last == "draft":
        chat.save({"draft": True}, keep=False)
    elif last == "deleted":
        chat.save({"gone": True}, id="gone")
        chat.delete_snapshot("gone")
    elif last == "a young scope":
        chat.prune(keep_last=2)
        chat.delete()
        chat.save({"young": True})
        chat.append("items", [1])
    done = run_example(place)

    assert (done.returncode, done.stderr) == (0, "")
    kept = [chat.load(info.id) for info in chat.history()][::-1]
    assert done.stdout.splitlines() == [f"{each.id} {each.state}" for each in kept if each]
    assert len(kept) >= 2


def test_the_example_finds_damage(folder: tuple[Path, Store], tmp_path: Path) -> None:
    place, _ = folder
    (example,) = blocks("Reading objects with Python", "python")
    names: dict[str, Any] = {}
    exec(example.partition("\nfolder = ")[0], names)
    head = next(place.rglob("head")).read_bytes()
    for at in (head.index(b'"w":') + 6, len(head) - 5):
        damaged = bytearray(head)
        damaged[at] ^= 1
        (tmp_path / "head").write_bytes(damaged)
        with pytest.raises(AssertionError, match="damaged"):
            names["read_frames"](tmp_path / "head")


def test_the_objects_on_the_page_are_objects() -> None:
    shown_head, shown_segment = blocks("Heads and segments", "")
    head = parse_head(shown_head.encode()).whole()
    assert dump_head(head, compress=False)[0].decode() == shown_head
    segment = parse_segment(unpack("segment", shown_segment.encode()))
    name = unpack("segment", shown_segment.encode()).about["name"]
    assert dump_segment(name, segment, compress=False)[0].decode() == shown_segment
    (shown,) = blocks("Notes", "")
    note = notes.read("".join(line.strip() for line in shown.splitlines()).encode())
    assert note.row.name == "goal"


def test_the_page_names_every_field_of_a_head() -> None:
    rows = re.findall(r"^\| (`.*?) \|", section("Heads and segments"), re.M)
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    others = {"is_rooted", "entries", "base", "base_frame"}  # in the frames
    assert named == {each.name for each in fields(Head)} - others | {"root"}


def test_the_page_names_every_key(folder: tuple[Path, Store]) -> None:
    """Every file matches a key of the page."""
    place, _ = folder
    (keys,) = blocks("Keys", "")
    above, patterns = "", []
    for line in keys.splitlines():
        name = line.split()[0]
        above = name if not line.startswith(" ") else above
        patterns.append(re.sub(r"<\w+>", "[^/]+", re.escape(above + name).replace("\\<", "<")))
    for path in (place / "agents").rglob("*"):
        key = path.relative_to(place / "agents").as_posix()
        assert path.is_dir() or any(re.fullmatch(each, key) for each in patterns), key
