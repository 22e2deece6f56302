"""Chapter: programs. Every verb, on the engine and on the model of it in lockstep.

What the model says is not stated again as single cases. The random programs find what nobody
thought of; the directed ones make sure that what is easily got wrong is met in every run.
"""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from limpet import JSON, ScopeKey, SnapshotRef
from limpet.protocol import Backend
from limpet.testing._lockstep import DAY, START, Pair, Twins, revision_of
from limpet.testing.kit import Kit, case
from limpet.testing.stateful import Lockstep

_READS = ("ancestors", "history", "ids", "load", "load_many", "noted_ids", "notes")
_LONG = [f"turn {n} " * 12 for n in range(60)]  # beyond what is always stored whole


def _asked(listing: str, options: dict[str, Any], store: Any, its: Any) -> Any:
    return getattr(store, listing)(**options)


class Both:
    """A scope of both. Each call is compared, and after a write everything that they show."""

    def __init__(self, twins: Twins, key: ScopeKey) -> None:
        self._twins = twins
        self.key = key

    def __getattr__(self, verb: str) -> Any:
        def call(*args: Any, **options: Any) -> Pair:
            def on_one(scope: Any, its: Any) -> Any:
                given = dict(options)
                if "expect" in options:
                    given["expect"] = revision_of(scope, options["expect"], its)
                if isinstance(options.get("after"), Pair):
                    given["after"] = its(options["after"])
                answer = getattr(scope, verb)(*args, **given)
                return answer.key if verb == "fork" else answer

            needs_index = verb == "history" and bool(options.get("labels"))
            pair = self._twins.at(self.key, on_one, needs_index=needs_index)
            if verb not in _READS:
                self._twins.compare([self.key])
            return pair

        return call


class Paired(Kit):
    """The engine and the model, for directed programs."""

    @pytest.fixture
    def twins(self, place: Path, small_pages: int) -> Iterator[Twins]:
        twins = Twins(
            lambda: self.open_program(place),
            ("a", "b", "c", "d", "gone"),
            text_order=self.text_order,
        )
        yield twins
        twins.close()

    @pytest.fixture
    def both(self, twins: Twins) -> Both:
        return Both(twins, ScopeKey("chat-42", "planner"))


class Programs(Kit):
    """The random programs."""

    programs: ClassVar = settings(
        max_examples=12,
        stateful_step_count=30,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    """How many random programs, and how long. Override it for an engine that is slow."""

    def test_random_programs(self, place: Path) -> None:
        folders: dict[Path, Path] = {}

        class Machine(Lockstep):
            text_order = self.text_order

            def open_backend(machine, temporary: Path) -> Backend:  # noqa: N805
                # The folder of a test, since its tests may keep an engine's bytes elsewhere.
                if temporary not in folders:
                    folders[temporary] = place / f"program-{len(folders)}"
                    folders[temporary].mkdir()
                    self.clear()
                return self.open_program(folders[temporary])

        run_state_machine_as_test(Machine, settings=self.programs)


class Verbs(Paired):
    """The directed programs: each verb, with all that is asked of it."""

    @pytest.fixture
    def other(self, twins: Twins) -> Both:
        return Both(twins, ScopeKey("chat-42", "planner", "graph"))

    def test_saves_drafts_and_what_is_only_kept(self, both: Both) -> None:
        """Whom each names as its parent, what is the head, what is in history."""
        both.save({"n": 1}, id="aside", head=False)
        both.save({"n": 2}, id="aside-2", head=False, labels={"b": "1", "a": "2"})
        both.save(3, parent=None, keep=False)
        both.save(4, id="a")
        both.save(5, id="d", keep=False)
        both.load_many(["d", "a", "gone", "a"])
        both.save(6, head=False)
        both.save(7, id="d-2", keep=False, status="paused")
        both.load("d")
        both.delete_snapshot("a")
        both.save(8, id="a")  # a draft named it as its parent, and it is not its own
        both.save(9, id="b", parent="to-come", forked_from=SnapshotRef(ScopeKey("x", "y~z"), "i"))
        both.save(10, id="root", parent=None)
        both.save(11, id="own", parent="own")
        both.save(12, keep=False, head=False)
        for n in range(4):
            both.save({"turns": _LONG[: n * 9]}, keep=False, metadata={"m": n})

    def test_expect_compares_the_head(self, both: Both) -> None:
        """In every verb that takes it; a revision never comes back."""
        first = both.save(1, id="a", expect=None)
        second = both.save(2, id="b", expect=first)
        for stale in (first, None, "0.0.0000000000000000"):
            both.save(3, expect=stale)
            both.save(3, head=False, expect=stale)
            both.save(3, keep=False, expect=stale)
            both.save(3, id="a", overwrite=True, expect=stale)
            both.append("m", [3], expect=stale)
            both.restore("a", expect=stale)
            both.delete(expect=stale)
        both.save(4, id="aside", head=False, expect=second)
        updated = both.update("b", lambda s: s.with_(state={"n": 2}))
        both.save(5, expect=second)
        third = both.append("m", [3], expect=updated)
        both.delete_snapshot("b")
        both.delete_snapshot(third.model.id)
        both.save(6, id="c", expect=third)
        both.delete(expect=first)
        both.save(1, id="a", expect=None)
        both.delete()
        both.delete(expect=None)
        both.save(1, id="a", expect=first)
        both.save(1, id="a", head=False, expect=None)
        both.delete(expect=None)

    def test_the_same_id_again(self, both: Both) -> None:
        """The same body is harmless whatever else is asked; another one needs `overwrite`."""
        facts: dict[str, Any] = {"status": "s", "labels": {"l": "1"}, "metadata": {"m": [1]}}
        both.save(0, id="root")
        both.save(1, id="x", **facts)
        both.save(2, id="y")
        again: list[dict[str, Any]] = [
            {}, {"expect": None}, {"head": False}, {"keep": False}, {"overwrite": True},
            {"parent": "root"}, {"created_at": START},
        ]  # fmt: skip
        for options in again:
            both.save(1, id="x", **facts, **options)
        others: list[dict[str, Any]] = [
            {"state": 1.0}, {"state": True}, {"parent": None}, {"parent": "y"}, {"status": "t"},
            {"labels": {"l": "2"}}, {"labels": None}, {"metadata": {"m": [1.0]}}, {"metadata": {}},
            {"state": 2, "expect": "0.0.0000000000000000"},
        ]  # fmt: skip
        for options in others:
            both.save(**{"state": 1, "id": "x", **facts, **options})
        both.save({"a": 1, "b": -0.0}, id="z")
        both.save({"b": -0.0, "a": 1}, id="z")
        both.save({"a": 1, "b": 0.0}, id="z")
        both.save("new", id="x", overwrite=True, status="edited", created_at=START - 9 * DAY)
        both.save("newer", id="x", overwrite=True, parent="other", labels={"k": ""})
        both.save("root", id="x", overwrite=True, parent=None, head=False)
        both.save("first", id="new", overwrite=True)
        both.delete_snapshot("x")
        both.save("again", id="x")

    def test_a_draft_again(self, both: Both) -> None:
        """Its id is taken while it is the head; saved again to be kept, it is promoted."""
        both.save(0, id="a")
        for options in ({}, {"head": False}):
            both.save(1, id="d", keep=False)
            both.save(1, id="d", keep=False)
            both.save(2, id="d", keep=False)
            both.save(2, id="d")
            both.save(2, id="d", keep=False, overwrite=True, labels={"l": "1"})
            both.save(2, id="d", labels={"l": "1"}, expect=None)
            both.save(2, id="d", labels={"l": "1"}, **options)
            both.history(labels={"l": "1"})
            both.save(2, id="d", keep=False, labels={"l": "1"})
            both.save(3, id="e", keep=False)
            both.save(4, id="e", overwrite=True)
            both.delete_snapshot("d")
            both.delete_snapshot("e")
        both.save(5, id="f", keep=False)
        both.save(6, id="g")
        both.save(7, id="f")

    def test_append_goes_on_with_the_head(self, both: Both) -> None:
        both.save({"m": ["old"]}, id="aside", head=False)
        both.append("m", [1], status="waiting", labels={"l": "1"}, metadata={"x": 1})
        both.append("other", [])
        both.append("m", [2.0, {"m": [2**70]}], keep=False)
        both.append("m", [], status="")
        both.append("m", [3])
        for key in ("", '"', "\\", "\0", "a/b", "é", "\U0001f980", "__proto__"):
            both.append(key, [key])
            both.append(key, [1], keep=False)
        states: list[JSON] = [None, 1, "text", [1], {"m": None}, {"m": {}}, {"m": "text"}]
        for state in states:
            both.save(state, keep=False)
            both.append("m", [1])
            both.append("m", [1], expect=None)

    def test_update_replaces_in_place(self, both: Both) -> None:
        for each in "abc":
            both.save(each, id=each, labels={"run": "1"}, status="running", metadata={"m": 1})
        both.save("d", id="d", keep=False)
        both.update("a", lambda s: s.with_(state={"new": _LONG}))
        both.update("a", lambda s: s.with_(labels={"run": "2"}, status="done"))
        both.update("b", lambda s: s.with_(labels={}))
        both.update("b", lambda s: s)
        both.update("c", lambda s: None)
        both.update("d", lambda s: s.with_(state=2))
        both.update("gone", lambda s: s)
        for labels in ({"run": "1"}, {"run": "2"}):
            both.history(labels=labels)
        both.history(status="running")
        both.save("e", id="e")
        both.update("d", lambda s: s)
        both.update("e", lambda s: s.with_(metadata={}))
        for n in range(8):  # each is stored as what is new since the one before
            both.save({"turns": [*_LONG, *range(n)]}, id=f"{n}")
        for n in (2, 5, 7, 4):
            both.update(f"{n}", lambda s: s.with_(state={"turns": [s.id]}))
            both.save({"n": n}, id=f"{n - 1}", overwrite=True)

    def test_deletion_uncovers_the_newest_kept(self, both: Both, other: Both) -> None:
        """Only the last saved one, whatever its parent; nothing else changes."""
        other.save(0, id="a")
        for n in range(9):
            both.save({"turns": _LONG[: n * 4]}, id=f"{n}", labels={"l": "1"})
        both.save("aside", id="aside", head=False, parent=None)
        both.save("draft", id="draft", keep=False)
        for doomed in ("draft", "aside", "8", "8", "3", "4", "never", "0"):
            both.delete_snapshot(doomed)
        both.history(labels={"l": "1"})
        last = both.append("m", [1])
        both.delete_snapshot("7")
        both.delete_snapshot(last.model.id)
        both.delete()
        both.delete()
        both.save(1, id="a")
        both.append("m", [1])

    def test_notes_live_and_go_with_their_ids(self, both: Both, other: Both) -> None:
        """Of the scope, on a snapshot, on an id that has none; each by its own revision."""
        head = both.save(1, id="a")
        other.set_note("n", "other")
        for on in (None, "a", "b", "gone"):
            for name in ("n", "A", "é", "\U0001f980"):
                both.set_note(name, {"on": on, "x": 1.0}, on=on)
        both.notes(on=["gone", "nothing", "a", "gone"])
        both.set_note("n", 1, on="x" * 400)
        for after in ("", "a", "ax", "zz"):
            both.noted_ids(after=after, limit=2)
        first = both.set_note("n", None)
        both.set_note("n", 2, expect=None)
        both.set_note("n", 2, expect=head)
        both.set_note("new", 2, expect=first)
        both.set_note("n", 2, on="a", expect=first)
        second = both.set_note("n", 2, expect=first)
        both.set_note("n", lambda value: [value], expect=first)
        both.set_note("n", lambda value: [value])
        both.set_note("n", lambda value: None)
        both.set_note("m", lambda value: [value], on="c", expect=None)
        both.delete_note("n", on="a")
        both.delete_note("n", on="a")
        both.save(3, id="a", overwrite=True)
        both.save(2, id="b", keep=False)
        both.save(4)
        both.delete_snapshot("b")  # a draft that was replaced: its notes are still there
        both.delete_snapshot("a")
        both.delete_note("n")
        both.set_note("n", 1, expect=second)
        both.set_note("n", 1, expect=None)
        both.delete()
        other.delete_note("n")

    def test_what_holds_nothing_is_not_listed(self, twins: Twins) -> None:
        """Only kept, a draft, a note, a note on an id: each is enough for a scope to be there."""
        keys = [ScopeKey("s", "b", "graph"), ScopeKey("s", "a"), ScopeKey("t"), ScopeKey("s1")]
        scopes = [Both(twins, key) for key in keys]
        scopes[0].save(1, id="x", head=False)
        scopes[1].save(1, id="x", keep=False)
        scopes[2].set_note("n", 1)
        scopes[3].set_note("n", 1, on="later")
        for asked in ({"kind": "graph"}, {"session_id": "s"}, {"prefix": "s"}, {"session_id": "u"}):
            twins.do(partial(_asked, "scopes", asked))
        paged: list[dict[str, Any]] = [
            {"after": "s", "limit": 1}, {"prefix": "s1"}, {"limit": 0}, {"after": "r"},
        ]  # fmt: skip
        for asked in paged if self.text_order else []:
            twins.do(partial(_asked, "sessions", asked))
        for scope in scopes:
            scope.delete_snapshot("x")
            scope.delete_note("n")
            scope.delete_note("n", on="later")
        scopes[1].save(1)
        twins.do(lambda store, its: store.delete_session("s"))
        twins.compare(keys)

    def test_listings_go_on_after_a_cursor(self, both: Both) -> None:
        """At any limit, also on the edge of a page; also behind what is deleted since."""
        saved = [both.save(n, id=f"{n}", status="odd" if n % 2 else "") for n in range(7)]
        both.delete_snapshot("4")
        both.update("5", lambda s: s.with_(labels={"l": "1"}))
        both.update("6", lambda s: s.with_(labels={"l": "1", "k": ""}))
        for labels in ({"l": "1"}, {"l": "1", "k": ""}, {"k": "", "x": "1"}, {"x": ""}):
            both.history(labels=labels)
            both.history(labels=labels, limit=1, status="", after=saved[6])
        for limit in (None, 0, 1, 3, 4, 6, 100):
            both.history(limit=limit)
            both.history(limit=limit, after=saved[5])
            both.history(limit=limit, after=saved[4], status="odd")
            if self.text_order:
                both.ids(limit=limit, after="1")
        for unknown in ("4", "never"):
            both.history(after=unknown)
        both.history(after="3", limit=2)
        both.ids(after="zz")
        both.save(9, id="4")
        both.history(after=saved[4])

    def test_branches(self, both: Both, other: Both) -> None:
        """Parents are statements: they may be gone, still to come, elsewhere, or in a circle."""
        parents = {
            "root": None, "left": "root", "right": "root", "left-1": "left", "left-2": "left",
            "early": "later", "a": "c", "b": "a", "c": "b",
        }  # fmt: skip
        for each, parent in parents.items():
            both.save({"of": each}, id=each, parent=parent)
        other.save(1, id="x", parent="root")
        both.save(2, id="draft", keep=False, parent="left-1")
        for gone in ("left", "root", "left-2"):
            for start in (*parents, "draft", "no"):
                both.ancestors(start)
            both.delete_snapshot(gone)
        both.save(3, id="later", parent="right")
        both.save(4, id="left", parent=None)
        both.save(5, id="b", parent=None, overwrite=True)
        for start in ("early", "left-1", "a"):
            both.ancestors(start)
        both.restore("right", labels={"l": "1"})
        both.save(6, id="draft", keep=False)
        both.restore("draft")
        both.restore("draft")

    def test_long_branches(self, both: Both, twins: Twins) -> None:
        """Lines and circles of several pages; also parents that were saved after their children."""
        line = [f"{n}" for n in range(10)]
        orders = (line, line[::-1], [*line[::2], *reversed(line[1::2])])
        for at, order in enumerate(orders):
            for each in order:
                parent = f"{at}/{int(each) + 1}" if each != line[-1] else None
                twins.save(both.key, each, id=f"{at}/{each}", parent=parent)
            both.ancestors(f"{at}/0")
        for length in (2, 3, 4, 10):
            circle = [f"{length}-{n}" for n in range(length)]
            for at, each in enumerate(circle):
                twins.save(both.key, at, id=each, parent=circle[at - 1])
            twins.save(both.key, "tail", id=f"{length}-tail", parent=circle[length // 2])
            for each in (*circle, f"{length}-tail"):
                both.ancestors(each)

    def test_forks(self, both: Both, twins: Twins) -> None:
        """They begin with a copy, under a name that is free, and live on their own."""
        both.save({"z": 1, "deep": {"x": 1}, "a": 3}, id="a", status="paused", labels={"l": "1"})
        both.save({"turns": _LONG}, id="b", metadata={"m": 1})
        both.save(3, id="draft", keep=False)
        both.set_note("n", 1, on="a")
        made = [
            both.fork("a"),
            both.fork("draft", scope_id="of a draft"),
            both.fork("a", scope_id="b", patch={"new": None, "deep": {"y": 9}}, labels={}),
            both.fork("b", to="other", metadata={"new": []}),
            both.fork("b", to="other", scope_id="null", patch=lambda state: None),
        ]
        both.fork("draft", patch={"a": 1})
        both.fork("no", to="other", scope_id="x")
        for taken in ("planner", "b", "of a draft"):
            both.fork("a", scope_id=taken)
        both.fork("a", to="other")
        for pair in made:
            fork = Both(twins, pair.model)
            fork.save({"on": "its own"}, keep=False)
            fork.append("m", [1])
            again = fork.fork(f"{twins.id_of(fork.key, 0)}")
            if pair is made[0]:
                Both(twins, again.model).save(1)
        noted = Both(twins, ScopeKey("chat-42", "noted"))
        noted.set_note("n", 1, on="later")
        both.fork("a", scope_id="noted")
        noted.delete_note("n", on="later")
        both.fork("a", scope_id="noted")
        both.update("a", lambda s: s.with_(state="changed"))
        both.delete()
        twins.do(lambda store, its: store.delete_session("chat-42"))
        twins.do(lambda store, its: store.compact() >= 0)
        twins.compare()

    def test_forks_get_names(self, twins: Twins) -> None:
        """A suffix is replaced, and a long name makes room for one."""
        for name in ("n" * 512, "~abcdefgh", "x~toolongname", "x~ABCDEFGH", "x~abcdefg\n"):
            key = ScopeKey("s", name, "graph")
            twins.save(key, 1, id="a")
            for to in ("s", "t"):
                made = twins.at(key, lambda scope, its, to=to: scope.fork("a", to=to).key)  # type: ignore[misc]
                twins.at(made.model, lambda scope, its: scope.fork(scope.info().id).key)
        twins.compare()

    def test_prunes(self, twins: Twins) -> None:
        """What is outside `keep_last` and also older than `older_than` goes; never the head."""
        policies: list[dict[str, Any]] = [
            *({"keep_last": n} for n in (0, 1, 4, 5, 99)),
            *({"older_than": age} for age in (timedelta(0), 5 * DAY, 9 * DAY, timedelta.max)),
            {"keep_last": 2, "older_than": 5 * DAY},
            {"keep_last": 9, "older_than": timedelta(0)},
            {"keep_last": 0, "older_than": 999 * DAY},
        ]
        for n, policy in enumerate(policies):
            with case(f"{policy}"):
                scope = Both(twins, ScopeKey("s", f"{n}"))
                for at, age in enumerate((1, 9, 0, 4000, 9, 5, 1)):
                    options = {"id": f"{at}", "created_at": START - age * DAY, "head": at != 6}
                    twins.save(scope.key, "x" * at, **options)
                    twins.set_note(scope.key, "n", at, on=f"{at}")
                edited = {"id": "4", "overwrite": True, "created_at": START}
                twins.save(scope.key, "its age stays", **edited)
                scope.update("1", lambda s: s.with_(state="and this one's"))
                if n % 2:
                    draft = {"id": "draft", "keep": False, "created_at": START - 99 * DAY}
                    twins.save(scope.key, "draft", **draft)
                scope.prune(**policy, dry_run=True)
                scope.prune(**policy)
                scope.delete()
        headless = Both(twins, ScopeKey("s", "headless"))
        for n in range(5):
            headless.save(n, head=False)
        headless.prune(keep_last=1)
        headless.prune(keep_last=0)

    def test_redactions(self, both: Both, twins: Twins) -> None:
        """By a path or a function, in the scope and all that are its forks in the session."""
        for n in range(6):
            both.save(
                {"said": ["secret" if n % 2 else n, {"a/b": n}], "n": _LONG[: n * 7]},
                id=f"{n}", status="secret", labels={"x": "secret", "y": "1"},
                metadata={"m": {"of": "secret"}},
            )  # fmt: skip
        both.save({"draft": "secret"}, id="d", keep=False)
        both.set_note("n/n", {"by": "secret"}, on="3")
        both.set_note("o", "secret", on="never saved")
        fork = Both(twins, both.fork("3").model)
        fork.save({"said": "secret"})
        Both(twins, both.fork("3", to="elsewhere").model).save({"said": ["secret"]})
        for what in ("/said/1/a~1b", "metadata/m/of", "labels/y", "status", "notes/n~1n/by", "/no"):
            both.redact(what, replacement="gone")
        fork.redact(lambda path, value: value == "secret", replacement={"why": [1]})
        both.redact(lambda path, value: isinstance(value, dict) and "m" in value, replacement=[1])
        both.append("m", ["secret"])
        both.redact("")
