"""The stateful test: random programs of every verb, on an engine and the model in lockstep.

After every step both must have answered alike (the same values, or an error of the same class) and
must show the same: every history, head, state, note, leaf and listing. In between the engine is
re-opened, and both APIs are used. To test an engine of your own::

    from hypothesis import settings
    from hypothesis.stateful import run_state_machine_as_test
    from limpet.testing.stateful import Lockstep

    class MyEngine(Lockstep):
        def open_backend(self, place):
            return MyBackend(place / "x")

    def test_my_engine_does_what_the_model_says():
        run_state_machine_as_test(MyEngine, settings=settings(max_examples=50, deadline=None))

`place` is an empty folder; it is passed again to re-open what was stored there. Time and chance are
the same for both and come from the program alone, so that a failure replays exactly as printed.
"""

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
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

from limpet import ANY, HEAD, LimpetError, Scope, ScopeKey, Snapshot, SnapshotInfo, SnapshotRef
from limpet.core import limits
from limpet.protocol import Backend
from limpet.testing._lockstep import ABSENT, DAY, START, Its, Pair, Twins, revision_of

# Few of everything, so that steps of a program use the same scopes and ids.
_KEYS: Final = (ScopeKey("s"), ScopeKey("s", "main", "graph"), ScopeKey("s/1"))
_NAMES: Final = ("a", "b", "c", "\U0001f980/é")
_ENOUGH: Final = 12  # snapshots, before whole scopes and sessions are deleted
_OLD: Final = START - 9 * DAY
_FIRST: Final[tuple[tuple[ScopeKey, dict[str, Any]], ...]] = (
    (_KEYS[0], {"id": "a", "created_at": _OLD, "labels": {"l": "1"}}),
    (_KEYS[0], {"id": "b", "status": "running"}),
    (_KEYS[0], {"id": "c", "parent": "a", "head": False}),
    (_KEYS[1], {"id": "a"}),
    (_KEYS[1], {"id": "b", "keep": False, "labels": {"l": "1"}}),
    (_KEYS[2], {"id": "a", "created_at": _OLD, "metadata": {"m": 1.0}}),
    (_KEYS[2], {"id": "c", "head": False, "parent": None}),
)
_FIRST_NOTES: Final = ((_KEYS[0], "a"), (_KEYS[0], None), (_KEYS[1], "b"), (_KEYS[2], "b"))

names = st.sampled_from(_NAMES)
which: st.SearchStrategy[int | str] = st.integers(0, 9) | names
"""A snapshot: one of a scope by its number from the newest on, or one by its id."""
plain_values: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, 1, 1.0, -0.0, 2**70, "", "\0", "text", [], [1], {}, {"z": 1, "a": None}]
)
# Long enough to be compressed, and to differ from one another by little; some from 20 KB to 2 KB.
long_values = st.sampled_from([*range(1, 41), *(220,) * 8]).map(
    lambda count: [f"turn {n} " * 12 for n in range(count)]
)
states = (
    st.dictionaries(st.sampled_from("mnk"), plain_values | long_values, max_size=3) | plain_values
)
labels: st.SearchStrategy[dict[str, str] | None] = st.sampled_from(
    [None, {}, {"l": "1"}, {"l": "2"}, {"l": "1", "k": ""}]
)
metadata: st.SearchStrategy[dict[str, Any] | None] = st.sampled_from(
    [None, {}, {"m": 1.0}, {"z": [None], "a": 2**70}]
)
statuses = st.sampled_from(["completed", "running", ""])
facts = st.fixed_dictionaries({"status": statuses, "labels": labels, "metadata": metadata})
modes: st.SearchStrategy[dict[str, bool]] = st.sampled_from(
    [{}, {}, {"keep": False}, {"head": False}, {"overwrite": True}, {"head": False, "keep": False}]
)
expectations: st.SearchStrategy[Any] = st.sampled_from(
    [ANY, ANY, ANY, ANY, HEAD, HEAD, None, "0.0.stale"]
)
sessions = st.sampled_from(["s", "s/1", "t"])
counts = st.none() | st.integers(0, 9)


class Lockstep(RuleBasedStateMachine):
    """The machine. Derive from it and say how to open your engine."""

    scopes: Bundle[ScopeKey] = Bundle("scopes")
    snapshots: Bundle[Pair] = Bundle("snapshots")
    some_scope = st.just(_KEYS[0]) | scopes
    expected = expectations | expectations | expectations | snapshots
    text_order = True  # False for an engine that documents other orders, of names and across scopes

    def open_backend(self, place: Path) -> Backend:
        """Open the engine under test in a folder; with the same folder again: re-open it."""
        raise NotImplementedError("say how to open your engine: override open_backend")

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory(prefix="limpet-")
        # Small pages, or programs would have to be long before a listing takes two of them.
        self._small = [
            patch.object(limits, "PAGE_ITEMS_MAX", 4),
            patch.object(limits, "PAGE_STATES_MAX", 3),
        ]
        for each in self._small:
            each.start()
        place = Path(self._folder.name)
        self._twins = Twins(
            lambda: self.open_backend(place),
            _NAMES,
            text_order=self.text_order,
        )

    def teardown(self) -> None:
        self._twins.close()
        for each in self._small:
            each.stop()
        self._folder.cleanup()

    @invariant()
    def both_show_the_same(self) -> None:
        self._twins.compare(_KEYS)

    # Beginning, and time

    @initialize(target=scopes)
    def name_the_scopes(self) -> MultipleResults[ScopeKey]:
        """Forks will be added to them."""
        return multiple(*_KEYS)

    @initialize(target=snapshots, states=st.lists(states, min_size=1, max_size=len(_FIRST)))
    def fill(self, states: list[Any]) -> MultipleResults[Pair]:
        """Begin with some of everything, so that short programs have something to change."""
        saved = []
        for at, (key, options) in enumerate(_FIRST):
            saved.append(self._twins.save(key, states[at % len(states)], **options))
        for key, on in _FIRST_NOTES:
            self._twins.set_note(key, "n", at, on=on)
        return _written(*saved)

    @rule(seconds=st.sampled_from([-60, -0.001, 0.001, 1, 86_400]))
    def set_the_clock(self, seconds: float) -> None:
        self._twins.set_clock(int(seconds * 1_000_000))

    @precondition(lambda self: self._twins.durable)
    @rule(closing=st.booleans())
    def reopen(self, closing: bool) -> None:
        self._twins.reopen(closing=closing)

    @rule()
    def use_earlier(self) -> None:
        """Another process goes on."""
        self._twins.use_earlier()

    # Writing

    @rule(target=snapshots, key=some_scope, state=states, count=st.integers(1, 6), facts=facts)
    def grow(self, key: ScopeKey, state: Any, count: int, facts: Any) -> MultipleResults[Pair]:
        saved = []
        for n in range(count):
            grown = {**state, "n": n} if isinstance(state, dict) else [state] * n
            saved.append(self._twins.save(key, grown, **facts))
        return _written(*saved)

    @rule(
        target=snapshots,
        key=some_scope,
        state=states,
        id=st.none() | names,
        parent=st.sampled_from([HEAD, HEAD, None, ABSENT]) | which,
        mode=modes,
        facts=facts,
        age=st.sampled_from([None, None, -DAY, DAY, 9 * DAY]),
        forked_from=st.sampled_from([None, None, SnapshotRef(ScopeKey("x"), "y")]),
        expect=expected,
    )
    def save(
        self, key: ScopeKey, state: Any, parent: Any, age: timedelta | None, expect: Any, **how: Any
    ) -> MultipleResults[Pair]:
        options: dict[str, Any] = {
            **how.pop("mode"),
            **how.pop("facts"),
            **how,
            "parent": self._twins.id_of(key, parent) if isinstance(parent, int) else parent,
            "created_at": None if age is None else START - age,
        }

        def call(scope: Scope, its: Its) -> SnapshotInfo:
            return scope.save(state, expect=revision_of(scope, expect, its), **options)

        return _written(self._twins.at(key, call))

    @rule(key=some_scope, which=which, mode=modes, flips=st.booleans())
    def repeat(self, key: ScopeKey, which: int | str, mode: dict[str, Any], flips: bool) -> None:
        """The same id and body again, or almost."""
        id = self._twins.id_of(key, which)
        found = self._twins.at(key, lambda scope, its: scope.load(id)).model
        if found is not None:
            options = {"id": id, "labels": found.labels, "metadata": found.metadata, **mode}
            status = "other" if flips else found.status
            self._twins.save(key, found.state, status=status, **options)

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
        self, key: ScopeKey, name: str, items: list[Any], expect: Any, facts: Any, keep: bool
    ) -> MultipleResults[Pair]:
        def call(scope: Scope, its: Its) -> SnapshotInfo:
            revision = revision_of(scope, expect, its)
            return scope.append(name, items, expect=revision, keep=keep, **facts)

        return _written(self._twins.at(key, call))

    @rule(
        target=snapshots,
        key=some_scope,
        which=which,
        change=st.fixed_dictionaries(
            {}, optional={"state": states, "status": statuses, "labels": labels.filter(bool)}
        ),
        skips=st.sampled_from([False, False, True]),
    )
    def update(
        self, key: ScopeKey, which: int | str, change: dict[str, Any], skips: bool
    ) -> MultipleResults[Pair]:
        id = self._twins.id_of(key, which)

        def change_it(snapshot: Snapshot) -> Snapshot | None:
            return None if skips else snapshot.with_(**change)

        return _written(self._twins.at(key, lambda scope, its: scope.update(id, change_it)))

    @rule(
        target=scopes,
        key=some_scope,
        which=which,
        to=st.none() | sessions,
        scope_id=st.sampled_from([None, None, "main", "fork"]),
        patched=st.sampled_from(["not", "not", "by a mapping", "by a function", "to null"]),
        labels=labels,
        metadata=metadata,
    )
    def fork(
        self, key: ScopeKey, which: int | str, patched: str, **how: Any
    ) -> MultipleResults[ScopeKey]:
        id = self._twins.id_of(key, which)
        patch: Any = {
            "not": None,
            "by a mapping": {"n": 1},
            "by a function": lambda state: [state],
            "to null": lambda state: None,
        }[patched]
        made = self._twins.at(key, lambda scope, its: scope.fork(id, patch=patch, **how).key)
        return multiple() if isinstance(made.model, LimpetError) else multiple(made.model)

    # Deleting

    @rule(key=some_scope, which=which)
    def delete_snapshot(self, key: ScopeKey, which: int | str) -> None:
        id = self._twins.id_of(key, which)
        self._twins.at(key, lambda scope, its: scope.delete_snapshot(id))

    @rule(
        key=some_scope,
        keep_last=st.none() | st.integers(0, 4),
        older_than=st.sampled_from([None, timedelta(0), timedelta(milliseconds=1), 2 * DAY]),
        dry_run=st.sampled_from([False, False, True]),
    )
    def prune(self, key: ScopeKey, **policy: Any) -> None:
        self._twins.at(key, lambda scope, its: scope.prune(**policy))

    @rule(
        key=some_scope,
        what=st.sampled_from(
            ["", "/m", "/m/0", "/k", "metadata/m", "labels/l", "status", "notes/n"]
        )
        | plain_values.map(lambda sought: lambda path, value: repr(value) == repr(sought)),
        replacement=st.sampled_from([None, "x", {"x": 1}]),
    )
    def redact(self, key: ScopeKey, **asked: Any) -> None:
        self._twins.at(key, lambda scope, its: scope.redact(**asked))

    @precondition(lambda self: self._twins.snapshots > _ENOUGH)
    @rule(key=some_scope, session=st.none() | sessions, expect=expected)
    def delete(self, key: ScopeKey, session: str | None, expect: Any) -> None:
        if session is not None:
            self._twins.do(lambda store, its: store.delete_session(session))
        else:
            self._twins.at(
                key, lambda scope, its: scope.delete(expect=revision_of(scope, expect, its))
            )

    # Notes

    @rule(
        key=some_scope,
        name=st.sampled_from("nm"),
        where=st.none() | which,
        value=plain_values,
        way=st.sampled_from(["value", "function", "skip", "new", "same", "stale", "delete"]),
    )
    def write_note(
        self, key: ScopeKey, name: str, where: int | str | None, value: Any, way: str
    ) -> None:
        on = None if where is None else self._twins.id_of(key, where)
        given = {"function": lambda old: [old, value], "skip": lambda old: None}.get(way, value)

        def call(scope: Scope, its: Its) -> Any:
            if way == "delete":
                return scope.delete_note(name, on=on)
            note = scope.note(name, on=on)
            found = None if note is None else note.revision
            expect: Any = {"new": None, "same": found, "stale": "0.stale"}.get(way, ANY)
            return scope.set_note(name, given, on=on, expect=expect)

        self._twins.at(key, call)

    # Reading: what the invariant does not ask for

    @rule(
        last=snapshots,
        by=st.sampled_from(["nothing", "info", "id"]),
        limit=counts,
        labels=st.none() | labels,
        status=st.none() | statuses,
    )
    def history(self, last: Pair, by: str, **asked: Any) -> None:
        def call(scope: Scope, its: Its) -> Any:
            after = {"nothing": None, "info": its(last), "id": its(last).id}[by]
            return scope.history(after=after, **asked)

        self._twins.at(last.model.scope, call, needs_index=bool(asked["labels"]))

    @rule(
        last=st.none() | snapshots,
        limit=counts,
        labels=st.none() | labels,
        status=st.none() | statuses,
        prefix=st.sampled_from(["", "", "s", "s/", "t", "\U0010ffff"]),
    )
    def history_of_all(self, last: Pair | None, **asked: Any) -> None:
        if not self.text_order:
            return
        self._twins.do(
            lambda store, its: store.history(after=None if last is None else its(last), **asked),
            needs_index=True,
        )

    @rule(key=some_scope, first=which, second=which, limit=counts, session=sessions)
    def read(
        self, key: ScopeKey, first: int | str, second: int | str, limit: int | None, session: str
    ) -> None:
        a, b = self._twins.id_of(key, first), self._twins.id_of(key, second)
        self._twins.at(key, lambda scope, its: scope.load_many([b, ABSENT, a, b]))
        self._twins.at(key, lambda scope, its: scope.ancestors(a))
        self._twins.at(key, lambda scope, its: scope.diff(a, b).to_json_patch())
        if not self.text_order:
            return
        self._twins.at(key, lambda scope, its: scope.ids(after=a, limit=limit))
        self._twins.at(key, lambda scope, its: scope.noted_ids(after=a, limit=limit))
        self._twins.do(lambda store, its: store.sessions(after="s", prefix="s", limit=limit))
        self._twins.do(lambda store, its: store.scopes(session, kind="graph", prefix="s"))
        self._twins.do(lambda store, its: store.find(a, prefix=session), needs_index=True)

    # Upkeep

    @rule(session=sessions, mends=st.booleans())
    def keep_in_order(self, session: str, mends: bool) -> None:
        """Nothing is wrong with a store that only its verbs have written, and nothing changes."""
        self._twins.do(lambda store, its: store.stats(session))
        self._twins.do(lambda store, its: store.compact() >= 0)
        self._twins.do(
            lambda store, its: [
                found
                for found in (store.repair() if mends else store.check())
                if found.severity != "info"
            ]
        )


def _written(*pairs: Pair) -> MultipleResults[Pair]:
    """Return those of the answers that are snapshots, to be referred to later."""
    return multiple(*(pair for pair in pairs if isinstance(pair.model, SnapshotInfo)))
