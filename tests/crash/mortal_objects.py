"""A process that writes to a folder or a bucket until it dies.

    <url> <seed> <tag>    writes chosen by a seed, until it is killed from outside; says in lines of
                          JSON `["begin", what it found]`, `["try", write]`, `["done"]`
    --steps <folder> <n>  for each verb: killed before its first call of the system that changes
                          anything, then before the n-th after it, until the verb completes

What a store shows is compared as a whole (`dump`), with the memory engine as the oracle. With
`--steps` the tails are rolled after a few saves, before a verb returns: so its steps are always the
same, and most verbs meet segments.
"""

import json
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

import limpet
from limpet import Scope, Snapshot, SnapshotInfo, Store, opening
from limpet.backends.objects import keys
from limpet.engine.rolling import Limits
from tests.buckets.opened import store_on

Write: TypeAlias = list[Any]
Dump: TypeAlias = dict[str, dict[str, Any]]

MINTED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
TEMPORARY = ".limpet-"
COLOURS = ("red", "green", "blue")
ALL = {
    "save", "draft", "aside", "append", "update", "overwrite",
    "delete", "note", "delete_note", "fork", "forget",
}  # fmt: skip


def sealed(text: str) -> dict[str, Any]:
    """Return a state that shows by itself whether it is whole."""
    return {"sum": crc32(text.encode()), "text": text}


def text_of(seed: int) -> str:
    """Return a text of any size up to 40 KB."""
    chance = random.Random(seed)
    return chance.randbytes(chance.choice((1, 100, 3_000, 20_000))).hex()


# What is written


def choose(chance: random.Random, store: Store, tag: str) -> Write:
    """Choose the next write; most of those that change something name what is there."""
    weights = {
        "save": 6, "draft": 4, "aside": 2, "append": 4, "update": 5, "overwrite": 4,
        "delete": 5, "note": 3, "delete_note": 1, "fork": 1.5, "forget": 0.4,
    }  # fmt: skip
    (kind,) = chance.choices(list(weights), list(weights.values()))
    seed, name = chance.getrandbits(32), chance.choice(("log", "mixed"))
    id = chance.choice([*store.scope("s", name).ids()] or ["nothing"])
    match kind:
        case "save" | "draft" | "aside":
            return [kind, name, tag, seed]
        case "append":
            return [kind, tag]
        case "note":
            return [kind, chance.choice((None, id)), f"n-{chance.randrange(3)}", seed]
        case "delete_note":
            return [kind, f"n-{chance.randrange(3)}"]
        case "fork":
            return [kind, name, id, f"fork-{tag}"]
        case "forget":
            return [kind, chance.choice(["chat", *(k.scope_id for k in forks(store))])]
    return [kind, name, id, seed]


def forks(store: Store) -> list[Any]:
    return [info.key for info in store.scopes("s") if info.key.scope_id.startswith("fork-")]


def perform(store: Store, write: Write) -> None:
    match write:
        case ["save", name, id, seed]:
            store.scope("s", name).save(sealed(text_of(seed)), id=id, labels=labels_of(seed))
        case ["draft", name, id, seed]:
            store.scope("s", name).save(sealed(text_of(seed)), id=id, keep=False)
        case ["aside", name, id, seed]:
            state = sealed(text_of(seed))
            store.scope("s", name).save(state, id=id, head=False, labels=labels_of(seed))
        case ["append", item]:
            store.scope("s", "chat").append("items", [item], keep=crc32(item.encode()) % 4 != 0)
        case ["update", name, id, seed]:
            update(store.scope("s", name), id, seed)
        case ["overwrite", name, id, seed]:
            if store.scope("s", name).info(id) is not None:
                state = sealed(text_of(seed))
                options: dict[str, Any] = {"overwrite": True, "labels": labels_of(seed)}
                store.scope("s", name).save(state, id=id, **options)
        case ["delete", name, id, _]:
            store.scope("s", name).delete_snapshot(id)
        case ["note", on, name, seed]:
            store.scope("s", "log").set_note(name, sealed(text_of(seed)), on=on)
        case ["delete_note", name]:
            store.scope("s", "log").delete_note(name)
        case ["fork", name, id, to]:
            if store.scope("s", name).info(id) is not None:
                store.scope("s", name).fork(id, scope_id=to, patch={"forked": True})
        case ["forget", name]:
            store.scope("s", name).delete()


def update(scope: Scope, id: str, seed: int) -> None:
    def change(before: Snapshot) -> Snapshot:
        return before.with_(state=sealed(text_of(seed)), labels=labels_of(seed), status="changed")

    if scope.info(id) is not None:
        scope.update(id, change)


def labels_of(seed: int) -> dict[str, str]:
    return {"kind": "log", "colour": COLOURS[seed % len(COLOURS)]}


# What a store shows


def dump(store: Store) -> Dump:
    """Return what a store shows, after checking that all of it is whole and agrees with itself."""
    infos = list(store.scopes())
    assert list(store.sessions()) == sorted({info.key.session_id for info in infos})
    found = {"/".join(info.key): dump_scope(store.scope(*info.key)) for info in infos}
    assert {place: shown(info.head) for place, info in zip(found, infos, strict=True)} == {
        place: facts["head"] and facts["head"][0] for place, facts in found.items()
    }
    return found


def dump_scope(scope: Scope) -> dict[str, Any]:
    infos = list(scope.history())
    states = list(scope.load_many(info.id for info in infos))
    assert [found.revision for found in states] == [info.revision for info in infos]
    assert list(scope.ids()) == sorted(info.id for info in infos)
    for colour in COLOURS:
        labelled = [info.id for info in scope.history(labels={"colour": colour})]
        assert labelled == [info.id for info in infos if info.labels.get("colour") == colour]
    head = scope.load()
    assert head is None or not head.kept or any(info.revision == head.revision for info in infos)
    noted = {"x-1", "x-2", "x-3", *(info.id for info in infos)}
    notes = [*scope.notes(), *scope.notes(on=sorted(noted))]
    return {
        "head": None if head is None else facts_of(head),
        "history": [facts_of(found) for found in states],
        "notes": sorted([note.snapshot_id or "", note.name, check(note.value)] for note in notes),
    }


def facts_of(found: Snapshot) -> list[Any]:
    origin = found.forked_from and [*found.forked_from.scope, found.forked_from.id]
    return [
        shown(found), shown_id(found.parent_id), check(found.state), found.status, found.labels,
        found.kept, found.size, origin,
    ]  # fmt: skip


def check(state: Any) -> Any:
    """Return what tells a state from others, after seeing that it is whole."""
    if "items" in state:
        return state["items"]
    forked = state.pop("forked", False)
    assert state == sealed(state["text"])
    return [state["sum"], forked]


def shown(info: SnapshotInfo | None) -> str | None:
    return None if info is None else shown_id(info.id)


def shown_id(id: str | None) -> str | None:
    """Return an id; those that are minted differ from one engine to the other."""
    return None if id is None else MINTED.sub("minted", id)


def unfound(store: Store) -> list[list[str]]:
    """Return the kept snapshots that a search over all scopes does not find."""
    labelled = {
        (info.scope, info.revision)
        for colour in COLOURS
        for info in store.history(labels={"colour": colour})
    }
    newest = {(info.scope, info.revision) for info in store.history()}
    missing = []
    for each in store.scopes():
        for info in store.scope(*each.key).history():
            place, by_id = (info.scope, info.revision), store.find(info.id)
            named = by_id is not None and (by_id.scope, by_id.revision) == place
            if not named or place not in newest or (info.labels and place not in labelled):
                missing.append([each.key.scope_id, info.id])
    return missing


def strangers(folder: Path) -> list[str]:
    """Return the files in a store's folder that are neither documents nor pointers."""
    files = (path for path in folder.rglob("*") if not path.is_dir())
    names = [path.relative_to(folder).as_posix() for path in files]
    return [name for name in names if not (keys.parse(name) or keys.parse_pointer(name))]


# Until it is killed


def run(url: str, seed: str, tag: str) -> None:
    chance = random.Random(seed)
    with limpet.open(url) as store:
        say(["begin", dump(store)])
        number = 0
        while True:
            number += 1
            write = choose(chance, store, f"{tag}-{number:04}")
            say(["try", write])
            perform(store, write)
            say(["done"])


# Killed before every step


VERBS: dict[str, list[Write]] = {
    "the first save of a scope": [["save", "new", "x-9", 1]],
    "a kept save": [["save", "log", "x-9", 1]],
    "a kept save on one's own": [["save", "log", "x-8", 2], ["save", "log", "x-9", 1]],
    "a kept save over a draft": [["save", "mixed", "x-9", 1]],
    "a draft": [["draft", "log", "x-9", 1]],
    "a draft over a draft": [["draft", "mixed", "x-9", 1]],
    "a save aside": [["aside", "log", "x-9", 1]],
    "an append": [["append", "9"]],
    "an append of a draft": [["append", "12"]],
    "an update of the head": [["update", "log", "x-3", 1]],
    "an update below": [["update", "log", "x-2", 1]],
    "an overwrite of the head": [["overwrite", "log", "x-3", 1]],
    "an overwrite below": [["overwrite", "log", "x-1", 1]],
    "a delete of the head": [["delete", "log", "x-3", 0]],
    "a delete below": [["delete", "log", "x-2", 0]],
    "a delete below a void head": [["delete", "log", "x-3", 0], ["delete", "log", "x-2", 0]],
    "an append on a void head": [["delete_head", "chat"], ["append", "9"]],
    "a delete of a draft": [["delete", "mixed", "y-2", 0]],
    "a note": [["note", None, "n-9", 1]],
    "a note again": [["note", None, "n-1", 1]],
    "a note on a snapshot": [["note", "x-2", "n-9", 1]],
    "a note that does not fit into the head": [["note", None, "n-9", 9]],
    "a delete of a note": [["delete_note", "n-1"]],
    "a fork": [["fork", "log", "x-2", "fork-9"]],
    "a delete of a scope": [["forget", "mixed"]],
    "a delete of a scope with notes": [["forget", "log"]],
}
BASE: list[Write] = [
    ["save", "log", "x-1", 11], ["save", "log", "x-2", 12], ["save", "log", "x-3", 13],
    ["note", None, "n-1", 14], ["note", "x-2", "n-1", 15], ["save", "mixed", "y-1", 16],
    ["draft", "mixed", "y-2", 17], ["append", "1"], ["append", "2"],
]  # fmt: skip
TAILS = Limits(snapshots=3, newest_bytes=16_384, wholes=False)
STEPS = ("mkdir", "write", "link", "rename", "unlink", "rmdir")


def stepped(url: str) -> Store:
    """Open a store that does everything in the thread that asks for it."""
    return store_on(opening.open_files(url), tails=TAILS)


def act(store: Store, write: Write) -> None:
    if write[0] == "delete_head":
        scope = store.scope("s", write[1])
        info = scope.info()
        assert info is not None
        scope.delete_snapshot(info.id)
    else:
        perform(store, write)


def scope_of(write: Write) -> str:
    match write:
        case ["append", _]:
            return "chat"
        case ["note", *_] | ["delete_note", _]:
            return "log"
        case ["fork", _, _, to]:
            return str(to)
    return str(write[1])


def die_before(step: int) -> None:
    """Let this process kill itself before its n-th change of a file; a write is done by half."""
    left = step

    def wrap(name: str, was: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal left
            if name == "open" and not given[1] & os.O_CREAT:
                return was(*given, **named)
            left -= 1
            if left == 0:
                if name == "write":
                    was(given[0], bytes(given[1])[: len(given[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return was(*given, **named)

        return call

    for name in (*STEPS, "open"):
        setattr(os, name, wrap(name, getattr(os, name)))


def killed(url: str, writes: list[Write], step: int) -> bool:
    """Let a child do the last of some writes; return whether it was killed."""
    child = os.fork()
    if not child:
        status = 1
        try:
            with stepped(url) as store:
                for write in writes[:-1]:
                    act(store, write)
                die_before(step)
                act(store, writes[-1])
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


def points(folder: Path, name: str, stride: int) -> Iterator[str]:
    """Kill a verb at its steps; yield what was found: that it is done, or not."""
    writes, base, place = VERBS[name], folder / "base", folder / "place"
    with limpet.open("memory:") as oracle:
        for write in [*BASE, *writes[:-1]]:
            act(oracle, write)
        before = dump(oracle)
        act(oracle, writes[-1])
        after = dump(oracle)
        following: Write = ["save", scope_of(writes[-1]), "z-1", 5]
        perform(oracle, following)
        later = dump(oracle)
    for step in range(1 + len(name) % min(stride, 3), 1000, stride):  # no verb has fewer steps
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(base, place)
        url = f"file://{place}?sync=false"
        died = killed(url, writes, step)
        with stepped(url) as store:
            found = dump(store)
            assert unfound(store) == []
            what = compare(found, before, after)
            assert [each for each in store.check() if each.severity == "error"] == []
            temporaries = [key for key in strangers(place) if TEMPORARY not in key]
            assert temporaries == [], temporaries
            if what != "done":
                act(store, writes[-1])
                assert dump(store) == after, f"{name}, killed at {step}, then done again"
            perform(store, following)
            assert dump(store) == later, f"{name}, killed at {step}, then saved"
            assert unfound(store) == []
        yield what
        if not died:
            return


def compare(found: Dump, before: Dump, after: Dump) -> str:
    """Return whether a write is done, or not."""
    if found == after:
        return "done"
    assert found == before, f"neither {before} nor {after}: {found}"
    return "not"


def run_steps(folder: Path, stride: int) -> None:
    with stepped(f"file://{folder}/base?sync=false") as store:
        for write in BASE:
            act(store, write)
    for name in VERBS:
        say([name, list(points(folder, name, stride))])


def say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "--steps":
        run_steps(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        run(*sys.argv[1:])
