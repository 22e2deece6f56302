"""Fork and restore by their forms, and what a prune would delete."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

import limpet
from limpet.server.access import Access, Tokens
from tests.inspector.kit import FORM, app_of, got, posted
from tests.server.asgi import Response, ask, page_cookie

READER = "reader-token-0123456789"


@pytest.fixture
def store() -> limpet.Store:
    return limpet.open("memory:")


def fields_of(answer: Response) -> dict[str, str]:
    """Return what the form of a page would send."""
    text = answer.body.decode()
    (form,) = re.findall(r'<form class="act" method="post".*?</form>', text, re.DOTALL)
    found = re.findall(r'<input[^>]*? name="([^"]*)" value="([^"]*)"', form)
    return {name: unescape(value) for name, value in found}


def place(answer: Response) -> dict[str, str]:
    url = urlsplit(answer.headers["location"])
    assert url.path == "/ui/session"
    return {**{k: v[0] for k, v in parse_qs(url.query).items()}, "#": url.fragment}


def chat(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": each} for each in texts]}


def test_fork(store: limpet.Store) -> None:
    scope = store.scope("chat-1")
    first = scope.save(chat("one"), status="waiting")
    scope.save(chat("one", "two", "three"))
    query = {"session_id": "chat-1", "id": first.id}
    preview = got(store, "/ui/fork", query)
    assert preview.status == 200
    text = unescape(preview.body.decode())
    assert "<b>3 messages</b>, this snapshot <b>1 message</b>" in text
    assert "limpet fork --as 'main~" in text
    fields = fields_of(preview)
    assert fields["name"].startswith("main~")
    assert len(list(store.scopes("chat-1"))) == 1  # a preview changes nothing
    fields["name"] = "try <1>"
    done = posted(store, "/ui/fork", fields)
    assert done.status == 303
    assert place(done) == {
        "session_id": "chat-1",
        "scope_id": "try <1>",
        "kind": "agent",
        "#": "forked",
    }
    made = store.scope("chat-1", "try <1>").load()
    assert made is not None
    assert (made.state, made.status) == (chat("one"), "waiting")
    assert made.forked_from == limpet.SnapshotRef(scope.key, first.id)
    again = posted(store, "/ui/fork", fields)
    assert again.status == 409
    assert b"already. Choose another one" in again.body
    assert fields_of(again)["name"] == "try <1>"
    assert posted(store, "/ui/fork", {**fields, "name": "x" * 513}).status == 400
    assert posted(store, "/ui/fork", {**fields, "name": " "}).status == 303  # a generated one
    assert len(list(store.scopes("chat-1"))) == 3
    assert posted(store, "/ui/fork", {**fields, "id": "nothing", "name": "n"}).status == 404
    assert got(store, "/ui/fork", {**query, "id": "nothing"}).status == 404


def test_restore(store: limpet.Store) -> None:
    scope = store.scope("chat-1", "planner", "graph")
    first = scope.save({"mood": "calm", "plan": []})
    second = scope.save({"mood": "bold", "plan": ["castle"], "more": 1})
    query = {"session_id": "chat-1", "scope_id": "planner", "kind": "graph", "id": first.id}
    preview = got(store, "/ui/restore", query)
    text = unescape(preview.body.decode())
    assert "1 changed, 2 removed" in text
    assert "is not undone" in text
    assert "stays in the history" in text
    command = f"limpet restore --kind graph --expect {second.revision} chat-1:planner@{first.id}"
    assert command in text
    fields = fields_of(preview)
    assert fields["revision"] == second.revision
    third = scope.save({"mood": "other"})
    moved = posted(store, "/ui/restore", fields)
    assert moved.status == 409
    assert b"The head moved meanwhile" in moved.body
    assert scope.info() == third
    fields = fields_of(moved)
    done = posted(store, "/ui/restore", fields)
    assert done.status == 303
    head = scope.load()
    assert head is not None
    assert (head.parent_id, head.state) == (first.id, {"mood": "calm", "plan": []})
    assert place(done)["id"] == head.id
    assert place(done)["#"] == "restored"
    # Sent again, it does not restore twice.
    assert posted(store, "/ui/restore", fields).status == 409
    here = got(store, "/ui/restore", {**query, "id": head.id}).body.decode()
    assert "There is nothing to restore" in here
    assert "<form class" not in here
    scope.save({"mood": "draft"}, keep=False)
    assert "will be lost" in got(store, "/ui/restore", query).body.decode()


@pytest.mark.parametrize("path", ["/ui/fork", "/ui/restore"])
def test_only_with_the_right_to_write(store: limpet.Store, path: str) -> None:
    info = store.scope("s").save(1)
    query = {"session_id": "s", "id": info.id}
    fields = {**query, "scope_id": "main", "kind": "agent"}
    fields |= {"name": "n"} if path == "/ui/fork" else {"revision": info.revision}
    reader = Access(Tokens(None, f"{READER} read"))
    cookie = page_cookie(reader, READER)
    refused = [
        got(store, path, query, access=Access(write=False)),
        posted(store, path, fields, Access(write=False)),
        posted(store, path, fields, reader, cookie=cookie),
    ]
    for answer in refused:
        assert answer.status == 403
        assert b"limpet ui --write" in answer.body
    assert posted(store, path, fields, reader).status == 401
    for origin in ("http://evil.example", "null", "", "http://localhost:7421"):
        answer = posted(store, path, fields, origin=origin)
        assert answer.status == 403, origin
    body = urlencode(fields).encode()
    without = asyncio.run(ask(app_of(store), "POST", path, None, body, content_type=FORM))
    assert without.status == 403
    assert len(list(store.history())) == 1


def test_prune_shows_and_deletes_nothing(store: limpet.Store) -> None:
    today = datetime.now(UTC)
    for scope_id in ("main", "other"):
        for age_days in (40, 35, 20, 2, 1, 0):
            created_at = today - timedelta(days=age_days)
            store.scope("s", scope_id).save(
                {"n": age_days}, created_at=created_at, status=f"<{age_days}>"
            )
    asked = got(store, "/ui/prune", {"session_id": "s"})
    assert asked.status == 200
    assert b"would be deleted" not in asked.body
    query = {"session_id": "s", "keep_last": "3", "older_than_days": "30"}
    text = unescape(got(store, "/ui/prune", query).body.decode())
    assert "4 snapshots would be deleted" in text
    assert "limpet prune --keep-last 3 --older-than 30d s --url memory:" in text
    assert "limpet prune --dry-run --keep-last 3" in text
    assert text.count("&scope_id=other&") == 2
    text = got(store, "/ui/prune", {**query, "scope_id": "main", "kind": "agent"}).body.decode()
    assert "2 snapshots would be deleted" in text
    assert "--kind agent s main" in text
    none = got(store, "/ui/prune", {"session_id": "s", "keep_last": "9", "older_than_days": ""})
    assert b"deletes nothing" in none.body
    assert got(store, "/ui/prune", {"session_id": "s", "keep_last": "-1"}).status == 400
    assert got(store, "/ui/prune", {"session_id": "none", "keep_last": "1"}).status == 404
    far = {"session_id": "s", "older_than_days": "9" * 9}
    assert b"deletes nothing" in got(store, "/ui/prune", far).body
    assert len(list(store.history())) == 12


def test_prune_lists_the_first_hundred(store: limpet.Store) -> None:
    scope = store.scope("s")
    for number in range(120):
        scope.save(number)
    text = got(store, "/ui/prune", {"session_id": "s", "keep_last": "5"}).body.decode()
    assert "115 snapshots would be deleted" in text
    assert "The first 100" in text
    assert text.count("<td><a href=") == 100
