"""The three parts: what is measured, its text, and its goals."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from benchmarks.compat import agents, checkpoints, node, snapshots
from benchmarks.compat.agents import Way
from benchmarks.compat.checkpoints import Listed
from benchmarks.compat.counting import Lap
from benchmarks.compat.page import figures, ids_table, middle, ratios, runs_table, size
from benchmarks.compat.sizes import Sizes
from benchmarks.deltas.peertable import text_bytes
from benchmarks.plan import Plan
from benchmarks.postgres.server import running
from benchmarks.report import TIMES, Result, milliseconds, spread


class Part(NamedTuple):
    """A section of the page, and its goals."""

    text: str
    goals: Sequence[Result]


AGENTS = """\
## Agents of the Strands SDK for Python

A real agent with a model that returns a fixed text, and a `SnapshotSessionManager` that saves the
latest state after each turn and a checkpoint into history (`snapshot_trigger` is always true). A
turn is 1 KB of prompt and 1 KB of answer. `ByteStorage` is given the bytes that the SDK writes.
"""
AGENTS_TEXT = """\
The SDK writes the whole memory of the agent twice a turn, and keeps one of them. By default it
remembers 40 messages, and older ones are missing in the later copies; without that limit the
storage grows quadratically. On SQL a turn is stored as its new messages. But SQLite writes some
40 KB of pages for each commit, however small the change, into its log and again into the file: in a
short conversation as many bytes as the SDK's files, in a long one a fraction of them; the stored
size is small in both cases. PostgreSQL's tables and indexes take a third of a megabyte when empty.

In a directory Limpet writes the same whole documents as the SDK, for other tools to read: there it
saves no bytes, and adds the sync and a compare-and-set. `ByteStorage` parses the bytes and verifies
that it can return exactly the same, which is a good part of the CPU that it adds.
"""
SNAPSHOTS = """\
## `SnapshotStorage` of the Strands SDK for TypeScript

A state that grows by 2 KB in each of {steps} steps; a step is two saves, into history and as the
latest. Then the latest is loaded, {loads} times. The SDK runs in a Node process that measures
itself ({versions}), and lists the ids in the directory that `FileStorage` wrote.
"""
SNAPSHOTS_TEXT = """\
`FileStorage` keeps the files of the SDK, whole and readable by both, so that it stores what the SDK
stores, without the white space; its time is that of the disk's syncs. On SQLite each step is stored
as a difference, but the whole state is still encoded and compared for each save. Ids are listed
from file names or an index, and no state is read; the SDK only sorts the names, Limpet checks each
one and pages through them, in Python. A directory in which all history was written before the first
latest is the exception: there the start of each file is read.
"""
RUNS = """\
## Checkpoints of runs

One run whose messages grow through {iterations} iterations, saved after each; only the last one
stays. *By hand* is what the Go store does, in Python, without a sync; no Go code runs here.
"""
RUNS_LISTED = """\
`list` of {runs} runs of {run_size}, newly opened; the bytes are in the page cache.
"""
RUNS_TEXT = """\
The Go store writes the whole file after each iteration, and so do `GoRunStore`, which shares its
files, and `RunStore` in a directory: quadratic growth. On SQLite a save writes what was added, in
pages, and compresses what is stored. A list by hand reads and parses everything; Limpet reads the
start of each document, both ends of a Go file, or an index.
"""


def agents_part(plan: Plan, sizes: Sizes) -> Part:
    """Measure agents of the SDK for Python."""
    parts, goals = [AGENTS], list[Result]()
    ways = {
        "the latest after each turn": Way(sizes.turns),
        'the latest after each message too (`save_latest_on="message"`)': Way(
            sizes.turns, "message"
        ),
        "the latest after each turn, all messages remembered": Way(
            sizes.long_turns, keeps_all=True
        ),
    }
    with running(plan.folder) as server:
        for title, way in ways.items():
            laps = agents.laps(plan, server, way)
            text = text_bytes(way.turns)
            rows = figures(laps, base=agents.SDK, step="a turn", whole=text, of="text")
            parts.append(f"### {way.turns} turns, {size(text)} of text; {title}\n\n{rows}\n")
            if way.save_latest_on == "invocation":
                goals += _agent_goals(laps, way, text)
    return Part("\n".join([*parts, AGENTS_TEXT]), goals)


def _agent_goals(laps: Sequence[Lap], way: Way, text: int) -> Iterator[Result]:
    turns, is_long = way.turns, way.keeps_all
    what = f"Strands agent, {turns} turns, SQLite"
    stored = middle(laps, agents.SQLITE, lambda each: each.stored)
    most = 1.0 if is_long else 2.0
    yield Result(
        f"{what}: stored against the text",
        f"{size(stored)} against {size(text)}",
        f"≤ {most:g} {TIMES}",
        f"{stored / text:.2f} {TIMES}",
        stored <= most * text,
    )
    yield _bytes_goal(f"{what}: written", laps, agents.SQLITE, agents.SDK, 0.5 if is_long else 1.0)
    yield _time_goal(f"{what}: a turn, wall", laps, agents.SQLITE, agents.SDK, 2.0)
    if is_long:
        what = f"Strands agent, {turns} turns, PostgreSQL"
        yield _bytes_goal(f"{what}: stored", laps, agents.POSTGRES, agents.SDK, 0.1, stored=True)
        yield _bytes_goal(f"{what}: written", laps, agents.POSTGRES, agents.SDK, 0.1)


def snapshots_part(plan: Plan, sizes: Sizes) -> Part:
    """Measure the storage that has the interface of the SDK for TypeScript."""
    parts, goals = list[str](), list[Result]()
    with node.running() as sdk:
        versions = ", ".join(sdk.versions)
        parts.append(SNAPSHOTS.format(**sizes._asdict(), versions=versions))
        for start in (sizes.small_bytes, sizes.large_bytes):
            laps = snapshots.laps(
                plan, sdk, start_bytes=start, steps=sizes.steps, loads=sizes.loads
            )
            whole = snapshots.state_bytes(start, sizes.steps)
            rows = figures(laps, base=snapshots.SDK, step="a step", whole=whole, of="last state")
            parts.append(f"### From {size(start)} to {size(whole)}\n\n{rows}\n")
            goals += _snapshot_goals(laps, f"`SnapshotStorage` from {size(start)}")
        spent = snapshots.listing(plan, sdk, ids=sizes.ids, calls=sizes.loads)
    parts.append(f"### Ids\n\n{ids_table(spent, sizes.ids)}\n")
    goals += _ids_goals(spent, sizes.ids)
    return Part("\n".join([*parts, SNAPSHOTS_TEXT]), goals)


def _snapshot_goals(laps: Sequence[Lap], what: str) -> Iterator[Result]:
    sdk, files, sqlite = snapshots.SDK, snapshots.FILES, snapshots.SQLITE
    yield _bytes_goal(f"{what}, directory: stored", laps, files, sdk, 1.05, stored=True)
    yield _bytes_goal(f"{what}, SQLite: stored", laps, sqlite, sdk, 0.1, stored=True)
    yield _bytes_goal(f"{what}, SQLite: written", laps, sqlite, sdk, 0.5)
    yield _time_goal(f"{what}, SQLite: a step, wall", laps, sqlite, sdk, 2.0)


def _ids_goals(spent: Mapping[str, Sequence[float]], ids: int) -> Iterator[Result]:
    for name in (snapshots.FILES, snapshots.SQLITE):
        taken = median(spent[name])
        yield Result(
            f"`list_snapshot_ids` of {ids:,} ids: {name}",
            milliseconds(taken),
            "< 100 ms",
            met=taken < 0.1,
        )


def runs_part(plan: Plan, sizes: Sizes) -> Part:
    """Measure the checkpoints of runs."""
    laps = checkpoints.laps(
        plan, iterations=sizes.iterations, bytes_max=4_300 * sizes.iterations, loads=sizes.loads
    )
    whole = round(middle(laps, checkpoints.WHOLE, lambda each: each.stored))
    rows = figures(laps, base=checkpoints.WHOLE, step="a save", whole=whole, of="last file")
    found = checkpoints.listing(plan, runs=sizes.runs, run_bytes=sizes.run_bytes, calls=sizes.lists)
    listed = RUNS_LISTED.format(runs=sizes.runs, run_size=size(sizes.run_bytes))
    parts = [
        RUNS.format(iterations=sizes.iterations),
        f"### Saving, up to {size(whole)}\n\n{rows}\n",
        f"### Listing\n\n{listed}\n{runs_table(found)}\n",
        RUNS_TEXT,
    ]
    what = f"{sizes.iterations} iterations of a run, SQLite"
    by_hand = (checkpoints.SQLITE, checkpoints.WHOLE)
    goals = [
        _bytes_goal(f"{what}: written", laps, *by_hand, 0.5),
        _time_goal(f"{what}: a save, wall", laps, *by_hand, 2.0),
        *_listing_goals(found, sizes.runs),
    ]
    return Part("\n".join(parts), goals)


def _listing_goals(found: Mapping[str, Listed], runs: int) -> Iterator[Result]:
    whole = found[checkpoints.WHOLE]
    for name in (checkpoints.GO, checkpoints.FOLDER, checkpoints.SQLITE):
        each = found[name]
        yield Result(
            f"`list` of {runs} runs: read, against everything; {name}",
            f"{size(each.read)} against {size(whole.read)}",
            "≤ 5 %",
            f"{each.read / max(1, whole.read):.1%}",
            each.read <= 0.05 * whole.read,
        )
        yield Result(
            f"`list` of {runs} runs: wall, against reading everything; {name}",
            f"{milliseconds(each.wall)} against {milliseconds(whole.wall)}",
            f"≤ 0.1 {TIMES}",
            f"{each.wall / whole.wall:.3f} {TIMES}",
            each.wall <= 0.1 * whole.wall,
        )


def _bytes_goal(
    what: str, laps: Sequence[Lap], name: str, base: str, most: float, *, stored: bool = False
) -> Result:
    sides = [
        middle(laps, side, lambda each: each.stored if stored else each.written)
        for side in (name, base)
    ]
    ratio = sides[0] / sides[1] if sides[1] else 0.0
    return Result(
        f"{what}, against {base}",
        " against ".join(map(size, sides)),
        f"≤ {most:g} {TIMES}",
        f"{ratio:.3f} {TIMES}",
        ratio <= most if sides[1] else None,
    )


def _time_goal(what: str, laps: Sequence[Lap], name: str, base: str, most: float) -> Result:
    compared = ratios(laps, name, base, lambda each: each.step_s)
    sides = [milliseconds(middle(laps, side, lambda each: each.step_s)) for side in (name, base)]
    return Result(
        f"{what}, against {base}",
        " against ".join(sides),
        f"≤ {most:g} {TIMES}",
        spread(compared),
        median(compared) <= most,
    )
