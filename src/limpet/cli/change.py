"""`limpet fork`, `restore`, `rm`, `prune` and `redact`: change what a store holds."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import click

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    Count,
    address_options,
    complete_session,
    confirm,
    duration,
    echo_json,
    echo_skipped,
    parse_json,
    with_store,
    yes_option,
)
from limpet.cli._terminal import make_console, say
from limpet.core.wire import info_json
from limpet.opening import CLOCK
from limpet.retention import Deleted, Policy, Swept
from limpet.views.format import address_text, count_text, short_id, size_text, visible
from limpet.views.overview import ScopeHead, scope_counts
from limpet.views.preview import pruned_sum, scopes_to_prune
from limpet.views.refs import find_snapshot, is_exact


@click.command()
@click.argument("ref", metavar="REF", shell_complete=complete_session)
@click.option("--to", metavar="SESSION", help="The session of the new scope. Default: the same.")
@click.option("--as", "scope_id", metavar="SCOPE", help="The id of the new scope.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=JSON",
    help="Replace a top-level key of the state. May be repeated.",
)
@address_options
@with_store(write=True)
def fork(
    store: limpet.Store,
    ref: str,
    to: str | None,
    scope_id: str | None,
    changes: tuple[str, ...],
    as_json: bool,
    **address: str | None,
) -> None:
    """Start a new scope from snapshot REF.

    Prints the new scope. The original scope does not change. Without --as, the new scope gets
    a generated id (`main~k3x9…`), or in another session the same id. The exit code is 3 if the
    scope exists already.

    \b
    --json: {"scope": {"session_id": text, "scope_id": text, "kind": text},
             "head": the first snapshot of the new scope}

    \b
    Examples:
      limpet fork chat-42@~3
      limpet fork @ -s chat-42 --to chat-43 --set 'mood="bold"' --set 'step=0'
    """
    patch = dict(_change(text) for text in changes)
    source = find_snapshot(store, ref, **address)
    made = store.scope(*source.scope).fork(source.id, to=to, scope_id=scope_id, patch=patch or None)
    if as_json:
        head = made.info()
        first = None if head is None else info_json(head)
        echo_json({"scope": made.key._asdict(), "head": first})
        return
    hint = f"  forked from {visible(short_id(source.id))}"
    is_script = not make_console().is_terminal  # which gets only the name
    say((visible(address_text(made.key)), "fork"), ("" if is_script else hint, "quiet"))


def _change(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    hint = "quote a text as JSON: --set 'name=\"value\"'"
    if not equals:
        raise click.BadParameter(f"expected KEY=JSON; {hint}", param_hint="--set")
    try:
        return key, parse_json(value.encode())
    except ValueError:  # the value may be a secret, so it is not shown
        message = f"the value of `{key}` is not JSON; {hint}"
        raise click.BadParameter(message, param_hint="--set") from None


@click.command()
@click.argument("ref", metavar="REF", shell_complete=complete_session)
@address_options
@click.option(
    "--expect", metavar="REVISION", help="Only if the head still has this revision (from --json)."
)
@yes_option
@with_store(write=True)
def restore(
    store: limpet.Store,
    ref: str,
    expect: str | None,
    yes: bool,
    as_json: bool,
    **address: str | None,
) -> None:
    """Make an earlier state the current one again.

    Saves the state of REF as a new snapshot with REF as its parent. The previous head stays in the
    history; if it is a draft it would be lost, so the command asks first. If another process saves
    at the same time, nothing is changed and the exit code is 3. If REF is the head, nothing
    happens.

    \b
    --json: {"restored": the snapshot REF, "before": the head before, or null,
             "head": the head now, "changed": true or false}

    \b
    Examples:
      limpet restore chat-42@~1
      limpet restore 019ab3f0 -s chat-42
    """
    source = find_snapshot(store, ref, **address)
    scope = store.scope(*source.scope)
    before = scope.info()
    seen = None if before is None else before.revision
    if expect not in (None, seen):
        raise limpet.Conflict(f"the head has another revision now. revision=`{seen}`")
    head = before if before is not None and before.id == source.id else None
    if head is None:
        if before is not None and not before.kept:
            confirm(
                f"The head {visible(before.id)} is a draft and will be lost. Continue?", yes=yes
            )
        head = scope.restore(source.id, expect=seen)
    changed = head.revision != seen
    if as_json:
        old = None if before is None else info_json(before)
        shape = {"restored": info_json(source), "before": old, "head": info_json(head)}
        echo_json({**shape, "changed": changed})
    else:
        _draw_restored(source, before, head if changed else None)


def _draw_restored(
    source: limpet.SnapshotInfo,
    before: limpet.SnapshotInfo | None,
    head: limpet.SnapshotInfo | None,
) -> None:
    place, restored = (visible(address_text(source.scope)), "title"), visible(short_id(source.id))
    if head is None:
        say(place, f"  {restored} is already the head; nothing was done")
        return
    fate = ""
    if before is not None:
        fate = "stays in history" if before.kept else "was a draft and is lost"
        fate = f"; {visible(short_id(before.id))} {fate}"
    new = (visible(short_id(head.id)), "accent")
    state = (" has the state of ", (restored, "accent"))
    say(place, "  ", ("◆ ", "good"), new, *state, (fate, "quiet"))


_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class _Deletion:
    """Something to delete: its address, its size (None if damaged), and how."""

    delete: Callable[[], int]
    session_id: str
    scope_id: str | None = None
    kind: str | None = None
    id: str | None = None
    snapshots: int | None = None
    bytes: int | None = None

    @property
    def name(self) -> str:
        place = visible(self.session_id)
        if self.scope_id is None:
            return f"session {place}"
        place = f"{place}:{visible(self.scope_id)}"
        if self.id is None:
            return f"scope {place} ({visible(self.kind or '')})"
        return f"snapshot {place}@{visible(self.id)}"


@click.command()
@click.argument("sessions", metavar="[SESSION]...", nargs=-1, shell_complete=complete_session)
@click.option("--prefix", metavar="TEXT", help="Every session with this prefix.")
@click.option("--snapshot", "ref", metavar="REF", help="Only this snapshot.")
@address_options
@yes_option
@with_store(write=True)
def rm(
    store: limpet.Store,
    sessions: tuple[str, ...],
    prefix: str | None,
    ref: str | None,
    yes: bool,
    as_json: bool,
    **address: str | None,
) -> None:
    """Delete sessions, or one scope, or one snapshot.

    Shows what will be deleted and asks; without a terminal --yes is required. Sessions and scopes
    must be written in full. Each is reported when it is deleted: after an interruption, run the
    command again for the rest.

    \b
    --json: a line for each session, scope or snapshot, as it is deleted:
            {"session_id": text, "scope_id": text or null, "kind": text or null,
             "id": text or null, "snapshots": how many were deleted}

    \b
    Examples:
      limpet rm chat-42 chat-43
      limpet rm -s chat-42 --scope planner
      limpet rm --snapshot chat-42@~3
      limpet rm --prefix alice/ --yes
    """
    forms = (bool(sessions), prefix is not None, ref is not None or bool(address["scope"]))
    if sum(forms) != 1 or prefix == "" or (forms[0] and (address["session"] or address["kind"])):
        raise click.UsageError("give one of SESSION..., --prefix, -s with --scope, or --snapshot")
    if ref is not None:
        deletions = [_one_snapshot(store, ref, address)]
    elif address["scope"]:
        deletions = [_one_scope(store, address)]
    else:
        names = sessions if prefix is None else store.sessions(prefix=prefix)
        deletions = [_one_session(store, name) for name in dict.fromkeys(names)]
    if not deletions:
        raise limpet.NotFound(f"there is no such session. prefix=`{prefix}`")
    if not yes:
        _draw_deletions(deletions)
    confirm("Delete for good?", yes=yes)
    _delete_each(deletions, as_json=as_json)


def _one_session(store: limpet.Store, session_id: str) -> _Deletion:
    if next(iter(store.scopes(session_id)), None) is None:
        raise limpet.NotFound(f"there is no such session. session_id=`{session_id}`")
    delete = partial(store.delete_session, session_id)
    try:
        found = store.stats(session_id)
    except limpet.Corrupt:
        return _Deletion(delete, session_id)
    return _Deletion(delete, session_id, snapshots=found.snapshots, bytes=found.logical_bytes)


def _one_scope(store: limpet.Store, address: dict[str, str | None]) -> _Deletion:
    session_id, scope_id = address["session"], address["scope"]
    if not session_id:
        raise click.UsageError("--scope needs -s SESSION")
    scopes = store.scopes(session_id, kind=address["kind"])
    found = [each for each in scopes if each.key.scope_id == scope_id]
    where = f"session_id=`{session_id}` scope_id=`{scope_id}`"
    if not found:
        raise limpet.NotFound(f"there is no such scope. {where}")
    if len(found) > 1:
        kinds = ", ".join(each.key.kind for each in found)
        raise limpet.InvalidInput(
            f"several scopes have this name: give --kind. {where} found=`{kinds}`"
        )
    key, head = found[0].key, found[0].head
    # A save after this listing was not confirmed for deletion: it makes this a Conflict.
    delete = partial(store.scope(*key).delete, expect=limpet.ANY if head is None else head.revision)
    counts, _ = scope_counts(store, ScopeHead(key, head))
    return _Deletion(delete, *key, snapshots=counts.snapshots, bytes=counts.logical_bytes)


def _one_snapshot(store: limpet.Store, ref: str, address: dict[str, str | None]) -> _Deletion:
    info = find_snapshot(store, ref, **address)
    if not is_exact(store, ref, info, **address):
        raise limpet.InvalidInput(
            f"write the snapshot, its session and its scope in full. ref=`{ref}`"
        )
    delete = partial(store.scope(*info.scope).delete_snapshot, info.id)
    return _Deletion(delete, *info.scope, info.id, 1, info.size)


def _draw_deletions(deletions: list[_Deletion]) -> None:
    for each in deletions[:_SHOWN_MAX]:
        say(("- ", "bad"), f"{each.name}  ", (_amount_of([each]), "quiet"), stderr=True)
    if len(deletions) > _SHOWN_MAX:
        say((f"  … and {len(deletions) - _SHOWN_MAX:,} more", "quiet"), stderr=True)
    if len(deletions) > 1:
        total = f"{count_text(len(deletions), 'session')}, {_amount_of(deletions)}"
        say((total, "title"), stderr=True)


def _amount_of(deletions: list[_Deletion]) -> str:
    snapshots = sum(each.snapshots or 0 for each in deletions)
    size = sum(each.bytes or 0 for each in deletions)
    unknown = ", and damaged data" if any(each.snapshots is None for each in deletions) else ""
    return f"{count_text(snapshots, 'snapshot')}, {size_text(size)}{unknown}"


def _delete_each(deletions: list[_Deletion], *, as_json: bool) -> None:
    for each in deletions:
        count = each.delete()
        if as_json:
            fields = ("session_id", "scope_id", "kind", "id")
            shape = {name: getattr(each, name) for name in fields}
            echo_json({**shape, "snapshots": count}, indent=None)
        else:
            say(f"deleted {each.name}", (f"  {count_text(count, 'snapshot')}", "quiet"))


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.argument("scope", required=False)
@click.option("--keep-last", type=Count(0), metavar="N", help="Keep the newest N of each scope.")
@click.option(
    "--older-than", type=duration, metavar="TIME", help="Keep younger ones: 90s 15m 12h 30d 8w."
)
@click.option("--all", "everywhere", is_flag=True, help="In all sessions of the store.")
@click.option("--prefix", metavar="TEXT", default="", help="In all sessions with this prefix.")
@click.option("--kind", metavar="KIND", help="Only in scopes of this kind.")
@click.option("--policy", is_flag=True, help="By the rules of `limpet policy`.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@yes_option
@with_store(write=True)
def prune(
    store: limpet.Store,
    session: str | None,
    scope: str | None,
    policy: bool,
    keep_last: int | None,
    older_than: timedelta | None,
    everywhere: bool,
    prefix: str,
    kind: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Delete old snapshots of a SESSION, or of one SCOPE of it.

    Deletes snapshots that are not among the newest --keep-last and are older than --older-than; at
    least one of the two is required. A head is never deleted. Shows what will be deleted and asks,
    except with --yes or --dry-run. SESSION and SCOPE must be written in full.

    With --policy by the stored rules instead, also whole sessions and expired items of memory.

    \b
    --json: a line for each scope from which snapshots are deleted:
            {"session_id": text, "scope_id": text, "kind": text,
             "count": snapshots, "bytes": of their states,
             "dry_run": true or false}
            with --policy both are null for a whole session; then {"sessions": n,
            "snapshots": n, "bytes": n, "items": n, "skipped": sessions}

    \b
    Examples:
      limpet prune chat-42 --keep-last 20
      limpet prune --all --older-than 30d --keep-last 5 --dry-run
      limpet prune --policy --yes
    """
    if (session is not None) + everywhere + bool(prefix) + policy != 1:
        raise click.UsageError("give one of SESSION, --all, --prefix or --policy")
    if policy == (keep_last is not None or older_than is not None) or (policy and kind):
        raise click.UsageError("give --keep-last or --older-than, or both; or --policy alone")
    if policy:
        return _prune_by_policy(store, dry_run=dry_run, yes=yes, as_json=as_json)
    damaged: list[limpet.Corrupt] = []
    pruned = partial(_pruned, store, damaged, CLOCK.monotonic(), keep_last, older_than)
    scopes: Iterable[limpet.ScopeKey] = scopes_to_prune(store, session, scope, kind, prefix)
    asks = not dry_run and not yes
    if asks:
        deletions = list(_drawn(pruned(scopes, dry_run=True), stderr=True))
        if deletions:
            total = pruned_sum(each for _, each in deletions)
            confirm(f"Delete {_amount(total)} for good?", yes=False)
        scopes = [key for key, _ in deletions]
    done = pruned(scopes, dry_run=dry_run)
    if as_json:
        for key, each in done:
            _echo_pruned(key._asdict(), each.count, each.bytes, dry_run=dry_run)
    else:
        some = list(done if asks else _drawn(done))
        _draw_pruned_sum([each for _, each in some], dry_run=dry_run)
    return _exits.CORRUPT if damaged else _exits.FINE


def _prune_by_policy(store: limpet.Store, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    rules, asks = Policy(store), not dry_run and not yes

    def echo(each: Deleted) -> None:
        whole = {"session_id": each.session_id, "scope_id": None, "kind": None}
        place = each.scope._asdict() if each.scope else whole
        _echo_pruned(place, each.snapshots, each.bytes, dry_run=dry_run)

    def draw(each: Deleted) -> None:
        name = address_text(each.scope) if each.scope else f"session {each.session_id}"
        amount = f"  {_amount(limpet.Pruned(each.snapshots, each.bytes))}"
        say(("- ", "bad"), (visible(name), "title"), (amount, "size"), stderr=asks)

    if asks and any(plan := rules.apply(dry_run=True, report=draw)):
        confirm(f"Delete {_swept_text(plan)} for good?", yes=False)
    swept = rules.apply(dry_run=dry_run, report=echo if as_json else None if asks else draw)
    if as_json:
        echo_json(dict(zip(swept._fields[:-1], swept, strict=False)), indent=None)
    else:
        verb = "would delete" if dry_run else "deleted"
        say((f"{verb} {_swept_text(swept)}", "odd" if dry_run else "good"))
        if swept.skipped:
            say((f"left: {count_text(swept.skipped, 'session')}, in use or damaged", "odd"))
    return _exits.FINE


def _echo_pruned(place: dict[str, Any], count: int, size: int, *, dry_run: bool) -> None:
    echo_json({**place, "count": count, "bytes": size, "dry_run": dry_run}, indent=None)


def _swept_text(swept: Swept) -> str:
    amount = _amount(limpet.Pruned(swept.snapshots, swept.bytes))
    sessions, items = count_text(swept.sessions, "session"), count_text(swept.items, "item")
    return f"{sessions}, {amount}, {items}"


def _pruned(
    store: limpet.Store,
    damaged: list[limpet.Corrupt],
    begun: float,
    keep_last: int | None,
    older_than: timedelta | None,
    scopes: Iterable[limpet.ScopeKey],
    *,
    dry_run: bool,
) -> Iterator[tuple[limpet.ScopeKey, limpet.Pruned]]:
    """Prune each scope, and yield those that had something to delete; skip damaged ones."""
    for key in scopes:
        # Nothing may become too old while the question waits for its answer.
        waited = timedelta(seconds=CLOCK.monotonic() - begun)
        age = None if older_than is None else older_than + waited
        try:
            found = store.scope(*key).prune(keep_last=keep_last, older_than=age, dry_run=dry_run)
        except limpet.Corrupt as error:
            damaged.append(error)
            echo_skipped(str(error))
            continue
        if found.count:
            yield key, found


def _amount(pruned: limpet.Pruned) -> str:
    return f"{count_text(pruned.count, 'snapshot')}, {size_text(pruned.bytes)}"


def _drawn(
    some: Iterable[tuple[limpet.ScopeKey, limpet.Pruned]], *, stderr: bool = False
) -> Iterator[tuple[limpet.ScopeKey, limpet.Pruned]]:
    for key, pruned in some:
        name, amount = visible(address_text(key)), f"  {_amount(pruned)}"
        say(("- ", "bad"), (name, "title"), (amount, "size"), stderr=stderr)
        yield key, pruned


def _draw_pruned_sum(some: list[limpet.Pruned], *, dry_run: bool) -> None:
    if not some:
        say(("nothing to delete", "good"))
        return
    verb = "would delete" if dry_run else "deleted"
    line = f"{verb} {_amount(pruned_sum(some))}, from {count_text(len(some), 'scope')}"
    say((line, "odd" if dry_run else "good"))


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("scope", required=False)
@click.option("--path", metavar="POINTER", help="What is at this place, as `limpet diff` shows it.")
@click.option("--text", metavar="TEXT", help="Every text that contains this.")
@yes_option
@with_store(write=True)
def redact(
    store: limpet.Store,
    session: str,
    scope: str | None,
    path: str | None,
    text: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Replace content in all snapshots of a SESSION or SCOPE.

    It becomes null, also in drafts, notes, and forks in the session; ids and names stay. An object
    with the --text in one of its keys is replaced as a whole. Asks first; without a terminal --yes
    is required. SESSION and SCOPE must be written in full. Run `limpet compact` afterwards: it
    removes the bytes from storage.

    \b
    --json: a line for each scope, with its forks:
            {"session_id": text, "scope_id": text, "kind": text,
             "snapshots": how many were changed, "notes": how many}

    \b
    Examples:
      limpet redact chat-42 --text alice@example.com
      limpet redact chat-42 planner --path /messages/3/content
    """
    if (path is None) == (text is None) or text == "":
        raise click.UsageError("give one of --path and --text")

    def has_text(_: str, value: limpet.JSON) -> bool:
        texts = [value] if isinstance(value, str) else value if isinstance(value, dict) else ()
        return any(str(text) in each for each in texts)

    scopes = list(scopes_to_prune(store, session, scope, None, ""))
    count = count_text(len(scopes), "scope")
    confirm(f"Replace it in all snapshots of {count} for good?", yes=yes)
    for key in scopes:
        done = store.scope(*key).redact(has_text if path is None else path)
        if as_json:
            facts = {"snapshots": done.snapshots, "notes": done.notes}
            echo_json({**key._asdict(), **facts}, indent=None)
            continue
        changed = f"{count_text(done.snapshots, 'snapshot')}, {count_text(done.notes, 'note')}"
        say(f"{visible(address_text(key))}  ", (f"changed: {changed}", "quiet"))
