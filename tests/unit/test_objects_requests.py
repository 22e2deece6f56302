"""What each verb costs: the table of the guide, row by row, counted.

On a bucket in memory that counts as S3 does (`tests/buckets/test_s3.py` counts what is sent).
"""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import limpet
from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.backends.buckets.protocol import Bucket
from limpet.protocol import Target
from tests.buckets import opened
from tests.buckets.counting import CountingBucket
from tests.cases import for_each

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "folders_and_s3.md"
TURNS = 500
SCOPES = 60
POLL_S = 0.02


class Chat(NamedTuple):
    """A chat whose newest state is too large for its head, and what its saves have sent."""

    objects: dict[str, tuple[bytes, int]]
    ids: list[str]
    requests: dict[str, int]
    sent: int


def store_on(bucket: Bucket) -> Store:
    return opened.store_on(bucket, compress=True, poll_s=POLL_S)


@pytest.fixture(scope="module")
def chat() -> Chat:
    """Save many short chats, one of them with a label and an own id, and a long one."""
    bucket, chance, turns, ids = CountingBucket(), random.Random(1), list[str](), list[str]()
    store = store_on(bucket)
    for number in range(SCOPES // 2):
        for name in "ab":
            store.scope(f"s{number:02}", name).save({"n": number})
    store.scope("labelled").save({"n": 1}, id="own", labels={"colour": "red"})
    for number in range(64):
        store.scope("labelled").set_note(f"n{number:02}", number)
    bucket.take()
    before = bucket.sent
    for _ in range(TURNS):
        turns.append(chance.randbytes(200).hex())
        ids.append(store.scope("chat").save({"messages": list(turns)}).id)
    return Chat(bucket.objects, ids, bucket.take(), bucket.sent - before)


class Place:
    """A bucket with a long chat and many short ones, whose requests are counted."""

    def __init__(self, chat: Chat) -> None:
        self.ids = chat.ids
        self.bucket = CountingBucket()
        self.bucket.objects = dict(chat.objects)
        self.take = self.bucket.take

    def store(self) -> Store:
        """Return a store with an empty memory."""
        return store_on(self.bucket)


# The verbs, by the words of the guide

Verb = Callable[[Place], dict[str, int]]


def counted(place: Place, call: Callable[[], object]) -> dict[str, int]:
    place.take()
    call()
    return place.take()


def cold(call: Callable[[Scope, list[str]], object]) -> Verb:
    """A verb of the long chat, by a process that has read nothing of it yet."""
    return lambda place: counted(place, lambda: call(place.store().scope("chat"), place.ids))


def whole(call: Callable[[Store], object]) -> Verb:
    return lambda place: counted(place, lambda: call(place.store()))


def begun(place: Place) -> tuple[Scope, list[str]]:
    """Return the long chat in a process that has just saved in it, and its messages."""
    scope = place.store().scope("chat")
    head = scope.load()
    assert head is not None
    messages: list[str] = [*head.state["messages"], "before"]
    scope.save({"messages": messages})
    return scope, messages


def warm(call: Callable[[Scope, list[str]], object]) -> Verb:
    def verb(place: Place) -> dict[str, int]:
        scope, messages = begun(place)
        return counted(place, lambda: call(scope, [*messages, "after"]))

    return verb


def rolled(place: Place) -> dict[str, int]:
    """Save until a roll moves the tail into a segment."""
    (scope, messages), chance = begun(place), random.Random(2)
    for _ in range(TURNS):
        messages.append(chance.randbytes(200).hex())
        found = counted(place, lambda: scope.save({"messages": messages}))
        if found != {"PUT": 1}:
            return found
    raise AssertionError("no tail was rolled")


def same_labels(place: Place) -> dict[str, int]:
    scope, messages = begun(place)

    def save() -> None:
        messages.append("x")
        scope.save({"messages": messages}, labels={"a": "1"})

    found = [counted(place, save) for _ in range(3)]
    return min(found[1:], key=lambda each: each["PUT"])  # a minute may have begun


def claim(scope: Scope) -> None:
    with scope.claim(owner="a"):
        pass


def idle(place: Place) -> dict[str, int]:
    """Count one poll of a watch on a scope in which nothing happens."""
    backend = place.store().driver.opened.backend
    targets = [Target(limpet.ScopeKey("chat"))]
    backend.read_revisions(targets)
    return counted(place, lambda: backend.read_revisions(targets))


def state(messages: list[str]) -> dict[str, list[str]]:
    return {"messages": messages}


LABELS = {"a": "1", "b": "2"}
VERBS: dict[str, Verb] = {
    "the first save in a scope": whole(lambda s: s.scope("new").save({})),
    "`save`": warm(lambda s, m: s.save(state(m))),
    "`save` with the roll behind it (in a chat one in 60)": rolled,
    "`save` with 2 labels": warm(lambda s, m: s.save(state(m), labels=LABELS)),
    "`save` with the labels of another one in the same minute": same_labels,
    "`save` with an id of your own": warm(lambda s, m: s.save(state(m), id="x")),
    "`save(…, keep=False)`, `save(…, head=False)`": warm(lambda s, m: s.save(state(m), keep=False)),
    "`append`": warm(lambda s, m: s.append("messages", ["x"])),
    "`save` of a short state after another process": cold(lambda s, ids: s.save(state([]))),
    "`append` after another process": cold(lambda s, ids: s.append("messages", ["x"])),
    "`load()` of a short state, `info()`": whole(lambda s: s.scope("s00", "a").load()),
    "`load()` of a long state (zstd: more than 32 KB)": cold(lambda s, ids: s.load()),
    "`load()` by a process that knows the newest segment": warm(lambda s, m: s.load()),
    "`load(id)` of an old one": cold(lambda s, ids: s.load(ids[40])),
    "`load_many` of 20 old ones": cold(lambda s, ids: list(s.load_many(ids[100:120]))),
    "`history(limit=20)`": cold(lambda s, ids: list(s.history(limit=20))),
    "`update` of the head": cold(lambda s, ids: s.update(ids[-1], lambda x: x.with_(status="x"))),
    "`update` of an old one": cold(lambda s, ids: s.update(ids[40], lambda x: x.with_(status="x"))),
    "`fork` in the session": cold(lambda s, ids: s.fork(ids[40])),
    "`fork` to another session": cold(lambda s, ids: s.fork(ids[40], to="other")),
    "`delete_snapshot` of an old one": cold(lambda s, ids: s.delete_snapshot(ids[40])),
    "`prune`, 500 to 50": cold(lambda s, ids: s.prune(keep_last=50)),
    "`scope.delete()`, `store.delete_session`": whole(lambda s: s.delete_session("chat")),
    "`note`": whole(lambda s: s.scope("labelled").note("n01")),
    "`notes`, 64 of them": whole(lambda s: list(s.scope("labelled").notes())),
    "`set_note`": whole(lambda s: s.scope("labelled").set_note("n01", 2)),
    "`claim` and its end": cold(lambda s, ids: claim(s)),
    "`watch` of a scope, one poll": idle,
    "`store.find(id)`, minted by Limpet": lambda place: counted(
        place, lambda: place.store().find(place.ids[40])
    ),
    "`store.find(id)`, an id of your own": whole(lambda s: s.find("own")),
    "`store.history(labels=…)`, in one scope": whole(
        lambda s: list(s.history(labels={"colour": "red"}))
    ),
    "`store.history(limit=10)`": whole(lambda s: list(s.history(limit=10))),
    "`store.sessions()`": whole(lambda s: list(s.sessions())),
    "`store.scopes()`": whole(lambda s: list(s.scopes())),
    "`store.check()`": whole(lambda s: list(s.check())),
}


def table() -> dict[str, str]:
    """Return the rows of the guide: a verb and its requests."""
    section = GUIDE.read_text().partition("## Cost of each method\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    return dict(rows[1:])


def agrees(cost: str, found: dict[str, int]) -> bool:
    """Return whether requests are those of a row, such as `2 LIST, at most 1 GET a scope`."""
    told = dict.fromkeys(found, range(1))  # of each method
    for most, number, method, each in re.findall(
        r"(at most )?(\d+) (GET|PUT|LIST|DELETE)( a scope)?", cost
    ):
        count = int(number) * (SCOPES + 2 if each else 1)
        known = told.get(method, range(1))
        told[method] = range(known.start + (0 if most else count), known.stop + count)
    return all(found.get(method, 0) in allowed for method, allowed in told.items())


def test_the_guide_has_all_verbs() -> None:
    assert list(table()) == list(VERBS)


@for_each("verb", VERBS)
def test_a_verb_costs_what_the_guide_says(chat: Chat, verb: str) -> None:
    found = VERBS[verb](Place(chat))
    assert agrees(table()[verb], found), f"{verb}: {table()[verb]}, counted: {found}"


def test_the_chat_is_as_compact_as_it_should_be(chat: Chat) -> None:
    """At most 1.05 PUTs a save, with all rolls; one segment."""
    text = TURNS * 403 + 16  # bytes of the newest state
    assert chat.requests["PUT"] <= 1.05 * TURNS
    assert chat.sent <= 80 * text  # of turns that do not compress, and are short
    assert sum("/segments/" in key for key in chat.objects) == 1
