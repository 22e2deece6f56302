"""A process that writes until it is killed: `<url> <seed> <tag>`.

It says in lines of JSON `["begin", what it found]`, `["try", write]`, `["done"]`. What a store
shows is compared as a whole (`dump`), with the memory engine as the oracle.
"""

import json
import random
import re
import sys
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

import limpet
from limpet import Scope, Snapshot, SnapshotInfo, Store
from limpet.backends.objects import keys

Write: TypeAlias = list[Any]
Dump: TypeAlias = dict[str, dict[str, Any]]

MINTED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
TEMPORARY = ".limpet-"
COLOURS = ("red", "green", "blue")
ALL = {
    "save", "draft", "aside", "append", "update", "overwrite",
    "delete", "prune", "note", "delete_note", "fork", "forget",
}  # fmt: skip
SHARED = random.Random(0).randbytes(20_000).hex()


def sealed(text: str) -> dict[str, Any]:
    """Return a state that shows by itself whether it is whole."""
    return {"sum": crc32(text.encode()), "text": text}


def text_of(seed: int) -> str:
    """Return a text of any size up to 80 KB; many have so much in common that deltas are stored."""
    chance = random.Random(seed)
    shared = SHARED[: chance.choice((0, 6_000, len(SHARED)))]
    return shared + chance.randbytes(chance.choice((1, 100, 3_000, 20_000))).hex()


# What is written


def choose(chance: random.Random, store: Store, tag: str) -> Write:
    """Choose the next write; most of those that change something name what is there."""
    weights = {
        "save": 6, "draft": 4, "aside": 2, "append": 4, "update": 5, "overwrite": 4,
        "delete": 5, "prune": 0.5, "note": 3, "delete_note": 1, "fork": 1.5, "forget": 0.4,
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
        case "prune":
            return [kind, name, chance.choice((8, 20))]
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
        case ["prune", name, keep_last]:
            store.scope("s", name).prune(keep_last=keep_last)
        case ["note", on, name, seed]:
            store.scope("s", "log").set_note(name, sealed(text_of(seed)), on=on)
        case ["delete_note", name]:
            store.scope("s", "log").delete_note(name)
        case ["fork", name, id, to]:
            if store.scope("s", name).info(id) is not None:
                patch = {"forked": True} if crc32(to.encode()) % 2 else None  # or it is shared
                store.scope("s", name).fork(id, scope_id=to, patch=patch)
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


def compare(found: Dump, before: Dump, after: Dump) -> str:
    """Return whether a write is done, or not."""
    if found == after:
        return "done"
    assert found == before, f"neither {before} nor {after}: {found}"
    return "not"


def say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run(*sys.argv[1:])
