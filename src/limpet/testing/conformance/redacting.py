"""Chapter: `redact`. Content is replaced everywhere, and nothing else changes."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from limpet import JSON, Conflict, InvalidInput, Redacted, Scope, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import (
    Kit,
    assert_labelled,
    names,
    present,
    refused,
    states,
    unchanged,
)


def _is_secret(path: str, value: JSON) -> bool:
    return isinstance(value, str) and "secret" in value


def _see_all(scope: Scope) -> list[object]:
    return states(scope.load_many(names(scope.history())))


class Redacting(Kit):
    """`redact` by a path, and by a function."""

    def test_a_path_is_replaced_in_every_snapshot(self, scope: Scope, small_pages: int) -> None:
        for n in range(8):
            scope.save({"said": [f"secret {n}", {"a/b": n}], "n": n}, id=f"{n}", status="s")
        before = list(scope.history())

        assert scope.redact("/said/0") == Redacted(8, 0)

        assert _see_all(scope) == [{"said": [None, {"a/b": n}], "n": n} for n in range(8)][::-1]
        for old, new in zip(before, scope.history(), strict=True):
            assert new.revision != old.revision
            again = replace(old, revision=new.revision, updated_at=new.updated_at, size=new.size)
            assert new == again
        assert scope.redact("/said/0") == Redacted(0, 0)
        assert scope.redact("/said/1/a~1b", replacement={"why": [1]}) == Redacted(8, 0)
        assert present(scope.load()).state["said"] == [None, {"a/b": {"why": [1]}}]
        assert scope.redact("", replacement={}) == Redacted(8, 0)
        assert _see_all(scope) == [{}] * 8

    def test_only_what_has_it_changes(self, scope: Scope) -> None:
        for n in range(40):
            scope.save({"n": n, "of": "secret" if n % 9 == 4 else ["x" * n]}, id=f"{n:02}")
        revisions = {info.id: info.revision for info in scope.history()}

        assert scope.redact(_is_secret, replacement="gone") == Redacted(4, 0)

        changed = {i.id for i in scope.history() if i.revision != revisions[i.id]}
        assert changed == {"04", "13", "22", "31"}
        expected = [{"n": n, "of": "gone" if n % 9 == 4 else ["x" * n]} for n in range(40)]
        assert _see_all(scope) == expected[::-1]
        scope.append("more", [1])
        assert present(scope.load()).state == {**expected[-1], "more": [1]}

    def test_a_function_is_asked_about_everything(self, scope: Scope, backend: Backend) -> None:
        scope.save(
            {"a": ["a secret"], "secret": 1},
            id="a",
            status="secret",
            labels={"x": "secret", "y": "fine"},
            metadata={"m": {"of": "secret"}},
        )
        scope.save({"draft": "secret"}, keep=False)
        scope.set_note("n/n", {"by": "secret"})
        scope.set_note("o", "secret", on="a")
        scope.set_note("p", "secret", on="never saved")
        asked: list[str] = []

        def is_secret(path: str, value: JSON) -> bool:
            asked.append(path)
            return _is_secret(path, value)

        assert scope.redact(is_secret) == Redacted(2, 3)

        kept = present(scope.load("a"))
        assert (kept.state, kept.status) == ({"a": [None], "secret": 1}, "")
        assert (kept.labels, kept.metadata) == ({"x": "", "y": "fine"}, {"m": {"of": None}})
        head = present(scope.load())
        assert (head.state, head.kept) == ({"draft": None}, False)
        assert present(scope.note("n/n")).value == {"by": None}
        assert present(scope.note("o", on="a")).value is None
        assert present(scope.note("p", on="never saved")).value is None
        assert_labelled(backend, scope, {"x": "secret"}, [])
        assert_labelled(backend, scope, {"y": "fine"}, ["a"])
        assert {"", "/a", "/a/0", "/secret", "/draft", "status", "labels/x"} <= set(asked)
        assert {"metadata/m", "metadata/m/of", "notes/n~1n", "notes/n~1n/by"} <= set(asked)
        assert asked.index("/a") < asked.index("/a/0")

    def test_paths_lead_everywhere(self, scope: Scope) -> None:
        scope.save({"m": 1}, id="a", status="s", labels={"l": "1"}, metadata={"m": {"n": 1}})
        scope.set_note("n", {"m": 1})

        assert scope.redact("metadata/m/n") == Redacted(1, 0)
        assert scope.redact("labels/l", replacement="x") == Redacted(1, 0)
        assert scope.redact("status") == Redacted(1, 0)
        assert scope.redact("notes/n/m") == Redacted(0, 1)
        assert scope.redact("/none") == Redacted(0, 0)

        found = present(scope.load())
        assert (found.state, found.status) == ({"m": 1}, "")
        assert (found.labels, found.metadata) == ({"l": "x"}, {"m": {"n": None}})
        assert present(scope.note("n")).value == {"m": None}

    def test_forks_are_redacted_with_their_origin(self, store: Store, scope: Scope) -> None:
        scope.save({"of": "secret", "n": 1}, id="a")
        fork = scope.fork("a")
        fork.save({"of": "secret", "n": 2})
        named = fork.fork(next(iter(fork.ids())), scope_id="named", patch={"n": 3})
        copy = scope.fork("a", to="another session")
        other = store.scope(scope.session_id, "other")
        other.save({"of": "secret"})

        assert named.redact("/of") == Redacted(4, 0)

        assert _see_all(scope) == [{"of": None, "n": 1}]
        assert _see_all(fork) == [{"of": None, "n": 2}, {"of": None, "n": 1}]
        assert _see_all(named) == [{"of": None, "n": 3}]
        assert _see_all(copy) == [{"of": "secret", "n": 1}]
        assert _see_all(other) == [{"of": "secret"}]

    def test_what_is_saved_meanwhile_is_redacted(self, scope: Scope, rival: Scope) -> None:
        """Also if it is saved by a fork that begins then, or changed in place."""
        for n in range(3):
            scope.save({"of": "secret", "n": n}, id=f"{n}")
        todo: list[Callable[[], object]] = [
            lambda: rival.save({"of": "a new secret"}),
            lambda: rival.update("0", lambda s: s.with_(state={**s.state, "more": "secret"})),
            lambda: rival.fork("0", scope_id="fork"),
            lambda: rival.set_note("late", "secret"),
        ]

        def is_secret(path: str, value: JSON) -> bool:
            if path and todo:
                todo.pop(0)()
            return _is_secret(path, value)

        scope.redact(is_secret)

        left = {"of": None, "n": 0, "more": None}
        expected = [{"of": None}, {"of": None, "n": 2}, {"of": None, "n": 1}, left]
        assert _see_all(scope) == expected
        (first,) = rival.driver.run(
            lambda backend: backend.read_snapshots(scope.key._replace(scope_id="fork"), [None])
        )
        assert b"secret" not in first[1]
        assert present(scope.note("late")).value is None

    def test_what_cannot_be_asked_for_changes_nothing(self, store: Store, scope: Scope) -> None:
        scope.save({"a": 1}, id="a")
        with unchanged(store):
            refused(
                InvalidInput,
                (
                    lambda: scope.redact("a"),
                    lambda: scope.redact(3),  # type: ignore[arg-type]
                    lambda: scope.redact(lambda path, value: "yes"),  # type: ignore[arg-type, return-value]
                    lambda: scope.redact("/a", replacement=float("nan")),
                ),
            )
        with pytest.raises(ZeroDivisionError):
            scope.redact(lambda path, value: bool(1 / 0))

    def test_a_lease_redacts(self, scope: Scope) -> None:
        scope.save({"of": "secret"}, id="a")
        scope.fork("a", scope_id="fork").save({"of": "secret"})

        with scope.claim(owner="worker-1") as lease:
            assert lease.redact(_is_secret) == Redacted(3, 0)
        with pytest.raises(Conflict):
            lease.redact("/of", replacement=1)
