"""A run in words: what a failing seed prints."""

from collections.abc import Iterable
from typing import Any

import orjson

from limpet.backends.objects.building import part_keys
from limpet.backends.objects.format import Fact, StoredSegment, parse_page
from limpet.backends.objects.heads import parse_head
from limpet.core.segments import Segment
from limpet.errors import LimpetError
from limpet.model import ANY, Note, SnapshotInfo
from limpet.protocol import Append, Claim, Commit, NoteWrite, Query
from simulation.history import CRASH, OK, Op
from simulation.scheduler import Event

_FLAGS = ("overwrite", "new_scope", "again")


def describe(op: Op) -> str:
    """Return what a call asks, in a few words."""
    given = op.given
    where = "" if op.scope is None else f"{op.scope.session_id}/{op.scope.scope_id} "
    match given:
        case {"commit": Commit() as commit}:
            return where + _commit(commit)
        case {"write": NoteWrite() as write}:
            expect = "" if write.expect is ANY else f" expect={_revision(write.expect)}"
            on = "" if write.on is None else f" on {_id(write.on)}"
            return (
                f"{where}{write.name}{on} {write.value.decode()} w={write.stamp.nonce[:5]}{expect}"
            )
        case {"claim": Claim() as claim}:
            return f"{where}key={claim.key} ttl_us={claim.ttl_us}"
        case {"query": Query() as query}:
            asked = [f"{name}={value}" for name, value in query.labels]
            asked += [] if query.id is None else [f"id={_id(query.id)}"]
            asked += ["in pages"] if "page" in given else []
            return where + " ".join(asked)
    return where + " ".join(f"{name}={_value(value)}" for name, value in given.items())


def _commit(commit: Commit) -> str:
    body = commit.body
    if isinstance(body, bytes):
        what = ("update " if commit.replaces else "save ") + body.decode()
    elif isinstance(body, Append):
        what = f"append {body.items.decode()}"
    else:
        what = f"fork {_id(commit.forked_from.id)}" if commit.forked_from else "fork"
    words = [what, f"w={commit.stamp.nonce[:5]}"]
    words += [] if commit.id is None else [f"id={_id(commit.id)}"]
    words += [] if commit.keep else ["draft"]
    words += [] if commit.head else ["history only"]
    words += [flag for flag in _FLAGS if getattr(commit, flag)]
    words += [] if commit.labels == b"{}" else [commit.labels.decode()]
    words += [] if commit.expect is ANY else [f"expect={_revision(commit.expect)}"]
    words += [] if commit.replaces is None else [f"replaces={_revision(commit.replaces)}"]
    words += [] if commit.fence is None else [f"fence={commit.fence}"]
    words += [] if commit.source is None else [f"source={_revision(commit.source)}"]
    return " ".join(words)


def describe_answer(op: Op) -> str:
    """Return what a call was answered, in a few words."""
    if op.outcome == CRASH:
        return "died"
    if op.outcome != OK:
        return f"{op.outcome}: {op.said}"
    return f"ok {_value(op.answer)}"


def _value(value: Any) -> str:
    match value:
        case SnapshotInfo():
            kept = "" if value.kept else " draft"
            return f"{_id(value.id)}@{_revision(value.revision)}{kept}"
        case Note():
            return f"{value.name}={value.value}@{_revision(value.revision)}"
        case (SnapshotInfo() as info, bytes() as body):
            return f"{_value(info)} {body.decode()}"
        case str():
            return _id(value)
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value)


def _id(id: str) -> str:
    return f"..{id[9:13]}{id[-6:]}" if len(id) == 36 else id


def _revision(revision: object) -> str:
    if not isinstance(revision, str):
        return repr(revision)
    place, _, nonce = revision.rpartition(".")
    return f"{place}.{nonce[:5]}"


def lines_of(trace: Iterable[Event]) -> list[str]:
    """Return the lines of a trace: time, actor, operation, key, outcome."""
    lines = []
    for event in trace:
        key = event.key.replace("snapshots/", "").replace(".limpet/index/", "~")
        said = f"{event.outcome} {_about(event)}"
        lines.append(f"{event.time:5d} {event.actor:<6} {event.what:<16} {key:<50} {said}".rstrip())
    return lines


def _about(event: Event) -> str:
    if isinstance(event.about, Op):
        asked = event.what.startswith(">")
        return describe(event.about) if asked else describe_answer(event.about)
    return "" if event.about is None else object_in(event.about)


def object_in(data: bytes) -> str:
    """Return what an object says, in a few words."""
    try:
        about = orjson.loads(data.partition(b"\n")[0])
        return {"head": _head, "segment": _segment, "notes": _page}[about["limpet"]](about, data)
    except (LimpetError, KeyError, TypeError, ValueError):
        return f"[{data[:60]!r}]" if data else "[]"


def _segment(about: Any, data: bytes) -> str:
    found = StoredSegment(about["name"], data)
    states = Segment.parse(found.states).states([fact.row.seq for fact in found.facts])
    facts = (f"{_fact(fact)} {states[fact.row.seq].decode()}" for fact in found.facts)
    return f"[{', '.join(facts)}]"


def _page(about: Any, data: bytes) -> str:
    notes = parse_page(about["name"], data)
    return f"[{', '.join(f'{note.name} {note.value.decode()}' for note in notes)}]"


def _head(about: Any, data: bytes) -> str:
    head = parse_head(data)
    record = head.record
    words = [_fact(entry.fact) for entry in head.entries.values()]
    words += [f"{note.name} {note.value.decode()}" for note in head.notes.values()]
    words += [f"<- {path[-40:]}" for path in part_keys(head)]
    words += [name for name in ("pending", "unswept") if getattr(head, name)]
    if record is None:
        return f"[{' '.join(words)} deleted w={head.w[:5]}]"
    words += [] if record.head is None else [f"shows {record.head:x}"]
    words += [] if record.fence is None else [f"lease {record.fence}"]
    trail = record.trail.hex()
    nonces = ",".join(trail[at : at + 5] for at in range(0, len(trail), 16))
    return f"[{' '.join(words)} pk={record.pk:x} w={head.w[:5]} trail={nonces}]"


def _fact(fact: Fact) -> str:
    row = fact.row
    return f"{_id(row.id)}@{_revision(row.revision)}{'' if row.kept else ' draft'}"
