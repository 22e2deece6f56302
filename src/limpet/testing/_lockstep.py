"""An engine and the model in lockstep: every call is made on both, and both must show the same."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

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
from limpet.core.times import to_us
from limpet.protocol import Backend, Commit, Stamp
from limpet.testing.kit import APIS, Layer, close_loop, outcome, through
from limpet.testing.model import Model, listing_order

DAY: Final = timedelta(days=1)
START: Final = datetime.fromtimestamp(1_700_000_000, UTC)
_STEP_US: Final = 300  # several steps in a millisecond: ids must grow on a clock that does not move

ABSENT: Final = "not-there"
_FOUND_MAX: Final = 6
_FIELDS: Final = {
    each: [field.name for field in fields(each)] for each in (SnapshotInfo, Snapshot, Note)
}

View: TypeAlias = dict[str, Any]


class Pair(NamedTuple):
    """What the engine under test and the model answered to the same call."""

    tested: Any
    model: Any


Its: TypeAlias = Callable[[Pair], Any]
"""Returns, from a pair of earlier answers, the one of the side that is called now."""


class _Recorder(Layer):
    """The engine under test; it tells what it stored."""

    stored: list[SnapshotInfo]

    def commit(self, commit: Commit) -> SnapshotInfo:
        info = self._below.commit(commit)
        self.stored.append(info)
        return info


class Plain:
    """Answers of one side, so that equal ones are equal texts."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
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
            return [value.key, self(value.head)]
        if isinstance(value, SnapshotInfo | Note):
            # Of the class as well: a listing gives no states.
            shown = {name: getattr(value, name) for name in _FIELDS[type(value)]}
            token = self._tokens.setdefault(value.revision, f"revision {len(self._tokens)}")
            return shown | {"revision": token}
        if isinstance(value, dict):
            return {name: self(each) for name, each in value.items()}
        return [self(each) for each in value] if isinstance(value, list | tuple) else value


class Twins:
    """The engine under test and the model. What it draws depends on the step and the clock."""

    def __init__(
        self, opener: Callable[[], Backend], ids: Iterable[str] = (), *, text_order: bool = True
    ) -> None:
        self._opener = opener
        self._text_order = text_order
        self.model = Model()
        self._plain = Pair(Plain(), Plain())
        self._outdated: list[Store] = []
        self._ids = {ABSENT, *ids}
        self._now_us = to_us("start", START)
        self._step = self._drawn = 0
        self.snapshots = 0
        self._open()

    def _open(self) -> None:
        recorder = _Recorder(self._opener())
        recorder.stored = self.model.stored
        self.durable = "durable" in recorder.capabilities
        self._indexed = "index" in recorder.capabilities
        tools = Tools(
            draw=self._draw,
            clock=opening.CLOCK,
            state_bytes_max=limits.STATE_BYTES_MAX,
            workers=1,
        )
        self.tested = Store(Driver(Opened(lambda: recorder.backend, tools)))

    def _draw(self) -> Stamp:
        self._drawn += 1
        chance = hashlib.sha256(f"{self._step}/{self._drawn}".encode()).digest()
        return Stamp(self._now_us, chance[:8].hex(), int.from_bytes(chance[8:18]))

    def close(self) -> None:
        for store in (*self._outdated, self.tested):
            store.close()
        close_loop()

    def reopen(self, *, closing: bool) -> None:
        """Open the engine under test again; the earlier one may stay open."""
        self._outdated.append(self.tested)
        if closing:
            while self._outdated:
                self._outdated.pop().close()
        self._open()

    def use_earlier(self) -> None:
        """Go on with a store that was opened before: what it remembers may have changed since."""
        if self._outdated:
            self._outdated.append(self.tested)
            self.tested = self._outdated.pop(0)

    def set_clock(self, by_us: int) -> None:
        self._now_us += by_us

    def do(self, call: Callable[[Any, Its], Any], *, needs_index: bool = False) -> Pair:
        """Make the same call on both sides, alternating between the sync and the async API.

        Both must answer alike; but an engine without an index may refuse what needs one.
        """
        self._step += 1
        self._drawn = 0
        self._now_us += _STEP_US
        self.model.now_us = self._now_us
        self.model.stored.clear()
        tested = through(APIS[self._step % 2], self.tested)
        answer = outcome(lambda: _drained(call(tested, lambda pair: pair.tested)))
        if needs_index and not self._indexed and isinstance(answer, Unsupported):
            return Pair(answer, answer)
        pair = Pair(answer, outcome(lambda: call(self.model, lambda pair: pair.model)))
        differs = differences(self._plain.tested(pair.tested), self._plain.model(pair.model))
        assert not differs, "the answers differ: " + "\n".join(differs)
        return pair

    def at(self, key: ScopeKey, call: Callable[[Any, Its], Any], **options: bool) -> Pair:
        return self.do(lambda store, its: call(store.scope(*key), its), **options)

    def save(self, key: ScopeKey, state: JSON, **options: Any) -> Pair:
        return self.at(key, lambda scope, its: scope.save(state, **options))

    def set_note(self, key: ScopeKey, name: str, value: JSON, *, on: str | None) -> Pair:
        return self.at(key, lambda scope, its: scope.set_note(name, value, on=on))

    def id_of(self, key: ScopeKey, which: int | str) -> str:
        """Return the id of a snapshot by its number from the newest on; a text is its own id."""
        if isinstance(which, int):
            scope = self.model.scope(*key)
            head = scope.info()
            draft = [] if head is None or head.kept else [head.id]
            found = [*draft, *(info.id for info in scope.history())]
            which = found[which % len(found)] if found else ABSENT
        # A note may be on any id, so an id is still checked after its snapshot was deleted.
        self._ids.add(which)
        return which

    def compare(self, keys: Iterable[ScopeKey] = ()) -> None:
        """See that both show the same, in these scopes and in all that they list."""
        # Mostly the sync API, which is quicker; the steps themselves use both.
        tested = through(APIS[self._step % 8 == 1], self.tested)
        views = [
            read_view(store, keys, self._ids, indexed=self._indexed)
            for store in (tested, self.model)
        ]
        if not self._text_order:
            views = [_in_text_order(view) for view in views]
        self.snapshots = views[1]["stats"].snapshots
        differs = differences(self._plain.tested(views[0]), self._plain.model(views[1]))
        assert not differs, "what they show differs: " + "\n".join(differs)

    def compare_reopened(self) -> None:
        """The same, and again once it is re-opened; what is not durable would begin empty."""
        self.compare()
        if self.durable:
            self.reopen(closing=False)
            self.compare()


def revision_of(scope: Scope, expect: Any, its: Its) -> Any:
    """Return what to compare: of a snapshot written earlier, of the head now, or as it is."""
    if isinstance(expect, Pair):
        return its(expect).revision
    if expect is HEAD:
        head = scope.info()
        return None if head is None else head.revision
    return expect


def _drained(answer: Any) -> Any:
    return list(answer) if isinstance(answer, Iterator) else answer


def read_view(store: Any, keys: Iterable[ScopeKey], ids: Iterable[str], *, indexed: bool) -> View:
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
            "noted": list(scope.noted_ids()),
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
    ordered["scopes"] = sorted(view["scopes"], key=lambda info: listing_order(info.key))
    for name, shown in view.items():
        if isinstance(shown, dict):
            ordered[name] = {
                **shown,
                "ids": sorted(shown["ids"]),
                "noted": sorted(shown["noted"]),
                "notes": sorted(shown["notes"], key=lambda n: (n.snapshot_id or "", n.name)),
            }
    return ordered


def differences(tested: Any, model: Any, path: str = "") -> list[str]:
    """Return where two plain values differ, exactly: 1, 1.0 and True are three."""
    if repr(tested) == repr(model):
        return []
    if isinstance(tested, dict) and isinstance(model, dict) and [*tested] == [*model]:
        return [
            each for key in tested for each in differences(tested[key], model[key], f"{path}/{key}")
        ]
    return [f"{path or '/'}\n    tested: {tested!r}\n    model: {model!r}"]
