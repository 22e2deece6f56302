"""How people name things, on an engine of each family."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import limpet
from limpet.errors import InvalidInput, NotFound
from limpet.views import refs

A = "0190ab12-1111-7000-8000-00000000aaaa"
B = "0190ab12-2222-7000-8000-00000000bbbb"
C = "0190ab13-3333-7000-8000-00000000cccc"


@pytest.fixture(params=["memory", "sqlite", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[limpet.Store]:
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/x.db", "folder": f"{tmp_path}/x"}
    with limpet.open(urls[request.param]) as store:
        chat = store.scope("chat-42", "planner")
        for number, id in enumerate((A, B, C)):
            chat.save({"n": number}, id=id)
        yield store


def name(store: limpet.Store, text: str, **given: str) -> str:
    return refs.find_snapshot(store, text, **given).id


def test_ids_prefixes_and_shown_forms(store: limpet.Store) -> None:
    for text in (B, "0190ab12-2", "0190ab12…bbbb", "0190ab12..bbbb", "0190ab12...bb", "…bbbb"):
        assert name(store, text) == B
        assert name(store, text, session="chat-42") == B
        assert name(store, text, session="chat", scope="plan") == B
    assert name(store, "0190ab13") == C
    with pytest.raises(refs.SeveralMatch, match="several snapshots match") as caught:
        name(store, "0190ab12")
    assert caught.value.addresses == [f"chat-42:planner@{id}" for id in (A, B)]
    assert [name(store, each) for each in caught.value.addresses] == [A, B]
    with pytest.raises(InvalidInput, match="several"):
        name(store, "0190ab12", session="chat-42")
    for missing in ("0191", "0190ab12…cccc"):
        with pytest.raises(NotFound):
            name(store, missing)
        with pytest.raises(NotFound):
            name(store, missing, session="chat-42")


def test_the_head_and_what_is_before_it(store: limpet.Store) -> None:
    named = ("chat-42", "chat-42@", "chat-42:planner", "chat-42:planner@", "chat@", "chat")
    for text in ("@", "~0", "@~0", *named):
        assert name(store, text) == C
    for text in ("@~2", "~2", "chat-42@~2", "chat-42:planner@~2", f"{B}~1", "0190ab13~2"):
        assert name(store, text) == A
    for text in (f"chat-42:planner@{B}", "chat-42@0190ab12-2", f"chat-42@{C}~1"):
        assert name(store, text) == B
    with pytest.raises(NotFound, match="does not go back that far"):
        name(store, "@~3")


def test_several_sessions_and_scopes(store: limpet.Store) -> None:
    other = store.scope("chat-42", "planner~12345678").save(1, id="x")
    with pytest.raises(refs.SeveralMatch, match="several scopes") as caught:
        name(store, "chat-42@")
    assert caught.value.addresses == ["chat-42:planner", "chat-42:planner~12345678"]
    assert [name(store, each) for each in caught.value.addresses] == [C, other.id]
    assert name(store, "chat-42:planner@") == C  # an exact name wins over a longer one
    assert name(store, "chat-42:planner~12345678@") == other.id
    assert name(store, "@", session="chat-42", scope="planner~") == other.id
    graph = store.scope("chat-42", kind="graph").save(1, id="z")
    assert name(store, "chat-42@") == graph.id  # the only one of this name, of whatever kind
    main = store.scope("chat-42").save(1, id="y")
    assert name(store, "chat-42@") == main.id
    assert name(store, "chat-42@", kind="graph") == graph.id
    store.scope("chat-43").save(1, id="w")
    assert refs.find_session(store, "chat-43") == "chat-43"
    with pytest.raises(refs.SeveralMatch, match="several sessions match") as caught:
        refs.find_session(store, "chat")
    assert caught.value.addresses == ["chat-42", "chat-43"]
    with pytest.raises(InvalidInput, match="several sessions: name one"):
        name(store, "@")
    with pytest.raises(NotFound, match="no such session"):
        refs.find_session(store, "talk")


def test_whatever_an_id_holds_can_be_said(store: limpet.Store) -> None:
    for session in ("a@b.c", "a:b", "a~3", "@"):
        store.scope(session).save(1, id=f"head of {session}")
        assert name(store, session) == f"head of {session}"
        assert name(store, f"{session}@") == f"head of {session}"
        assert name(store, f"{session}:main@") == f"head of {session}"
    for id in ("x~3", "y@z", "p:q"):
        store.scope("odd").save(1, id=id)
        assert name(store, id) == id
        assert name(store, id, session="odd") == id
    assert name(store, "@", session="@") == "head of @"
    assert name(store, "odd:main@y@z") == "y@z"
    assert name(store, "odd@y@z") == "y@z"
    store.scope("a").save(1, id="head of a")
    assert name(store, "a@") == "head of a"
    assert name(store, "a@b.c@") == "head of a@b.c"
    assert name(store, "a@b.c@~0") == "head of a@b.c"


def test_a_draft_is_found_as_well(store: limpet.Store) -> None:
    store.scope("d").save(1, id="draft-1", keep=False)
    assert name(store, "draft") == "draft-1"
    assert name(store, "draft-1") == "draft-1"
    assert name(store, "d@") == "draft-1"
    assert name(store, "draft-1", session="d") == "draft-1"


def test_an_empty_store_says_so() -> None:
    with limpet.open("memory:") as store:
        with pytest.raises(NotFound, match="the store is empty"):
            name(store, "@")
        with pytest.raises(NotFound):
            name(store, "x")
        store.scope("s").set_note("n", 1)
        with pytest.raises(NotFound, match="has no head"):
            name(store, "s")


def test_very_many_ids_with_the_same_beginning(
    store: limpet.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refs, "_CANDIDATES_MAX", 2)
    for id, end in ((A, "aaaa"), (B, "bbbb")):
        assert name(store, f"0190ab12…{end}", session="chat-42") == id
        assert name(store, f"0190ab12…{end}") == id
    with pytest.raises(InvalidInput, match="several"):
        name(store, "0190ab12")


def test_an_empty_reference_is_refused(store: limpet.Store) -> None:
    for text in ("", "…", "..", "..."):
        with pytest.raises(InvalidInput, match=r"is empty|not a snapshot reference"):
            name(store, text)
        with pytest.raises(InvalidInput, match=r"is empty|not a snapshot reference"):
            name(store, text, session="chat-42")
    with pytest.raises(InvalidInput, match="is empty"):
        refs.find_session(store, "")
    for text in ("@~", "@~-1", "@~99999999", "@~٣"):
        with pytest.raises(NotFound):
            name(store, text)


def test_an_id_in_several_scopes_is_not_guessed(store: limpet.Store) -> None:
    store.scope("other").save(1, id=A)
    store.scope("other", kind="graph").save(1, id=A)
    with pytest.raises(refs.SeveralMatch, match="several snapshots") as caught:
        name(store, A)
    assert caught.value.addresses == [
        f"chat-42:planner@{A} --kind agent",
        f"other:main@{A} --kind agent",
        f"other:main@{A} --kind graph",
    ]
    for each in caught.value.addresses:
        address, kind = each.split(" --kind ")
        found = refs.find_snapshot(store, address, kind=kind)
        assert (found.id, found.scope.kind) == (A, kind)
    with pytest.raises(refs.SeveralMatch):
        name(store, A, session="other")
    assert refs.find_snapshot(store, A, session="other", kind="graph").scope.kind == "graph"
    assert refs.find_snapshot(store, A, session="chat-42").scope.scope_id == "planner"


def test_where_no_parent_is_said_it_is_what_was_saved_before(store: limpet.Store) -> None:
    for number in range(3):
        store.scope("flat").save(number, id=f"flat-{number}", parent=None, head=False)
    assert name(store, "flat-2~2") == "flat-0"
    with pytest.raises(NotFound, match="does not go back that far"):
        name(store, "flat-2~3")
    store.scope("two").save(1, id="root-1", parent=None)
    store.scope("two").save(2, id="after", parent="root-1")
    store.scope("two").save(3, id="root-2", parent=None)  # which is a statement
    with pytest.raises(NotFound, match="does not go back that far"):
        name(store, "root-2~1")
    store.scope("ring").save(1, id="ring-1", parent="ring-2")
    store.scope("ring").save(2, id="ring-2", parent="ring-1")
    with pytest.raises(NotFound, match="does not go back that far"):
        name(store, "ring-1~999999")
    fork = store.scope("chat-42", "planner").fork(B, scope_id="other")
    assert name(store, "chat-42:other@~1") == B
    assert name(store, "chat-42:other@~2") == A
    store.scope("chat-42", "planner").delete_snapshot(A)
    with pytest.raises(NotFound, match="does not go back"):
        name(store, f"{B}~1")
    assert fork.scope_id == "other"
