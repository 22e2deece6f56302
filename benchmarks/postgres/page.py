"""The page that the benchmark prints and writes."""

from collections.abc import Mapping, Sequence

from benchmarks.postgres.sizes import CONNECTIONS, Sizes
from benchmarks.postgres.tried import TRIED
from benchmarks.report import NONE, Result, table

PREFACE = """\
# PostgreSQL: against bare inserts, LangGraph and the network

Written by `make bench` (`python -m benchmarks.postgres --write`). Client and server share one
machine. Timings differ between machines, so compare the ratios: the sides of a comparison
alternated, in the same run and on the same server. A figure is the median of {repetitions}
repetitions, with minimum and maximum in brackets. CPU is that of the client alone. A goal that is
missed stays in the table, marked **no**.

- **A bare INSERT** is one prepared statement of psycopg in autocommit mode, into a table of a
  `bigint` and a `bytea` without an index. It is given the bytes that `save` encodes: nothing is
  encoded, compared, checked or indexed. The server compresses such values from 2 KB on, which is
  slow; the row *not compressed* is without that (`STORAGE EXTERNAL`). States are windows of
  messages that slide by one message from save to save.
- **{connections} threads** of one Python process share the GIL, so the CPU time of a call is the
  limit. The rows of several processes have no such limit; client and server share the cores.
- **LangGraph**: one `put` per turn with the whole list, as `PostgresSaver` is documented, each side
  in its own process. Times are the median of the last 20 turns.
- **All tables** is `pg_total_relation_size` of every table: rows, indexes, out-of-line storage
  and maps. **Text** is the text of the messages, once.
- **A round trip** is counted by a proxy that delays both directions. *Alone* is the writer that
  saved last in the scope; otherwise another writer has saved in the scope just before each call.
- **Async**: the async API of Limpet runs each call in one of {connections} threads. *asyncio alone*
  is a prototype that sends the same statements by psycopg's async connections
  ([decision 0020](../decisions/0020-async-on-postgres.md)). If all save at once, the latencies
  include a queue: all sessions wait for the same connections.
- *Contended* counts the repetitions in which the median sync of a small file took more than 1 ms. A
  figure within its goal is *not judged* if most repetitions were contended: both sides waited for
  the same disk.
"""


TITLES = {
    "throughput": "Throughput",
    "chat": "A long conversation",
    "disk": "Disk",
    "trips": "Round trips",
}


def page(found: Mapping[str, Sequence[Result]], machine: Sequence[str], sizes: Sizes) -> str:
    """Return the whole page: the goals first, then what else was found, part by part."""
    preface = PREFACE.format(repetitions=sizes.repetitions, connections=CONNECTIONS)
    parts = [preface, f"Machine: {'; '.join(machine)}.\n"]
    if sizes.quick:
        parts.append("A quick run: short, few and small, so nothing is judged.\n")
    goals = [each for rows in found.values() for each in rows if each.goal != NONE]
    parts.append(f"## Goals\n\n{table(goals)}\n")
    parts += _tried(goals)
    for name, rows in found.items():
        others = [each for each in rows if each.goal == NONE]
        if others:
            parts.append(f"## {TITLES[name]}, for information\n\n{_plain(others)}\n")
    return "\n".join(parts)


def _plain(results: Sequence[Result]) -> str:
    """Return rows that have no goal."""
    rows = [("measure", "measured", "ratio"), ("---",) * 3]
    rows += [(each.measure, each.measured, each.ratio) for each in results]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _tried(goals: Sequence[Result]) -> list[str]:
    missed = [each.measure for each in goals if each.met is False]
    notes = [
        text for start, text in TRIED.items() if any(each.startswith(start) for each in missed)
    ]
    return ["\n".join(f"- {text}" for text in notes) + "\n"] if notes else []
