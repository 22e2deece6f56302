"""A process that writes until it is killed, and says before and after each write what it does.

Lines of JSON: `["try", write]` before a write is begun, `["done"]` once it is acknowledged. The
writes are chosen by a seed, so that a failure can be replayed.
"""

import json
import random
import sys
from typing import Any, TypeAlias
from zlib import crc32

import limpet
from limpet import Snapshot, Store

Write: TypeAlias = list[Any]
Model: TypeAlias = dict[str, Any]

SESSION = "s"
DELETES = {"delete", "delete_note", "forget"}


def sealed(text: str) -> dict[str, Any]:
    """Return a state that shows by itself whether it is whole."""
    return {"sum": crc32(text.encode()), "text": text}


def sum_of(state: Any) -> int:
    """Return the checksum of a state that is whole."""
    assert state == sealed(state["text"])
    return int(state["sum"])


def text_of(seed: int) -> str:
    """Return a text of any size up to 40 KB that does not compress well, or one that does."""
    chance = random.Random(seed)
    size = chance.choice((1, 100, 3_000, 20_000, 0))
    return chance.randbytes(size).hex() if size else f"turn {seed} " * 2_000


def choose(chance: random.Random, model: Model, tag: str) -> Write:
    """Choose the next write; those that remove something name what is there."""
    kinds = ["save", "save", "append", "draft", "draft", "update", "note", *sorted(DELETES)]
    kind = chance.choices(kinds, [4, 4, 4, 3, 3, 4, 3, 2, 1, 0.2])[0]
    seed = chance.getrandbits(32)
    match kind:
        case "delete":
            ids = [id for id, _ in model["log"]] or ["nothing"]
            return [kind, chance.choice(ids)]
        case "delete_note":
            return [kind, chance.choice(sorted(model["notes"]) or ["nothing"])]
        case "note":
            return [kind, f"name-{chance.randrange(5)}", seed]
        case "append":
            return [kind, tag]
        case "forget" | "update":
            return [kind]
    return [kind, tag, seed]


def perform(store: Store, write: Write) -> None:
    log, chat = store.scope(SESSION, "log"), store.scope(SESSION, "chat")
    match write:
        case ["save", id, seed]:
            log.save(sealed(text_of(seed)), id=id, labels={"kind": "log"})
        case ["draft", id, seed]:
            store.scope(SESSION, "draft").save(sealed(text_of(seed)), id=id, keep=False)
        case ["append", item]:
            chat.append("items", [item])
        case ["update"]:
            store.scope(SESSION, "counter").update("counter", plus_one)
        case ["note", name, seed]:
            log.set_note(name, sealed(text_of(seed)))
        case ["delete", id]:
            log.delete_snapshot(id)
        case ["delete_note", name]:
            log.delete_note(name)
        case ["forget"]:
            chat.delete()


def plus_one(before: Snapshot) -> Snapshot:
    return before.with_(state={"count": before.state["count"] + 1})


def predict(model: Model, write: Write) -> Model:
    """Return what a store shows after a write: the same facts as `observe`."""
    model = {**model, "notes": dict(model["notes"])}
    match write:
        case ["save", id, seed]:
            model["log"] = [*model["log"], [id, crc32(text_of(seed).encode())]]
        case ["draft", id, seed]:
            model["draft"] = [id, crc32(text_of(seed).encode())]
        case ["append", item]:
            model["chat"] = [*model["chat"], item]
        case ["update"]:
            model["counter"] += 1
        case ["note", name, seed]:
            model["notes"][name] = crc32(text_of(seed).encode())
        case ["delete", id]:
            model["log"] = [entry for entry in model["log"] if entry[0] != id]
        case ["delete_note", name]:
            model["notes"].pop(name, None)
        case ["forget"]:
            model["chat"] = []
    return model


def observe(store: Store) -> Model:
    """Return what a store shows, after checking that all of it is whole and agrees with itself."""
    log, chat = store.scope(SESSION, "log"), store.scope(SESSION, "chat")
    infos = list(log.history())[::-1]
    states = list(log.load_many(info.id for info in infos))
    assert [found.id for found in states] == [info.id for info in infos]
    assert [found.id for found in log.history(labels={"kind": "log"})][::-1] == [
        info.id for info in infos
    ]
    assert list(log.ids()) == sorted(info.id for info in infos)
    head, said = log.info(), chat.load()
    assert (head and head.id) == (infos[-1].id if infos else None)
    items = [] if said is None else said.state["items"]
    assert sum(1 for _ in chat.history()) == len(items)
    draft = store.scope(SESSION, "draft").load()
    assert list(store.scope(SESSION, "draft").history()) == []
    counter = store.scope(SESSION, "counter").load("counter")
    assert counter is not None
    return {
        "log": [[found.id, sum_of(found.state)] for found in states],
        "chat": items,
        "draft": None if draft is None else [draft.id, sum_of(draft.state)],
        "counter": counter.state["count"],
        "notes": {note.name: sum_of(note.value) for note in log.notes()},
    }


def main() -> None:
    url, seed, tag = sys.argv[1:]
    chance = random.Random(seed)
    with limpet.open(url) as store:
        model = observe(store)
        say(["begin", model])
        number = 0
        while True:
            number += 1
            write = choose(chance, model, f"{tag}-{number:04}")
            say(["try", write])
            perform(store, write)
            say(["done"])
            model = predict(model, write)


def say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
