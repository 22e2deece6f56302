"""The stateful test: random programs of every verb, on an engine and on the oracle in lockstep.

After every step both must have answered alike (the same values, or an error of the same class) and
must show the same: every history, head, state, note, leaf and listing. In between the engine is
re-opened, and the faces take turns. Put an engine of your own to the test with a few lines::

    from hypothesis import settings
    from hypothesis.stateful import run_state_machine_as_test
    from holdfast.testing.stateful import Lockstep

    class MyEngine(Lockstep):
        def open_backend(self, place):
            return MyBackend(place / "x")

    def test_my_engine_does_what_the_oracle_does():
        run_state_machine_as_test(MyEngine, settings=settings(max_examples=50, deadline=None))

`place` is an empty folder; it is given again to re-open what was stored there. Time and chance are
the same for both and come from the program alone, so that a failure replays exactly as printed.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from holdfast.backends.memory import MemoryBackend
from holdfast.core import limits
from holdfast.errors import HoldfastError, Unsupported
from holdfast.model import ANY, HEAD, ScopeKey, Snapshot, SnapshotRef
from holdfast.protocol import Backend
from holdfast.scope import Scope
from holdfast.store import Store
from holdfast.testing._lockstep import (
    START_US,
    Pair,
    Side,
    differences,
    drained,
    look,
    unsound,
)
from holdfast.testing.conformance._faces import FACES, close_loop, through
from holdfast.testing.conformance._kit import outcome

Its: TypeAlias = Callable[[Pair], Any]
"""Gives of what both answered earlier that of the side which is being called."""

# Few of everything, so that programs meet what they did before.
_KEYS: Final = (ScopeKey("s"), ScopeKey("s", "main", "graph"), ScopeKey("s/1"))
_NAMES: Final = ("a", "b", "c", "\U0001f980/é")
_NOTES: Final = ("n", "m")
_ABSENT: Final = "not-there"
_ENOUGH: Final = 12  # snapshots, before whole scopes and sessions are deleted
_DAY: Final = timedelta(days=1)
_START: Final = datetime.fromtimestamp(START_US / 1_000_000, UTC)

names = st.sampled_from(_NAMES)
plain_values: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, 1, 1.0, -0.0, 2**70, "", "\0", "text", [], [1], {}, {"z": 1, "a": None}]
)
# Long enough to be compressed, and to be told apart from one another by little.
long_values = st.integers(1, 40).map(lambda count: [f"turn {n} " * 12 for n in range(count)])
states = (
    st.dictionaries(st.sampled_from("mnk"), plain_values | long_values, max_size=3) | plain_values
)
labels = st.sampled_from([None, {}, {"l": "1"}, {"l": "2"}, {"l": "1", "k": ""}])
metadata = st.sampled_from([None, {}, {"m": 1.0}, {"z": [None], "a": 2**70}])
statuses = st.sampled_from(["completed", "running", ""])
sessions = st.sampled_from(["s", "s/1", "t"])
facts = st.fixed_dictionaries({"status": statuses, "labels": labels, "metadata": metadata})
counts = st.none() | st.integers(0, 9)
modes: st.SearchStrategy[dict[str, bool]] = st.sampled_from(
    [{}, {}, {"keep": False}, {"head": False}, {"overwrite": True}, {"head": False, "keep": False}]
)
which: st.SearchStrategy[int | str] = st.integers(0, 9) | names
"""A snapshot: one of a scope's history by its number from the newest on, or one by its name."""


class Lockstep(RuleBasedStateMachine):
    """The machine. Derive from it and say how to open your engine."""

    scopes: Bundle[ScopeKey] = Bundle("scopes")
    snapshots: Bundle[Pair] = Bundle("snapshots")
    some_scope = st.just(_KEYS[0]) | scopes
    expected = st.sampled_from([ANY, ANY, ANY, ANY, HEAD, HEAD, None, "stale"]) | snapshots

    def open_backend(self, place: Path) -> Backend:
        """Open the engine under test in a folder; with the same folder again: re-open it."""
        raise NotImplementedError("say how to open your engine: override open_backend")

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory(prefix="holdfast-")
        # Small pages, or programs would have to be long before a listing takes two of them.
        self._small = [
            patch.object(limits, "PAGE_ITEMS_MAX", 4),
            patch.object(limits, "PAGE_STATES_MAX", 3),
        ]
        for each in self._small:
            each.start()
        backend = self.open_backend(Path(self._folder.name))
        self._durable = "durable" in backend.capabilities
        self._indexed = "index" in backend.capabilities
        self._tested, self._oracle = Side(backend), Side(MemoryBackend())
        self._outdated: list[Store] = []
        self._seen = {*_NAMES, _ABSENT}
        self._steps = 0
        self._kept = 0

    def teardown(self) -> None:
        """Close everything and remove the folder."""
        for store in (*self._outdated, self._tested.store, self._oracle.store):
            store.close()
        close_loop()
        for each in self._small:
            each.stop()
        self._folder.cleanup()

    def _do(self, call: Callable[[Store, Its], Any], *, needs_index: bool = False) -> Pair:
        """Make the same call on both sides; both must answer alike."""
        self._steps += 1
        for side in (self._tested, self._oracle):
            side.begin_step(self._steps)
        tested = through(FACES[self._steps % 2], self._tested.store)
        pair = Pair(
            outcome(lambda: drained(call(tested, lambda pair: pair.tested))),
            outcome(lambda: drained(call(self._oracle.store, lambda pair: pair.oracle))),
        )
        if needs_index and not self._indexed and isinstance(pair.tested, Unsupported):
            return pair
        differs = differences(self._tested.plain(pair.tested), self._oracle.plain(pair.oracle))
        assert not differs, "the answers differ: " + "\n".join(differs)
        return pair

    def _at(self, key: ScopeKey, call: Callable[[Scope, Its], Any], **options: bool) -> Pair:
        return self._do(lambda store, its: call(store.scope(*key), its), **options)

    def _id(self, key: ScopeKey, which: int | str) -> str:
        """Return the id that a snapshot chosen by number or by name has, on both sides."""
        if isinstance(which, str):
            return which
        scope = self._oracle.store.scope(*key)
        head = scope.info()
        draft = [] if head is None or head.kept else [head.id]
        found = [*draft, *(info.id for info in scope.history())]
        return found[which % len(found)] if found else _ABSENT

    def _written(self, pair: Pair) -> Pair | MultipleResults[Any]:
        """Remember a snapshot that both have written, if they have."""
        if pair.oracle is None or isinstance(pair.oracle, HoldfastError):
            return multiple()
        self._seen.add(pair.oracle.id)
        return pair

    @invariant()
    def both_show_the_same(self) -> None:
        """See that nothing of what one shows is otherwise in the other, and that it can be."""
        # Mostly the synchronous face, which is quicker: the answers of steps come from both.
        tested = through(FACES[self._steps % 4 == 1], self._tested.store)
        views = [
            look(store, _KEYS, self._seen, indexed=self._indexed)
            for store in (tested, self._oracle.store)
        ]
        plain = [
            {name: _part_by_part(side, shown) for name, shown in view.items()}
            for side, view in zip((self._tested, self._oracle), views, strict=True)
        ]
        self._kept = views[1]["stats"].snapshots
        differs = differences(*plain)
        assert not differs, "what they show differs: " + "\n".join(differs)
        wrong = unsound(views[0])
        assert not wrong, "what they show cannot be: " + "\n".join(wrong)

    # Beginning, and time

    @initialize(target=scopes)
    def name_the_scopes(self) -> MultipleResults[ScopeKey]:
        """Forks will be added to them."""
        return multiple(*_KEYS)

    @initialize(target=snapshots, state=states)
    def save_the_first(self, state: Any) -> Any:
        """There is always one to refer to, though it may be gone."""
        return self._written(self._at(_KEYS[0], lambda scope, its: scope.save(state, id="a")))

    @rule(seconds=st.sampled_from([-60, -0.001, 0.001, 1, 86_400]))
    def set_the_clock(self, seconds: float) -> None:
        """Clocks jump ahead and step back."""
        for side in (self._tested, self._oracle):
            side.now_us += int(seconds * 1_000_000)

    @precondition(lambda self: self._durable)
    @rule(closing=st.booleans())
    def reopen(self, closing: bool) -> None:
        """Open the same place once more: after a close, or as another process would."""
        self._outdated.append(self._tested.store)
        if closing:
            while self._outdated:
                self._outdated.pop().close()
        self._tested.open(self.open_backend(Path(self._folder.name)))

    # Writing

    @rule(target=snapshots, key=some_scope, state=states, count=st.integers(1, 6), facts=facts)
    def grow(self, key: ScopeKey, state: Any, count: int, facts: Any) -> Any:
        """Several in a row, each with a little more."""
        for n in range(count):
            grown = {**state, "n": n} if isinstance(state, dict) else [state] * n
            saved = self._written(self._at(key, lambda s, its, g=grown: s.save(g, **facts)))
        return saved

    @rule(
        target=snapshots,
        key=some_scope,
        state=states,
        id=st.none() | names,
        parent=st.sampled_from([HEAD, HEAD, None, _ABSENT]) | which,
        mode=modes,
        facts=facts,
        age=st.sampled_from([None, None, -_DAY, _DAY, 9 * _DAY]),
        forked_from=st.sampled_from([None, None, SnapshotRef(ScopeKey("x"), "y")]),
        expect=expected,
    )
    def save(
        self, key: ScopeKey, state: Any, mode: Any, facts: Any, expect: Any, **how: Any
    ) -> Any:
        """Anything, in any way."""
        age = how.pop("age")
        how["created_at"] = None if age is None else _START - age
        if isinstance(how["parent"], int | str):
            how["parent"] = self._id(key, how["parent"])
        return self._written(
            self._at(
                key,
                lambda scope, its: scope.save(
                    state, expect=_revision(scope, expect, its), **how, **facts, **mode
                ),
            )
        )

    @rule(key=some_scope, which=which, mode=modes, flips=st.booleans())
    def repeat(self, key: ScopeKey, which: int | str, mode: dict[str, Any], flips: bool) -> None:
        """The same id and body again, or almost."""
        found = self._oracle.store.scope(*key).load(self._id(key, which))
        if found is not None:
            facts: Any = {"id": found.id, "labels": found.labels, "metadata": found.metadata}
            status = "other" if flips else found.status
            self._at(key, lambda s, its: s.save(found.state, status=status, **facts, **mode))

    @rule(
        target=snapshots,
        key=some_scope,
        items=st.lists(plain_values | long_values, max_size=3),
        name=st.sampled_from("mn"),
        keep=st.booleans(),
        facts=facts,
        expect=expected,
    )
    def append(
        self, key: ScopeKey, items: list[Any], name: str, keep: bool, facts: Any, expect: Any
    ) -> Any:
        """To a list, to what is none, and to nothing."""
        return self._written(
            self._at(
                key,
                lambda scope, its: scope.append(
                    name, items, keep=keep, expect=_revision(scope, expect, its), **facts
                ),
            )
        )

    @rule(
        target=snapshots,
        key=some_scope,
        which=which,
        change=st.fixed_dictionaries(
            {}, optional={"state": states, "status": statuses, "labels": labels.filter(bool)}
        ),
        skips=st.sampled_from([False, False, True]),
    )
    def update(self, key: ScopeKey, which: int | str, change: dict[str, Any], skips: bool) -> Any:
        """Whatever may be changed, or nothing."""
        id = self._id(key, which)

        def change_it(snapshot: Snapshot) -> Snapshot | None:
            return None if skips else snapshot.with_(**change)

        return self._written(self._at(key, lambda scope, its: scope.update(id, change_it)))

    @rule(
        target=scopes,
        key=some_scope,
        which=which,
        to=st.none() | sessions,
        scope_id=st.sampled_from([None, None, "main", "fork"]),
        patched=st.sampled_from(["not", "mapped", "by a function", "to null"]),
        labels=labels,
        metadata=metadata,
    )
    def fork(self, key: ScopeKey, which: int | str, patched: str, **how: Any) -> Any:
        """Here or to another session."""
        id = self._id(key, which)
        patch: Any = {
            "not": None,
            "mapped": {"n": 1},
            "by a function": lambda state: [state],
            "to null": lambda state: None,
        }[patched]
        pair = self._at(key, lambda scope, its: scope.fork(id, patch=patch, **how).key)
        return multiple() if isinstance(pair.oracle, HoldfastError) else pair.oracle

    # Deleting

    @rule(key=some_scope, which=which)
    def delete_snapshot(self, key: ScopeKey, which: int | str) -> None:
        """The head, another one, or none."""
        id = self._id(key, which)
        self._at(key, lambda scope, its: scope.delete_snapshot(id))

    @rule(
        key=some_scope,
        keep_last=counts,
        older_than=st.sampled_from([None, timedelta(0), timedelta(milliseconds=1), 2 * _DAY]),
        dry_run=st.booleans(),
    )
    def prune(self, key: ScopeKey, **policy: Any) -> None:
        """By number, by age, by both or by neither."""
        self._at(key, lambda scope, its: scope.prune(**policy))

    @precondition(lambda self: self._kept > _ENOUGH)
    @rule(key=some_scope, session=st.none() | sessions, expect=expected)
    def delete(self, key: ScopeKey, session: str | None, expect: Any) -> None:
        """A whole scope or session, once there is something to lose."""
        if session is None:
            self._at(key, lambda scope, its: scope.delete(expect=_revision(scope, expect, its)))
        else:
            self._do(lambda store, its: store.delete_session(session))

    # Notes

    @rule(
        key=some_scope,
        name=st.sampled_from(_NOTES),
        on=st.none() | which,
        value=plain_values,
        way=st.sampled_from(["value", "function", "skip", "new", "same", "stale", "delete"]),
    )
    def write_note(self, key: ScopeKey, name: str, on: Any, value: Any, way: str) -> None:
        """By value or by function, comparing or not; or delete it."""
        on = None if on is None else self._id(key, on)
        given = {"function": lambda old: [old, value], "skip": lambda old: None}.get(way, value)

        def call(scope: Scope, its: Its) -> Any:
            if way == "delete":
                return scope.delete_note(name, on=on)
            note = scope.note(name, on=on)
            found = None if note is None else note.revision
            expect: Any = {"new": None, "same": found, "stale": "stale"}.get(way, ANY)
            return scope.set_note(name, given, on=on, expect=expect)

        self._at(key, call)

    # Reading: what the invariant does not ask for

    @rule(
        snapshot=snapshots,
        anywhere=st.booleans(),
        limit=counts,
        labels=labels,
        status=st.none() | statuses,
        prefix=st.sampled_from(["", "s", "s/", "t", "\U0010ffff"]),
    )
    def history(self, snapshot: Pair, anywhere: bool, prefix: str, **asked: Any) -> None:
        """Of a scope or across all, behind one that may be gone."""
        scope = snapshot.oracle.scope
        if anywhere:
            self._do(
                lambda store, its: store.history(after=its(snapshot), prefix=prefix, **asked),
                needs_index=True,
            )
            self._do(lambda store, its: store.history(prefix=prefix, **asked), needs_index=True)
        else:
            needs_index = bool(asked["labels"])
            for after in (lambda its: its(snapshot), lambda its: its(snapshot).id):
                self._at(
                    scope,
                    lambda scope, its, after=after: scope.history(after=after(its), **asked),
                    needs_index=needs_index,
                )

    @rule(key=some_scope, a=which, b=which | st.just(_ABSENT), limit=counts, session=sessions)
    def read(self, key: ScopeKey, a: Any, b: Any, limit: int | None, session: str) -> None:
        """By id, one and several; the way up; what changed; sessions and scopes, in part."""
        a, b = self._id(key, a), self._id(key, b)
        self._at(key, lambda scope, its: scope.load(a))
        self._at(key, lambda scope, its: scope.load_many([b, a, b]))
        self._at(key, lambda scope, its: scope.ids(after=a, limit=limit))
        self._at(key, lambda scope, its: scope.ancestors(a))
        self._at(key, lambda scope, its: scope.diff(a, b).to_json_patch())
        self._do(lambda store, its: store.sessions(after="s", prefix="s", limit=limit))
        self._do(lambda store, its: store.scopes(session, kind="graph", prefix="s"))
        self._do(lambda store, its: store.find(a, prefix=session), needs_index=True)

    # Upkeep

    @rule(session=sessions, mends=st.booleans())
    def keep_in_order(self, session: str, mends: bool) -> None:
        """Nothing is wrong with a store that only its verbs have written, and nothing changes."""
        self._do(lambda store, its: store.stats(session))
        self._do(lambda store, its: list(store.stats(session).largest))
        self._do(lambda store, its: store.compact() >= 0)
        self._do(
            lambda store, its: [
                found
                for found in (store.repair() if mends else store.check())
                if found.severity != "info"
            ]
        )


def _revision(scope: Scope, expect: Any, its: Its) -> Any:
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
