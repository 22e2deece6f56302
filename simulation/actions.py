"""What an actor may do in one step. Each action takes a client, and its dice decide the rest."""

from collections.abc import Callable
from typing import Final, TypeAlias

from limpet.model import ANY, Expect, ScopeKey
from limpet.protocol import Query
from simulation.client import Client
from simulation.history import UNKNOWN

Action: TypeAlias = Callable[[Client], None]

MAIN: Final = ScopeKey("s", "main")
SIDE: Final = ScopeKey("s", "side")
FORKS: Final = (ScopeKey("s", "fork"), ScopeKey("t", "fork"))
BRANCHES: Final = (FORKS[0], ScopeKey("s", "branch"))
NAMES: Final = ("x", "y")  # ids that callers choose
NOTES: Final = ("n", "m")
LABELS: Final = ({"l": "1"}, {"l": "2"}, {"l": "1", "k": ""})


def some_id(client: Client, scope: ScopeKey = MAIN) -> str:
    """Return an id: mostly of a snapshot that is there, the newest more often than others."""
    found = client.history(scope)
    if not found or client.dice.chance(150):
        return client.dice.choice(NAMES)
    return found[0 if client.dice.chance(400) else client.dice.below(len(found))].id


# Saving


def save(client: Client) -> None:
    """Save with a minted id."""
    client.save(MAIN)


def draft(client: Client) -> None:
    """Save a head that is not kept."""
    client.save(MAIN, keep=False)


def save_expecting(client: Client) -> None:
    """Save on top of what this process has seen last, or of nothing."""
    if MAIN not in client.known:
        client.info(MAIN)
    expect = client.known.get(MAIN, ANY)
    client.save(MAIN, expect=expect, keep=client.dice.chance(700))


def save_on(client: Client) -> None:
    """Save several times in a row, as a continuing writer does."""
    for _ in range(2 + client.dice.below(2)):
        client.save(MAIN, keep=client.dice.chance(700))


def save_named(client: Client) -> None:
    """Save under an id that others may choose as well; sometimes a body that others save too."""
    log = ["same"] if client.dice.chance(250) else None
    keep = client.dice.chance(800)
    client.save(MAIN, id=client.dice.choice(NAMES), log=log, keep=keep)


def save_again(client: Client) -> None:
    """Save under a caller's id, and save the same once more, as after a lost answer."""
    log, id = [client.world.tag(client.name)], client.dice.choice(NAMES)
    op = client.save(MAIN, log=log, id=id)
    if op.outcome == UNKNOWN or (op.ok and client.dice.chance(500)):
        client.save(MAIN, log=log, id=id)


def reissue(client: Client) -> None:
    """Save, append or update; if the outcome is unknown, repeat it with `again`."""
    throw = client.dice.below(4)
    if throw == 0:
        op = client.update(MAIN, some_id(client))
        if op is None:
            return
    elif throw == 1:
        op = client.append(MAIN, keep=client.dice.chance(700))
    elif throw == 2:
        op = client.save(MAIN, id=client.dice.choice(NAMES))
    else:
        op = client.save(MAIN, keep=client.dice.chance(700))
    if op.outcome == UNKNOWN:
        client.commit(op.given["commit"]._replace(again=True))


def overwrite(client: Client) -> None:
    """Replace the snapshot of a caller's id, or save it."""
    client.save(MAIN, id=client.dice.choice(NAMES), overwrite=True)


def overwrite_found(client: Client) -> None:
    """Replace a snapshot that is there."""
    client.save(MAIN, id=some_id(client), overwrite=True)


def aside(client: Client) -> None:
    """Save to history only."""
    id = client.dice.choice((None, *NAMES))
    client.save(MAIN, id=id, head=False, overwrite=client.dice.chance(300))


def append(client: Client) -> None:
    """Append an item to the head."""
    expect = client.known.get(MAIN, ANY) if client.dice.chance(200) else ANY
    client.append(MAIN, keep=client.dice.chance(700), expect=expect)


def save_labelled(client: Client) -> None:
    """Save with labels."""
    id = client.dice.choice(NAMES) if client.dice.chance(200) else None
    client.save(MAIN, id=id, labels=client.dice.choice(LABELS), overwrite=client.dice.chance(500))


# Changing


def update(client: Client) -> None:
    """Update the head or another snapshot."""
    client.update(MAIN, some_id(client))


def update_twice(client: Client) -> None:
    """Update one snapshot twice."""
    id = some_id(client)
    client.update(MAIN, id)
    client.update(MAIN, id)


def update_newest(client: Client) -> None:
    """Update the newest kept snapshot: what a head without a snapshot shows."""
    found = client.history(MAIN)
    if found:
        client.update(MAIN, found[0].id)


def update_labels(client: Client) -> None:
    """Give a snapshot other labels."""
    client.update(MAIN, some_id(client), client.dice.choice(LABELS))


def fork(client: Client) -> None:
    """Fork a snapshot into a scope of its own, in this session or another."""
    read = client.read(MAIN, *([some_id(client)] if client.dice.chance(600) else []))
    if read.ok and read.answer:
        client.fork(read.answer[0], client.dice.choice(FORKS))


def branch(client: Client) -> None:
    """Fork the head, or another snapshot, into one of two scopes of this session."""
    read = client.read(MAIN, *([some_id(client)] if client.dice.chance(300) else []))
    if read.ok and read.answer:
        client.fork(read.answer[0], client.dice.choice(BRANCHES))


def save_branch(client: Client) -> None:
    """Go on in a fork."""
    scope = client.dice.choice(BRANCHES)
    for _ in range(1 + client.dice.below(3)):
        client.save(scope)


# Deleting


def delete(client: Client) -> None:
    """Delete the head or another snapshot."""
    client.delete(MAIN, [some_id(client)])


def delete_newest(client: Client) -> None:
    """Delete the newest kept snapshot: what a head without a snapshot shows."""
    found = client.history(MAIN)
    if found:
        client.delete(MAIN, [found[0].id])


def delete_named(client: Client) -> None:
    """Delete the snapshot of a caller's id."""
    client.delete(MAIN, [client.dice.choice(NAMES)])


def delete_and_save(client: Client) -> None:
    """Delete the snapshot of a caller's id, and save something else under it."""
    id = client.dice.choice(NAMES)
    client.delete(MAIN, [id])
    client.save(MAIN, id=id)


def delete_head(client: Client) -> None:
    """Delete the head."""
    found = client.info(MAIN)
    if found.ok and found.answer is not None:
        client.delete(MAIN, [found.answer.id])


def prune(client: Client) -> None:
    """Delete several at once, but not the head."""
    found = [info.id for info in client.history(MAIN)]
    chosen = [id for id in found if client.dice.chance(600)]
    if chosen:
        client.delete(MAIN, chosen, spare_head=True)


def delete_session(client: Client) -> None:
    """Delete the session."""
    client.delete_session(MAIN.session_id)


def delete_scope(client: Client) -> None:
    """Delete the scope, whatever it shows or only if it shows what was seen last."""
    expect: Expect = client.known.get(MAIN, ANY) if client.dice.chance(500) else ANY
    client.delete_scope(MAIN, expect)


def delete_branch(client: Client) -> None:
    """Delete a fork."""
    client.delete_scope(client.dice.choice(BRANCHES))


# Leases

_TTLS_US: Final = (0, 0, 3_600_000_000)  # expired at once, or long


def claim(client: Client) -> None:
    """Claim a lease, read, and save under it."""
    client.claim(MAIN, client.dice.choice(_TTLS_US))
    if client.dice.chance(500):
        client.history(MAIN)
    save_held(client)


def save_held(client: Client) -> None:
    """Save some under the lease that this process thinks it has."""
    key = client.keys.get(MAIN)
    if key is None:
        return
    for _ in range(1 + client.dice.below(2)):
        client.save(MAIN, fence=key, keep=client.dice.chance(700))


def renew(client: Client) -> None:
    """Renew a lease, and save under it."""
    if MAIN in client.keys:
        client.renew(MAIN, client.dice.choice(_TTLS_US))
    save_held(client)


def release(client: Client) -> None:
    """Give a lease back; sometimes save under it all the same."""
    if MAIN in client.keys:
        client.release(MAIN)
        save_held(client)


# Notes


def _note_target(client: Client) -> str | None:
    return client.dice.choice((None, None, NAMES[0]))


def write_note(client: Client) -> None:
    """Write a note, whatever it says."""
    client.write_note(MAIN, client.dice.choice(NOTES), on=_note_target(client))


def write_note_on(client: Client) -> None:
    """Write a note on a snapshot id."""
    client.write_note(MAIN, client.dice.choice(NOTES), on=client.dice.choice(NAMES))


def write_new_note(client: Client) -> None:
    """Write a note that must not be there yet."""
    client.write_note(MAIN, client.dice.choice(NOTES), on=_note_target(client), expect=None)


def note_and_save(client: Client) -> None:
    """Save, and save once more while a new note waits for that."""
    client.save(MAIN)
    client.note_and_save(MAIN, client.dice.choice(NOTES), on=_note_target(client))


def update_note(client: Client) -> None:
    """Add to what a note says."""
    client.update_note(MAIN, client.dice.choice(NOTES), on=_note_target(client))


def delete_note(client: Client) -> None:
    """Delete a note."""
    client.delete_note(MAIN, client.dice.choice(NOTES), on=_note_target(client))


# Reading


def read_notes(client: Client) -> None:
    """List notes."""
    client.notes(MAIN, on=_note_target(client))


def read_scope(client: Client) -> None:
    """Read in some way."""
    throw = client.dice.below(8)
    if throw == 0:
        client.read(MAIN)
    elif throw == 7:
        client.pages(MAIN)
    elif throw == 1:
        client.info(MAIN)
    elif throw == 2:
        client.read(MAIN, some_id(client))
    elif throw == 3:
        client.info(MAIN, some_id(client))
    elif throw == 4:
        client.ids(MAIN)
    else:
        client.history(MAIN)


def query_index(client: Client) -> None:
    """Find by label or by id."""
    throw = client.dice.below(3)
    labels = tuple(client.dice.choice(LABELS).items())
    if throw == 0:
        client.query(Query(labels=labels))
    elif throw == 1:
        client.query(Query(MAIN, labels=labels))
    else:
        client.query(Query(id=client.dice.choice(NAMES)))


# Upkeep


def sweep(client: Client) -> None:
    """Remove what dead processes have left over."""
    client.sweep()


def check(client: Client) -> None:
    """Check everything."""
    client.check(repair=False)


def repair(client: Client) -> None:
    """Check everything, and repair it."""
    client.check(repair=True)
