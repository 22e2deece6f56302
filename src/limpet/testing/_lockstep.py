"""Two stores in lockstep: the same clock and randomness for both, and a view of all they show."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any, Final, NamedTuple, TypeAlias, cast

from limpet import (
    HEAD,
    JSON,
    LimpetError,
    Note,
    Scope,
    ScopeInfo,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    Stats,
    Store,
    Unsupported,
    opening,
)
from limpet.api.driver import Driver
from limpet.api.opened import Opened, Tools
from limpet.core import limits
from limpet.protocol import Backend, Commit, Stamp
from limpet.testing.conformance._apis import APIS, close_loop, through
from limpet.testing.conformance._kit import outcome
from limpet.testing.oracle import Oracle

START_US: Final = 1_700_000_000_000_000
_STEP_US: Final = 300  # several steps in a millisecond: ids must grow on a clock that does not move

ABSENT: Final = "not-there"
_FOUND_MAX: Final = 6
_FIELDS: Final = {
    each: [field.name for field in fields(each)] for each in (SnapshotInfo, Snapshot, Note)
}

View: TypeAlias = dict[str, Any]


class Pair(NamedTuple):
    """What the engine under test and the oracle answered to the same call."""

    tested: Any
    oracle: Any


Its: TypeAlias = Callable[[Pair], Any]
"""Returns, from a pair of earlier answers, the one of the side that is called now."""


class Side:
    """One of the two stores. What it draws depends on nothing but the step and the clock."""

    def __init__(self, backend: Backend) -> None:
        self.now_us = START_US
        self._step = 0
        self._drawn = 0
        self._tokens: dict[str, str] = {}
        self.store = self.open(backend)

    def open(self, backend: Backend) -> Store:
        """Go on with another opened engine; return the store over it."""
        tools = Tools(
            draw=self._draw,
            clock=opening.CLOCK,
            state_bytes_max=limits.STATE_BYTES_MAX,
            workers=1,
        )
        self.store = Store(Driver(Opened(lambda: backend, tools)))
        return self.store

    def begin_step(self, step: int) -> None:
        """From here on draw what belongs to this step."""
        self.now_us += _STEP_US
        self._step, self._drawn = step, 0

    def _draw(self) -> Stamp:
        self._drawn += 1
        chance = hashlib.sha256(f"{self._step}/{self._drawn}".encode()).digest()
        return Stamp(self.now_us, chance[:8].hex(), int.from_bytes(chance[8:18]))

    def plain(self, value: Any) -> Any:
        """Return a value with its revisions, which are opaque, named in the order of appearance.

        So two sides are equal exactly if their revisions change at the same steps. Of an error
        only its class is left.
        """
        if isinstance(value, LimpetError):
            return type(value).__name__
        if isinstance(value, Stats):
            counts = (value.sessions, value.scopes, value.snapshots, value.logical_bytes)
            return (*counts, value.stored_bytes >= 0)  # its value depends on the engine
        if isinstance(value, ScopeInfo):
            return [value.key, self.plain(value.head)]
        if isinstance(value, SnapshotInfo | Note):
            # Of the class as well: a listing gives no states.
            shown = {name: getattr(value, name) for name in _FIELDS[type(value)]}
            return shown | {"revision": self._named(value.revision)}
        return [self.plain(each) for each in value] if isinstance(value, list | tuple) else value

    def _named(self, revision: str) -> str:
        return self._tokens.setdefault(revision, f"revision {len(self._tokens)}")


class _Told:
    """The engine under test; it tells which ids it minted."""

    def __init__(self, backend: Backend, minted: deque[str]) -> None:
        self._backend = backend
        self._minted = minted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def commit(self, commit: Commit) -> SnapshotInfo:
        info = self._backend.commit(commit)
        if commit.id is None:
            self._minted.append(info.id)
        return info


class _Echo(Oracle):
    """The oracle, with the ids that the engine minted: they carry more than time and chance."""

    def __init__(self, minted: deque[str]) -> None:
        super().__init__()
        self._minted = minted

    def commit(self, commit: Commit) -> SnapshotInfo:
        if commit.id is None and self._minted:
            commit = commit._replace(id=self._minted.popleft())
        return super().commit(commit)


class Twins:
    """The engine under test and the oracle. Every call is made on both."""

    def __init__(
        self,
        opener: Callable[[], Backend],
        ids: Iterable[str],
        *,
        text_order: bool,
    ) -> None:
        minted: deque[str] = deque()
        self._opener: Callable[[], Backend] = lambda: cast(Backend, _Told(opener(), minted))
        self._text_order = text_order
        backend = self._opener()
        self.durable = "durable" in backend.capabilities
        self._indexed = "index" in backend.capabilities
        self._tested, self._oracle = Side(backend), Side(_Echo(minted))
        self._outdated: list[Store] = []
        self._ids = {ABSENT, *ids}
        self._steps = 0
        self.snapshots = 0

    def close(self) -> None:
        for store in (*self._outdated, self._tested.store, self._oracle.store):
            store.close()
        close_loop()

    def reopen(self, *, closing: bool) -> None:
        """Open the engine under test again; the earlier one may stay open."""
        self._outdated.append(self._tested.store)
        if closing:
            while self._outdated:
                self._outdated.pop().close()
        self._tested.open(self._opener())

    def set_clock(self, by_us: int) -> None:
        for side in (self._tested, self._oracle):
            side.now_us += by_us

    def do(self, call: Callable[[Store, Its], Any], *, needs_index: bool = False) -> Pair:
        """Make the same call on both sides, alternating between the sync and the async API.

        Both must answer alike; but an engine without an index may refuse what needs one.
        """
        self._steps += 1
        for side in (self._tested, self._oracle):
            side.begin_step(self._steps)
        tested = through(APIS[self._steps % 2], self._tested.store)
        pair = Pair(
            outcome(lambda: _drained(call(tested, lambda pair: pair.tested))),
            outcome(lambda: _drained(call(self._oracle.store, lambda pair: pair.oracle))),
        )
        if needs_index and not self._indexed and isinstance(pair.tested, Unsupported):
            return pair
        differs = differences(self._tested.plain(pair.tested), self._oracle.plain(pair.oracle))
        assert not differs, "the answers differ: " + "\n".join(differs)
        return pair

    def at(self, key: ScopeKey, call: Callable[[Scope, Its], Any], **options: bool) -> Pair:
        return self.do(lambda store, its: call(store.scope(*key), its), **options)

    def save(self, key: ScopeKey, state: JSON, **options: Any) -> Pair:
        return self.at(key, lambda scope, its: scope.save(state, **options))

    def set_note(self, key: ScopeKey, name: str, value: JSON, *, on: str | None) -> Pair:
        return self.at(key, lambda scope, its: scope.set_note(name, value, on=on))

    def id_of(self, key: ScopeKey, which: int | str) -> str:
        """Return the id of a snapshot by its number from the newest on; a text is its own id."""
        if isinstance(which, int):
            scope = self._oracle.store.scope(*key)
            head = scope.info()
            draft = [] if head is None or head.kept else [head.id]
            found = [*draft, *(info.id for info in scope.history())]
            which = found[which % len(found)] if found else ABSENT
        # A note may be on any id, so an id is still checked after its snapshot was deleted.
        self._ids.add(which)
        return which

    def compare(self, keys: Iterable[ScopeKey]) -> None:
        """See that both show the same, in these scopes and in all that they list."""
        # Mostly the sync API, which is quicker; the steps themselves use both.
        tested = through(APIS[self._steps % 8 == 1], self._tested.store)
        views = [
            read_view(store, keys, self._ids, indexed=self._indexed)
            for store in (tested, self._oracle.store)
        ]
        if not self._text_order:
            views = [_in_text_order(view) for view in views]
        self.snapshots = views[1]["stats"].snapshots
        plain = [
            {name: _part_by_part(side, shown) for name, shown in view.items()}
            for side, view in zip((self._tested, self._oracle), views, strict=True)
        ]
        differs = differences(plain[0], plain[1])
        assert not differs, "what they show differs: " + "\n".join(differs)
        wrong = unsound(views[0])
        assert not wrong, "what they show cannot be: " + "\n".join(wrong)


def revision_of(scope: Scope, expect: Any, its: Its) -> Any:
    """Return what to compare: of a snapshot written earlier, of the head now, or as it is."""
    if isinstance(expect, Pair):
        return its(expect).revision
    if expect is HEAD:
        head = scope.info()
        return None if head is None else head.revision
    return expect


def _part_by_part(side: Side, shown: Any) -> Any:
    """Return what a view holds made plain; of a scope by its parts, so that one can be named."""
    if isinstance(shown, dict):
        return {name: side.plain(part) for name, part in shown.items()}
    return side.plain(shown)


def _drained(answer: Any) -> Any:
    return list(answer) if isinstance(answer, Iterator) else answer


def read_view(store: Store, keys: Iterable[ScopeKey], ids: Iterable[str], *, indexed: bool) -> View:
    """Return everything that a store shows of these scopes, and of all by its own listings."""
    ids = sorted(ids)
    seen: View = {"sessions": list(store.sessions()), "scopes": list(store.scopes())}
    seen["stats"] = store.stats()
    if indexed:
        seen["history"] = list(store.history())
        seen["found"] = [store.find(each) for each in ids[-_FOUND_MAX:]]
    for key in sorted({*keys, *(listed.key for listed in seen["scopes"])}):
        scope = store.scope(*key)
        history, leaves = list(scope.history()), list(scope.leaves())
        seen[f"{key}"] = {
            "head": scope.load(),
            "history": history,
            "ids": list(scope.ids()),
            "states": list(scope.load_many(info.id for info in history)),
            "leaves": leaves,
            "lines": [[info.id for info in scope.ancestors(leaf.id)] for leaf in leaves],
            "notes": [*scope.notes(), *scope.notes(on=ids)],
        }
    return seen


def _in_text_order(view: View) -> View:
    """Return a view of an engine that documents another order, in the order of text.

    Across scopes its order is that of the clocks, so only the order inside each is compared.
    """
    ordered = {**view, "sessions": sorted(view["sessions"])}
    ordered.pop("found", None)
    if "history" in view:
        ordered["history"] = sorted(view["history"], key=lambda info: info.scope)
    ordered["scopes"] = sorted(
        view["scopes"], key=lambda info: (info.key[0], info.key[2], info.key)
    )
    for name, shown in view.items():
        if isinstance(shown, dict):
            ordered[name] = {
                **shown,
                "ids": sorted(shown["ids"]),
                "notes": sorted(shown["notes"], key=lambda n: (n.snapshot_id or "", n.name)),
            }
    return ordered


def differences(tested: Any, oracle: Any, path: str = "") -> list[str]:
    """Return where two plain values differ, exactly: 1, 1.0 and True are three."""
    if repr(tested) == repr(oracle):
        return []
    if isinstance(tested, dict) and isinstance(oracle, dict) and [*tested] == [*oracle]:
        return [
            each
            for key in tested
            for each in differences(tested[key], oracle[key], f"{path}/{key}")
        ]
    return [f"{path or '/'}\n    tested: {tested!r}\n    oracle: {oracle!r}"]


def unsound(view: View) -> list[str]:
    """Return the rules that a view breaks. They hold whatever was done, for the oracle too."""
    wrong: list[str] = []
    rules: dict[str, Callable[[dict[str, Any]], bool]] = {
        "ids are the history's, in text order": lambda shown: (
            shown["ids"] == sorted(info.id for info in shown["history"])
        ),
        "a kept head is in history": lambda shown: (
            shown["head"] is None or shown["head"].kept == (shown["head"].id in shown["ids"])
        ),
        "every listed snapshot is kept and loads": lambda shown: (
            all(info.kept for info in shown["history"])
            and [_facts(s) for s in shown["states"]] == [_facts(i) for i in shown["history"]]
        ),
        "leaves are those that are no parent": lambda shown: (
            shown["leaves"]
            == [
                info
                for info in shown["history"]
                if info.id not in {child.parent_id for child in shown["history"]}
            ]
        ),
        "no line meets a snapshot twice": lambda shown: all(
            len(line) == len(set(line)) for line in shown["lines"]
        ),
    }
    scopes = {name: shown for name, shown in view.items() if isinstance(shown, dict)}
    for name, shown in scopes.items():
        wrong += [f"{name}: {rule}" for rule, holds in rules.items() if not holds(shown)]
    drafts = [s["head"] for s in scopes.values() if s["head"] is not None and not s["head"].kept]
    everything = [*drafts, *(info for shown in scopes.values() for info in shown["history"])]
    stats = view["stats"]
    if (stats.snapshots, stats.logical_bytes) != (len(everything), sum(i.size for i in everything)):
        wrong.append("stats count every snapshot")
    if "history" in view:
        for name, shown in scopes.items():
            if [i for i in view["history"] if f"{i.scope}" == name] != shown["history"]:
                wrong.append(f"{name}: the history of all agrees with that of the scope")
    return wrong


def _facts(info: SnapshotInfo) -> list[Any]:
    return [getattr(info, name) for name in SnapshotInfo.__slots__]
