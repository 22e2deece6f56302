"""docs/format.md is true: its examples read what is stored, its tables are those of the file."""

import hashlib
import hmac
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psycopg
import pytest
import xxhash
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import limpet
from limpet import Scope, Store
from limpet.backends.objects.heads import dump_head, parse_head
from limpet.core import codec
from limpet.core.codec import encode
from limpet.core.deltas import delta
from tests.servers.postgres import Postgres
from tests.waiting import until

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


def example_of(heading: str) -> str:
    """Return a program of the page: the functions of part one, and those of a section."""
    (shared,), (own,) = blocks("Reading states with Python", "python"), blocks(heading, "python")
    return f"{shared}\n{own}"


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
    """A store with states of every form, forks, drafts and a deletion."""
    folder = tmp_path_factory.mktemp("format")
    with limpet.open(f"sqlite:///{folder / 'agents.db'}", synchronous="off") as store:
        yield fill(Filled(folder, store, {}))


KEY = bytes(range(32))


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """The same with a key, closed: a copy has all of it."""
    folder = tmp_path_factory.mktemp("encrypted")
    url = f"sqlite:///{folder / 'agents.db'}"
    with limpet.open(url, keys=KEY.hex(), synchronous="off") as store:
        return fill(Filled(folder, store, {}))


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
            chat.save(state, id=f"turn-{turn}", labels={"run": "ä 7"}, status="running")
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
        more = ["öäü 🜁", *prose(400 if begin is bold else 1).split()]
        again.append("messages", more)
        filled.add(again, {**begin, "messages": [*begin["messages"], *more]})
    filled.add(chat.fork("turn-51", to="chat-43"), json.loads(saved["turn-51"]))

    fill_segment(filled, prose(900))
    other = filled.store.scope("chat-43", "critic", "graph")
    values: list[Any] = [{}, None, [1, 1.0, 2**70], {"wide": 2**70, "list": []}, "x" * 40_000]
    for value in [*values, *({"step": step} for step in range(70))]:
        other.save(value)
        filled.add(other, value)
    other.set_note("goal", "ä" * 1000)
    chat.save({**state, "scratch": "unfinished"}, keep=False)
    filled.add(chat, {**state, "scratch": "unfinished"})
    chat.set_note("goal", {"city": "Graz"}, on="turn-3")
    small = filled.store.scope("chat-45")
    small.save({"n": 1})
    filled.add(small, {"n": 1})  # it stays in the tail, whenever the thread rolls the others
    until(lambda: filled.rows(ROLLED) == [(3,)])
    return filled


ROLLED = "SELECT count(DISTINCT scope_pk) FROM segments"
ALL_ROLLED = "SELECT 1 FROM scopes WHERE session_id = 'chat-44' AND tail_count = 0"


def fill_segment(filled: Filled, text: str) -> None:
    """Fill a segment with long and short frames, and begin the next tail on it."""
    scope, seqs = filled.store.scope("chat-44"), []
    state: dict[str, Any] = {"messages": [text]}
    for turn in range(65):
        if turn:
            scope.append("messages", [turn])
            state["messages"].append(turn)
        else:
            scope.save(state)
        filled.add(scope, state)
        seqs.append(seq_of(scope))
        if turn == 63:
            until(lambda: filled.rows(ALL_ROLLED))
    scope.prune(keep_last=55)
    for seq in seqs[:10]:
        del filled.states[seq]


def kinds_of_frames(filled: Filled) -> set[int]:
    kinds = set()
    for (body,) in filled.rows("SELECT body FROM segments"):
        at = body.index(b"\n") + 1
        for size, *_ in json.loads(body[:at]):
            frame, at = codec.decompress(body[at : at + size], what="frame"), at + size
            kinds.add(json.loads(frame[: frame.index(b"\n")])[0])
    return kinds


def test_the_store_holds_everything_there_is_to_read(filled: Filled) -> None:
    """Guard the tests below: none of the forms may be missing."""
    forms = filled.rows("SELECT DISTINCT encoding, base IS NULL FROM tails ORDER BY 1, 2")
    assert forms == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)]
    assert kinds_of_frames(filled) == {0, 1, 2}
    assert filled.rows("SELECT 1 FROM tails WHERE base NOT IN (SELECT seq FROM tails)")
    assert filled.rows("SELECT 1 FROM snapshots WHERE NOT kept")
    assert len(filled.rows("SELECT 1 FROM snapshots WHERE forked_from IS NOT NULL")) == 5
    shared = filled.rows("SELECT length(body) > 16 FROM tails WHERE encoding = 2 ORDER BY 1")
    assert shared == [(0,), (0,), (1,), (1,)]


# Runs behind the example of the page, with what it has defined.
PROBE = """
with closing(sqlite3.connect("file:agents.db?mode=ro", uri=True)) as db:
    rows = db.execute("SELECT scope_pk, seq FROM snapshots").fetchall()
    print(json.dumps({seq: read_state(db, pk, seq).hex() for pk, seq in rows}))
"""

DECRYPT = f"""
import sqlite3
from contextlib import closing
with closing(sqlite3.connect("copy.db")) as db:
    decrypt_states(db, bytes.fromhex("{KEY.hex()}"))
"""


def run_alone(code: str, folder: Path) -> list[str]:
    """Run code without Limpet; return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys\nsys.modules['limpet'] = None\n{code}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def states_in(line: str) -> dict[int, bytes]:
    return {int(seq): bytes.fromhex(state) for seq, state in json.loads(line).items()}


def test_the_python_example_reads_every_state(filled: Filled) -> None:
    """Byte for byte, without Limpet, while the store is open."""
    example = example_of("Reading it with Python")

    *printed, found = run_alone(example + PROBE, filled.folder)

    assert states_in(found) == filled.states
    chat = filled.store.scope("chat-42", "planner")
    kept = [chat.load(info.id) for info in chat.history()][::-1]
    assert printed == [f"{each.id} {each.state}" for each in kept if each is not None]


def test_the_example_decrypts_every_state(encrypted: Filled, tmp_path: Path) -> None:
    (decrypt,) = blocks("Reading encrypted tables with Python", "python")
    read = example_of("Reading it with Python")
    shutil.copy(encrypted.folder / "agents.db", tmp_path / "copy.db")

    run_alone(decrypt + DECRYPT, tmp_path)

    (tmp_path / "copy.db").rename(tmp_path / "agents.db")
    assert states_in(run_alone(read + PROBE, tmp_path)[-1]) == encrypted.states


def test_the_example_reads_postgres(postgres: Postgres) -> None:
    """With the changes that part four names: a tail, a segment and a shared state."""
    example = example_of("Reading it with Python")
    names: dict[str, Any] = {}
    exec(example.partition("\nwith closing(")[0].replace("?", "%s"), names)
    states = []
    # With one connection a save rolls the tail itself.
    with postgres.database() as url, limpet.open(url, connections=1) as store:
        chat = store.scope("chat-42", "planner")
        for turn in range(70):
            states.append({"turn": turn, "text": " ".join(WORDS) * 100})
            chat.save(states[-1])
        chat.fork(last_id(chat))
        path = "-c search_path=limpet"
        with psycopg.connect(url, autocommit=True, options=path) as db:
            db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            rows = db.execute("SELECT scope_pk, seq FROM snapshots ORDER BY seq").fetchall()
            read = [json.loads(names["read_state"](db, *row)) for row in rows]
            assert db.execute("SELECT 1 FROM segments, shared, tails").fetchone()
    assert read == [*states, states[-1]]


def array(*values: Any) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


SCOPE = "session_id, scope_id, kind, pk, version, head, tip, last, floor, fence, owner, until, "
SCOPE += "notes, tail_count, tail_bytes, epoch"
SNAPSHOT = "seq, id, rev, nonce, kept, parent_id, CAST(forked_from AS TEXT), status, created_at, "
SNAPSHOT += "updated_at, size"
NOTE = "on_id, name, rev, nonce, updated_at"


@pytest.mark.parametrize("which", ["filled", "encrypted"])
def test_every_checksum_is_as_the_page_says(which: str, request: pytest.FixtureRequest) -> None:
    """The examples verify those of states."""
    filled: Filled = request.getfixturevalue(which)

    def check(covered: bytes, checksum: int) -> None:
        assert xxhash.xxh3_64_intdigest(covered) - 2**63 == checksum

    for *facts, trail, offsets, checksum in filled.rows(
        f"SELECT {SCOPE}, trail, offsets, checksum FROM scopes"
    ):
        check(array(*facts) + trail + (offsets or b""), checksum)
    for *facts, labels, metadata, checksum in filled.rows(
        f"SELECT scope_pk, {SNAPSHOT}, labels, metadata, checksum FROM snapshots"
    ):
        check(array(*facts) + b"%d:" % len(labels) + labels + metadata, checksum)
    notes = filled.rows(f"SELECT scope_pk, {NOTE}, value, checksum FROM notes")
    assert len(notes) == 2
    for *facts, value, checksum in notes:
        check(array(*facts) + value, checksum)


def test_what_is_encrypted_is_bound_as_the_page_says(encrypted: Filled) -> None:
    """The example decrypts states; this everything else."""
    ((store_id,),) = encrypted.rows("SELECT id FROM store")

    def decrypted(session_id: str, stored: bytes, about: bytes) -> bytes:
        text = b"limpet 1 data%b\0%b" % (store_id, session_id.encode())
        aes = AESGCM(hmac.digest(KEY, text, "sha256"))
        assert stored[:5] == b"\x01" + hashlib.sha256(b"limpet 1 id" + KEY).digest()[:4]
        return aes.decrypt(stored[5:17], stored[17:], stored[:5] + about)

    for *facts, trail, offsets in encrypted.rows(f"SELECT {SCOPE}, trail, offsets FROM scopes"):
        text = decrypted(facts[0], offsets, b"scope " + array(*facts) + trail)
        assert text == b"" or isinstance(json.loads(text), dict)
    key = "s.session_id, s.scope_id, s.kind, s.pk"
    seen = set()
    for *facts, metadata in encrypted.rows(
        f"SELECT {key}, {SNAPSHOT}, metadata FROM snapshots JOIN scopes AS s ON s.pk = scope_pk"
    ):
        facts[8] = bool(facts[8])
        facts[-1:] = [facts[4] // 1024, facts[-1], 2]
        text = decrypted(facts[0], metadata, b"row " + array(*facts) + b"{}")
        status, labels, nonce, rest = text.split(b":", 3)
        assert rest[int(status) + int(labels) :] == b"{}"
        assert nonce == b""
        seen.add((rest[: int(status)], rest[int(status) :][: int(labels)].decode()))
    assert seen == {(b"", "{}"), (b"running", "{}"), (b"running", '{"run":"ä 7"}')}
    values = []
    for *facts, value in encrypted.rows(
        f"SELECT {key}, {NOTE}, value FROM notes JOIN scopes AS s ON s.pk = scope_pk"
    ):
        values.append(decrypted(facts[0], value, b"note " + array(*facts)))
    assert b'{"city":"Graz"}' in values


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
    "a state in the tail that is no snapshot's": """
        SELECT seq FROM tails WHERE seq NOT IN (SELECT seq FROM snapshots)""",
    "a snapshot whose state is missing, or stored twice": """
        SELECT seq FROM snapshots AS n
         WHERE (SELECT count(*) FROM tails AS t WHERE t.seq = n.seq)
             + (SELECT count(*) FROM segments AS g
                 WHERE g.scope_pk = n.scope_pk AND n.seq BETWEEN first_seq AND last_seq) <> 1""",
    "segments that overlap": """
        SELECT g.pk FROM segments AS g JOIN segments AS o
            ON o.scope_pk = g.scope_pk AND o.pk <> g.pk
           AND o.last_seq >= g.first_seq AND o.first_seq <= g.last_seq""",
    "a base that is a draft, or later, or of another scope": """
        SELECT t.seq FROM tails AS t JOIN snapshots AS n ON n.seq = t.seq
         WHERE t.base IS NOT NULL
           AND t.base NOT IN (SELECT b.seq FROM snapshots AS b
                               WHERE b.scope_pk = n.scope_pk AND b.kept AND b.seq < t.seq)""",
    "a shared state that no tail of its session names": """
        SELECT h.name FROM shared AS h
         WHERE h.name NOT IN (SELECT t.body FROM tails AS t
                                JOIN snapshots AS n ON n.seq = t.seq
                                JOIN scopes AS s ON s.pk = n.scope_pk
                               WHERE t.encoding = 2 AND t.base IS NULL
                                 AND s.session_id = h.session_id)""",
    "a scope that says something else than its rows": """
        SELECT s.pk FROM scopes AS s
         WHERE s.tip <> (SELECT max(seq) FROM snapshots WHERE scope_pk = s.pk AND kept)
            OR s.last < (SELECT max(seq) FROM snapshots WHERE scope_pk = s.pk)
            OR s.notes <> (SELECT count(*) FROM notes WHERE scope_pk = s.pk)
            OR (s.tail_count, s.tail_bytes) <>
               (SELECT count(*), coalesce(sum(length(body)), 0)
                  FROM tails JOIN snapshots USING (seq) WHERE scope_pk = s.pk)""",
    "a draft that is not the head": """
        SELECT n.seq FROM snapshots AS n JOIN scopes AS s ON s.pk = n.scope_pk
         WHERE NOT n.kept AND n.seq IS NOT s.head""",
    "not apart, though others are between it and its parent": """
        SELECT n.seq FROM snapshots AS n
          JOIN snapshots AS p ON p.scope_pk = n.scope_pk AND p.id = n.parent_id
         WHERE NOT n.apart AND p.seq <> (SELECT max(o.seq) FROM snapshots AS o
                                          WHERE o.scope_pk = n.scope_pk AND o.seq < n.seq)""",
}


def test_what_the_page_says_of_every_file_holds(filled: Filled) -> None:
    for name, statement in INVARIANTS.items():
        assert filled.rows(statement) == [], name


def test_the_row_of_a_scope_is_as_the_page_says(filled: Filled) -> None:
    for version, tip, offsets, trail in filled.rows(
        "SELECT version, tip, offsets, trail FROM scopes"
    ):
        assert int.from_bytes(trail[:8], signed=True) == version
        assert len(trail) <= 16 * 8
        state = filled.states[tip]
        for key, offset in json.loads(offsets or "{}").items():
            value = json.loads(state)[key]
            assert (offset is None) == (not isinstance(value, list))
            if offset is not None:
                behind, nonempty = offset
                assert state[-behind:].startswith(b"]")
                assert nonempty == bool(value)
    assert filled.rows("SELECT 1 FROM scopes WHERE offsets IS NOT NULL")


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
        for turn in range(70):
            text = "".join(f"{(turn + 1) * 7919 * each % 1_000_003:06d}" for each in range(1, 900))
            state = {"turn": turn, "wide": 2**70, "text": f'öäü "data": 🜁 {text}'}
            chat.save(state, id=f"Turn {turn}", labels={"run": "7"})
        chat.update("Turn 3", lambda was: was.with_(state={"turn": "three"}))
        chat.delete_snapshot("Turn 5")
        chat.save([1, 1.0], id="L" * 300, head=False, metadata={"wide": 2**70})
        for turn in range(70):
            chat.set_note("goal", 1, on=f"Turn {turn}")
        chat.set_note("goal", 1)
        until(lambda: any(place.rglob("segments/*")))  # it is rolled in the background
        assert list(place.rglob("notes/*"))
        yield place, store


def test_the_example_finds_damage(folder: tuple[Path, Store], tmp_path: Path) -> None:
    place, _ = folder
    names: dict[str, Any] = {}
    exec(example_of("Reading objects with Python").partition("\nfolder = ")[0], names)
    below = next(place.rglob("head")).parent
    for path in (below / "head", next((below / "segments").iterdir())):
        stored = path.read_bytes()
        first = stored.index(b"\n") + 1
        states = first + json.loads(stored[:first])["frames"][0]
        for at in (stored.index(b'"seq":') + 9, states + 3):
            shutil.rmtree(tmp_path, ignore_errors=True)
            copied = shutil.copytree(below, tmp_path) / path.relative_to(below)
            damaged = bytearray(stored)
            damaged[at] ^= 1
            copied.write_bytes(damaged)
            with pytest.raises(AssertionError, match="damaged"):
                names["read_history"](tmp_path)


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
    example = example_of("Reading objects with Python")
    printed = run_alone(example, place)

    kept = [chat.load(info.id) for info in chat.history()][::-1]
    assert printed == [f"{each.id} {each.state}" for each in kept if each]
    assert len(kept) >= 2


def test_the_head_on_the_page_is_one() -> None:
    (shown,) = blocks("Heads, segments and pages", "")
    assert dump_head(parse_head(shown.encode())).decode() == shown


def test_the_page_names_every_field_of_a_head(folder: tuple[Path, Store]) -> None:
    place, store = folder
    with store.scope("chat-42", "planner").claim(owner="me"):
        heads = [path.read_bytes() for path in place.rglob("head")]
    rows = re.findall(r"^\| (`.*?) \|", section("Heads, segments and pages"), re.M)
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    for head in heads:
        assert json.loads(head.split(b"\n")[1]).keys() <= named


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
