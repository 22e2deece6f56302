"""A log over a scope: what is appended, what is not appended twice, and several writers at once."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import AlreadyExists, Corrupt
from limpet.compat.logs import FRAMEWORKS, Log
from limpet.compat.wire import ABSENT
from tests.present import present


def log_of(store: limpet.Store, mark: str = "openai", **options: Any) -> Log:
    return Log(store.scope("chat", kind="conversation"), "items", mark, **options)


def item(id: str | None, text: str = "") -> dict[str, Any]:
    return {"text": text} if id is None else {"id": id, "text": text}


def id_of(item: Any) -> str | None:
    found = item.get("id")
    return found if isinstance(found, str) else None


def test_what_is_appended_is_read_and_is_a_snapshot(store: limpet.Store) -> None:
    log = log_of(store)
    assert log.read() is None
    assert log.append([]) is None
    log.append([1, 2])
    log.append([3])
    assert log.read() == [1, 2, 3]
    sizes = [len(each.state["items"]) for each in log.scope.load_many(list(log.scope.history()))]
    assert sizes == [3, 2]


def test_a_known_id_is_not_appended_again(store: limpet.Store) -> None:
    log, other = log_of(store, id_of=id_of), log_of(store, id_of=id_of)
    log.append([item("a"), item(None), item("a", "again")])
    log.append([item("a"), item("b"), item(None)])
    other.append([item("b"), item("c")])
    assert log.append([item("c"), item("a")]) is None
    log.append([item("d")])
    found = log.read() or []
    assert [id_of(each) for each in found] == ["a", None, "b", None, "c", "d"]
    other.scope.delete()
    log.append([item("a")])
    assert log.read() == [item("a")]


def test_metadata_follows_the_head(store: limpet.Store) -> None:
    def describe(head: Any, new: list[Any]) -> int:
        return len(new) + (0 if head is None else int(head.metadata["openai"]))

    log, other = log_of(store), log_of(store)
    log.append([1, 2], describe=describe)
    other.append([3], describe=describe)
    last = present(log.append([4, 5], describe=describe))
    assert last.metadata == {"openai": 5}


def test_concurrent_appends_and_pops_lose_nothing(store: limpet.Store) -> None:
    def write(name: str) -> None:
        log = log_of(store, id_of=id_of)
        for n in range(10):
            log.append([item(f"{name}{n}")])

    with ThreadPoolExecutor(5) as threads:
        list(threads.map(write, "abc"))
        popped = list(threads.map(lambda _: log_of(store).pop(), range(5)))
    log = log_of(store)
    left = log.read() or []
    ids = [id_of(each) for each in [*left, *popped]]
    assert len(ids) == 30
    assert {*ids} == {f"{name}{n}" for name in "abc" for n in range(10)}


def test_an_empty_log_has_nothing_to_pop(store: limpet.Store) -> None:
    log = log_of(store)
    assert log.pop() is ABSENT
    log.append([None])
    assert log.pop() is None
    assert log.pop() is ABSENT
    assert log.read() == []


def test_what_another_program_saved_is_refused(store: limpet.Store) -> None:
    log = log_of(store)
    for state in (["no", "log"], {"items": "none"}, {}):
        log.scope.save(state)
        for call in (log.read, log.pop, lambda: log.append([1]), lambda: log.replace([1])):
            with pytest.raises(Corrupt, match="no conversation of the OpenAI Agents SDK"):
                call()
    log.scope.save({"items": [1]})  # by hand, and in the right form
    log.append([2])
    assert log.read() == [1, 2]


def test_what_another_framework_saved_is_refused_in_the_same_commit(
    store: limpet.Store,
) -> None:
    ours, theirs = log_of(store), log_of(store, "pydantic_ai")
    ours.append([1])
    for call in (theirs.read, theirs.pop, lambda: theirs.append([1]), lambda: theirs.replace([1])):
        with pytest.raises(AlreadyExists, match=r"of the OpenAI Agents SDK, not of Pydantic AI"):
            call()
    # A log that knows its head does not read it again: the commit compares it.
    ours.scope.delete()
    theirs.append([2])
    with pytest.raises(AlreadyExists, match="of Pydantic AI, not of the OpenAI Agents SDK"):
        ours.append([3])
    assert theirs.read() == [2]


def test_javascript_knows_the_same_frameworks() -> None:
    root = Path(__file__).resolve().parents[2]
    text = (root / "clients" / "js" / "src" / "logs.js").read_text("utf-8")
    assert dict(re.findall(r'^  (\w+): "(.+)",$', text, re.MULTILINE)) == FRAMEWORKS
