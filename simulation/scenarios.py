"""The scenarios: what is stored when a run begins, and which actions the actors choose from.

To add one, add an entry to `SCENARIOS`; the tests and the command line take it from there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from simulation import actions as do
from simulation.actions import LABELS, MAIN, SIDE, Action
from simulation.client import Client


def _nothing(client: Client) -> None:
    """Begin with an empty store."""


def _some(client: Client) -> None:
    """Begin with two kept snapshots, one of them under a caller's id, or with nothing."""
    if client.dice.chance(750):
        client.save(MAIN, id="x")
        client.save(MAIN)


def _chain(client: Client) -> None:
    """Begin with a short history, whose head may be a draft."""
    for _ in range(2 + client.dice.below(2)):
        client.save(MAIN)
    if client.dice.chance(300):
        client.save(MAIN, keep=False)


def _uncovered(client: Client) -> None:
    """Begin with a history whose newest was just deleted."""
    for _ in range(3):
        client.save(MAIN)
    found = client.history(MAIN)
    if client.dice.chance(800):
        client.delete(MAIN, [found[0].id])


def _sessions(client: Client) -> None:
    """Begin with two scopes of one session."""
    client.save(MAIN, id="x")
    client.save(MAIN)
    client.save(SIDE)
    client.write_note(MAIN, "n")


def _labelled(client: Client) -> None:
    """Begin with labelled snapshots."""
    client.save(MAIN, id="x", labels=LABELS[0])
    client.save(MAIN, labels=LABELS[1])


def _noted(client: Client) -> None:
    """Begin with snapshots and notes on them."""
    client.save(MAIN, id="x")
    client.save(MAIN, id="y")
    client.write_note(MAIN, "n", on="x")
    client.write_note(MAIN, "m", on="y")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`menu` is what writers draw from, with repetitions as weights; `views` is for readers."""

    name: str
    title: str
    setup: Callable[[Client], None]
    menu: tuple[Action, ...]
    views: tuple[Action, ...] = (do.read_scope,)


_ALL = (
    Scenario(
        "A",
        "saves: kept, drafts, expecting, continuing",
        _some,
        (do.save, do.save, do.draft, do.save_expecting, do.save_expecting, do.save_on),
    ),
    Scenario(
        "B",
        "updates of the head, of others and of callers' ids; overwrites",
        _some,
        (
            do.update,
            do.update,
            do.update_twice,
            do.save,
            do.draft,
            do.overwrite,
            do.overwrite_found,
        ),
    ),
    Scenario(
        "C",
        "deletes of the head and of others",
        _chain,
        (do.delete, do.delete, do.delete_head, do.save, do.update, do.draft),
    ),
    Scenario(
        "D",
        "delete_session and delete_scope",
        _sessions,
        (do.delete_session, do.delete_scope, do.save, do.save, do.save_named, do.update, do.draft),
    ),
    Scenario(
        "E",
        "pruning",
        _uncovered,
        (do.prune, do.prune, do.delete_head, do.save_expecting, do.append, do.update, do.draft),
    ),
    Scenario(
        "F",
        "notes",
        _nothing,
        (do.write_note, do.write_new_note, do.update_note, do.update_note, do.delete_note, do.save),
        views=(do.read_notes,),
    ),
    Scenario(
        "G",
        "labels, and queries through the index",
        _labelled,
        (
            do.save_labelled,
            do.save_labelled,
            do.update_labels,
            do.delete,
            do.delete_named,
            do.draft,
        ),
        views=(do.query_index, do.query_index, do.read_scope),
    ),
    Scenario(
        "H",
        "forks and deletions of what they are forked from",
        _sessions,
        (
            *(do.fork, do.fork, do.fork, do.fork, do.delete_session, do.delete_session),
            *(do.delete_scope, do.save, do.update),
        ),
    ),
    Scenario(
        "I",
        "claims, and saves under leases that have passed",
        _some,
        (
            *(do.claim, do.claim, do.claim, do.claim, do.save_held, do.save_held, do.save_held),
            *(do.renew, do.release, do.save, do.draft, do.delete_session),
        ),
    ),
    Scenario(
        "J",
        "new notes that are stored with the save behind them",
        _some,
        (
            *(do.note_and_save, do.note_and_save, do.note_and_save),
            *(do.write_new_note, do.save, do.delete_note, do.delete_named, do.delete_session),
        ),
        views=(do.read_notes, do.read_scope),
    ),
    Scenario(
        "K",
        "callers' ids, and saves that are sent again",
        _some,
        (do.save_named, do.save_named, do.save_again, do.save_again, do.save, do.update),
    ),
    Scenario(
        "L",
        "one id is deleted and saved again",
        _some,
        (do.delete_and_save, do.delete_named, do.save_named, do.update, do.save),
    ),
    Scenario(
        "N",
        "saves to history only, and their order",
        _some,
        (do.aside, do.aside, do.save, do.update, do.delete, do.draft),
    ),
    Scenario(
        "P",
        "appends",
        _chain,
        (do.append, do.append, do.append, do.save, do.delete_head, do.update, do.draft),
    ),
    Scenario(
        "Q",
        "notes on snapshots that are deleted",
        _noted,
        (do.write_note_on, do.write_note_on, do.delete_named, do.delete_named, do.save_named),
        views=(do.read_notes, do.read_scope),
    ),
    Scenario(
        "R",
        "writes whose outcome is not known are sent again",
        _some,
        (do.reissue, do.reissue, do.reissue, do.save, do.update, do.delete_named),
    ),
    Scenario(
        "S",
        "a session is deleted while it is written to",
        _sessions,
        (do.delete_session, do.save_on, do.save_on, do.read_scope),
    ),
    Scenario(
        "T",
        "forks of one state, saves to them, and updates of what they are forked from",
        _sessions,
        (
            *(do.branch, do.branch, do.branch, do.branch, do.update, do.update),
            *(do.save_branch, do.delete_branch),
        ),
    ),
    Scenario(
        "V",
        "changes of what is shown since the head was deleted",
        _uncovered,
        (do.append, do.append, do.save_expecting, do.update_newest, do.delete_newest),
    ),
    Scenario(
        "Z",
        "everything together",
        _sessions,
        (
            *(do.save, do.draft, do.save_expecting, do.save_on, do.save_named, do.save_again),
            *(do.reissue, do.overwrite, do.overwrite_found, do.append, do.save_labelled),
            *(do.update, do.update_twice, do.update_labels, do.fork, do.delete, do.delete_head),
            *(do.delete_and_save, do.prune, do.delete_session, do.delete_scope, do.write_note),
            *(do.update_note, do.delete_note, do.aside, do.claim, do.save_held),
        ),
        views=(do.read_scope, do.read_scope, do.query_index, do.read_notes),
    ),
)

SCENARIOS: Final = {scenario.name: scenario for scenario in _ALL}
