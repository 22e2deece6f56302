"""The page that the benchmark prints and writes."""

from collections.abc import Sequence

from benchmarks.objects.sizes import Sizes
from benchmarks.objects.tried import TRIED
from benchmarks.report import Result, table

PREFACE = """\
# Directories and S3: what Limpet adds to the bare writes

Written by `make bench` (`python -m benchmarks.objects --write`). Timings differ between machines,
so compare the ratios: Limpet and the bare writes alternated, call by call, in the same run. A
figure is the median of {repetitions} repetitions, with minimum and maximum in brackets. A goal that
is missed stays in the table, marked **no**.

- A **kept save** has an id created by Limpet, and its writer was the last one to save in the scope:
  the head is replaced, two empty pointers and a copy are created, and in a directory one
  subdirectory for a pointer. Limpet encodes the state, checks its types, computes two checksums and
  compares the head; the bare side gets the finished bytes.
- **By hand** in a directory: the same four files, with nothing but `os`. *Each in a temporary file*
  is how files are written durably: a temporary file, `fsync`, rename, `fsync` of the directory.
  *With the fewest steps* creates the empty ones in place. Nothing is compared or locked.
- **Bare requests** on S3: the same bytes and conditions through obstore, the client that Limpet
  uses, from one thread. The service is SeaweedFS on this machine, so a request takes about
  a millisecond, and what Limpet adds weighs more than it would across a network.
- *Contended* counts the repetitions in which the median sync of a small file took more than 1 ms. A
  wall ratio within its goal is *not judged* if most repetitions were contended: both sides waited
  for the same disk. CPU is that of the calling thread.
"""


def page(
    compared: Sequence[Result], others: Sequence[Result], machine: Sequence[str], sizes: Sizes
) -> str:
    """Return the whole page."""
    parts = [PREFACE.format(repetitions=sizes.repetitions), f"Machine: {'; '.join(machine)}.\n"]
    if sizes.quick:
        parts.append("A quick run: few calls and a short history, so nothing is judged.\n")
    if compared:
        parts.append(f"## Against the bare writes\n\n{table(compared)}\n")
    parts += _tried(compared)
    if others:
        parts.append(
            "## For information\n\nThe median of single calls, with minimum and maximum.\n\n"
            f"{table(others)}\n"
        )
    return "\n".join(parts)


def _tried(compared: Sequence[Result]) -> list[str]:
    missed = [each.measure for each in compared if each.met is False]
    notes = [
        text for start, text in TRIED.items() if any(each.startswith(start) for each in missed)
    ]
    return ["\n".join(f"- {text}" for text in notes) + "\n"] if notes else []
