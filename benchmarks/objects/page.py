"""The page that the benchmark prints and writes."""

from collections.abc import Mapping, Sequence

from benchmarks.report import TIMES, Result, table

PREFACE = """\
# Directories and S3

Written by `make bench` (`python -m benchmarks.objects --write`). A goal that is missed stays in the
table, marked **no**.

The chat and the other traces are those of [keeping every step](deltas.md): the whole state is saved
at each turn, and each is kept. The *ideal* is what the changes alone take, compressed. Bytes and
requests are counted in a bucket in memory, in the way in which S3 counts them; a test counts the
same requests on SeaweedFS ([the table](../guides/folders_and_s3.md#cost-of-each-method)).
A process that loads, lists or prunes has read nothing before. A *roll* moves the newest states into
a segment; here a save waits for it, while `limpet.open` has it done in a thread.
"""

FIRST_ENGINE = f"""\
## Against the first engine

The first engine stored each snapshot as a whole document, four PUTs a save. Before it was removed,
both were timed in one run, call by call in turns, on a loaded machine: the saves 440 to 500 of
the chat.

| storage | goal | medians | means | met? |
| --- | --- | --- | --- | --- |
| SeaweedFS | ≥ 4 {TIMES} faster | 6.5 {TIMES} | 4.9 {TIMES} | yes |
| durable directory | ≥ 2 {TIMES} faster | 2.3 {TIMES} | 1.8 {TIMES} | medians yes, means **no** |
"""


def page(
    parts: Mapping[str, Sequence[Result]], machine: Sequence[str], repetitions: int, *, quick: bool
) -> str:
    """Return the whole page; `parts` are the tables by their titles."""
    found = [PREFACE, f"Machine: {'; '.join(machine)}.\n"]
    if quick:
        found.append("A quick run: a short chat, so nothing is judged.\n")
    for title, results in parts.items():
        found.append(f"## {title}\n")
        if title == "Times":
            found.append(f"The median of {repetitions} repetitions, with minimum and maximum.\n")
        found.append(f"{table(results)}\n")
    if "Times" not in parts:
        found.append("Times were not measured in this run.\n")
    found.append(FIRST_ENGINE)
    return "\n".join(found)
