"""Old parts of a store put back among newer ones, by someone who has copies but no key.

Nothing here knows a format: a part is a row of any table that the schema names, or a file.
"""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import orjson

from limpet import Corrupt, Scope, Snapshot, Store

Parts = dict[tuple[Any, ...], Any]
"""What is stored, by its place: a table and the primary key, or the name of a file."""


class Below(Protocol):
    """What a store is kept in."""

    def parts(self) -> Parts: ...

    def put(self, parts: Parts) -> None:
        """Put parts into their places; what was there goes."""
        ...

    def clear(self) -> None: ...


class Rows:
    """The tables of a SQLite file, by what it says of them itself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        with self._connect() as conn:
            tables = [table for (table,) in conn.execute(query)]
            self._keys = {  # where in a row its primary key is
                table: [
                    at
                    for (at,) in conn.execute(
                        f"SELECT cid FROM pragma_table_info('{table}') WHERE pk > 0"
                    )
                ]
                for table in tables
            }

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path)) as conn, conn:
            yield conn

    def parts(self) -> Parts:
        with self._connect() as conn:
            return {
                (table, *(row[at] for at in keys)): row
                for table, keys in self._keys.items()
                for row in conn.execute(f"SELECT * FROM {table}").fetchall()
            }

    def put(self, parts: Parts) -> None:
        with self._connect() as conn:
            for (table, *_), row in parts.items():
                marks = ", ".join("?" * len(row))
                conn.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)

    def clear(self) -> None:
        with self._connect() as conn:
            for table in self._keys:
                conn.execute(f"DELETE FROM {table}")


class Files:
    """The files of a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def parts(self) -> Parts:
        return {(path,): path.read_bytes() for path in self._files()}

    def put(self, parts: Parts) -> None:
        for (path,), data in parts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def clear(self) -> None:
        for path in self._files():
            path.unlink()

    def _files(self) -> list[Path]:
        return [each for each in self._root.rglob("*") if each.is_file()]


class Trace:
    """Random writes to some scopes of a session, and all that was ever saved under each id."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self.store = store
        self._rng = rng
        self._names = ["main", "small", "large"]
        self.versions: dict[tuple[str, str], set[bytes]] = {}

    @property
    def scopes(self) -> list[str]:
        return self._names

    def step(self) -> None:
        scope = self.store.scope("s", self._rng.choice(self._names))
        verbs = [*[self._append] * 4, *[self._save] * 3, *[self._update] * 3, self._relabel]
        verbs += [self._overwrite, self._draft, self._prune, self._fork, self._delete]
        self._rng.choice(verbs)(scope)

    def seen(self, scope: Scope, found: Snapshot | None) -> None:
        if found is not None:
            self.versions.setdefault((scope.scope_id, found.id), set()).add(version(found))

    def _text(self, scope: Scope) -> str:
        return self._rng.randbytes({"small": 20, "main": 800}.get(scope.scope_id, 2000)).hex()

    def _edited(self, scope: Scope, state: Any) -> Any:
        """Return a state of the same size, so that no size gives a mixture away."""
        text, at = state.get("text") or self._text(scope), self._rng.randrange(8)
        return {**state, "text": f"{text[:at]}{self._rng.randrange(10**9):09d}{text[at + 9 :]}"}

    def _some(self, scope: Scope) -> str | None:
        return self._rng.choice([*scope.ids(), None])

    def _facts(self) -> dict[str, Any]:
        return {"status": str(self._rng.random()), "labels": {"at": str(self._rng.randrange(3))}}

    def _append(self, scope: Scope) -> None:
        for _ in range(self._rng.choice((1, 3, 20))):
            scope.append("messages", [self._text(scope)[:8]])
            self.seen(scope, scope.load())

    def _save(self, scope: Scope) -> None:
        for _ in range(self._rng.choice((1, 2, 9))):
            head = scope.load()
            state = {"messages": []} if head is None else head.state
            scope.save(self._edited(scope, state), **self._facts())
            self.seen(scope, scope.load())

    def _draft(self, scope: Scope) -> None:
        for _ in range(self._rng.choice((1, 3))):
            scope.save(self._edited(scope, {"messages": []}), keep=False)
            self.seen(scope, scope.load())

    def _update(self, scope: Scope) -> None:
        if (id := self._some(scope)) is not None:
            scope.update(id, lambda found: found.with_(state=self._edited(scope, found.state)))
            self.seen(scope, scope.load(id))

    def _relabel(self, scope: Scope) -> None:
        if (id := self._some(scope)) is not None:
            facts = self._facts()
            scope.update(id, lambda found: found.with_(**facts))
            self.seen(scope, scope.load(id))

    def _overwrite(self, scope: Scope) -> None:
        if (id := self._some(scope)) is not None:
            scope.save(
                {"messages": [], "text": self._text(scope)}, id=id, overwrite=True, **self._facts()
            )
            self.seen(scope, scope.load(id))

    def _prune(self, scope: Scope) -> None:
        scope.prune(keep_last=self._rng.choice((5, 30)))

    def _delete(self, scope: Scope) -> None:
        if (id := self._some(scope)) is not None:
            scope.delete_snapshot(id)

    def _fork(self, scope: Scope) -> None:
        id = self._some(scope)
        if id is not None and len(self._names) < 8:
            name = f"fork-{len(self._names)}"
            patch = self._rng.choice((None, {"forked": 1}))
            fork = scope.fork(id, scope_id=name, patch=patch)
            self._names.append(name)
            self.seen(fork, fork.load())


def version(found: Snapshot) -> bytes:
    return orjson.dumps((found.state, found.status, sorted(found.labels.items())))


def untrue(store: Store, trace: Trace, present: set[tuple[str, str]]) -> Iterator[str]:
    """Yield what a store answers that never was; or leaves out, of `present`, without a report."""
    missing = set(present)
    for name in trace.scopes:
        scope = store.scope("s", name)
        known = [id for at, id in trace.versions if at == name]
        found = list(_answers(scope, known))
        for verb, snapshot in found:
            missing.discard((name, snapshot.id))
            if version(snapshot) not in trace.versions.get((name, snapshot.id), ()):
                yield f"{verb} of {name} gave what was never saved as {snapshot.id}"
    if missing and next(iter(store.check()), None) is None:
        yield f"missing without a report: {missing}"


def _answers(scope: Scope, known: list[str]) -> Iterator[tuple[str, Snapshot]]:
    with suppress(Corrupt):
        known = list({*known, *(info.id for info in scope.history())})
    with suppress(Corrupt):
        if (head := scope.load()) is not None:
            yield "load", head
    try:
        yield from (("load_many", each) for each in scope.load_many(known))
    except Corrupt:
        for id in known:
            with suppress(Corrupt):
                if (one := scope.load(id)) is not None:
                    yield "load", one


def goes_on(store: Store, trace: Trace) -> Iterator[str]:
    """Append to all scopes; yield where that gave something else than what was there, and more."""
    for name in trace.scopes:
        scope = store.scope("s", name)
        with suppress(Corrupt):
            before = scope.load()
            for item in range(2):
                scope.append("messages", [item])
            after = scope.load()
            old: Any = {} if before is None else before.state
            expected = {**old, "messages": [*old.get("messages", []), 0, 1]}
            if after is None or after.state != expected:
                yield f"append to {name} gave something else"
