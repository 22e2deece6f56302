"""What every benchmark does in the same way: its options, the facts of the machine, its page."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from benchmarks.peers.venvs import ROOT
from benchmarks.report import Result, facts

PAGES = ROOT / "docs" / "benchmarks"


class Benchmark:
    """One run of `python -m benchmarks.NAME`, which writes the page of that name if asked."""

    def __init__(self, name: str, quick: str, *more: str, only: Sequence[str] = ()) -> None:
        """Read the command line.

        `quick` says what a quick run is; `more` are the options that this benchmark has of
        `--repetitions` and `--dir`; `only` are the parts of which some can be chosen.
        """
        self._name = name
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
        parser.add_argument("--quick", action="store_true", help=f"a quick run: {quick}")
        parser.add_argument("--write", action="store_true", help=f"write docs/benchmarks/{name}.md")
        if only:
            parser.add_argument("--only", nargs="+", choices=only, help="measure only these parts")
        if "--repetitions" in more:
            parser.add_argument("--repetitions", type=int, help="number of repetitions")
        if "--dir" in more:
            # Where /tmp is in memory a sync costs nothing, and the comparison says little.
            parser.add_argument("--dir", type=Path, help="a directory on the disk to measure")
        options = parser.parse_args()
        self.quick: bool = options.quick
        self.write: bool = options.write
        self.only: Sequence[str] = getattr(options, "only", None) or only
        self.repetitions: int | None = getattr(options, "repetitions", None)
        self.folder: Path | None = getattr(options, "dir", None)
        if self.write and (self.quick or self.only is not only):
            parser.error("the page is written from a whole run")
        self._begun = perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Say how long a part took."""
        begun = perf_counter()
        yield
        print(f"{name}: {perf_counter() - begun:.1f} s", file=sys.stderr)

    def judged(self, rows: Iterable[Result]) -> list[Result]:
        """Return the rows; those of a quick run, of which no goal speaks, without a verdict."""
        return [replace(each, met=None) for each in rows] if self.quick else list(rows)

    def publish(self, text: str) -> None:
        """Print the page, and write it if asked."""
        print(text)
        print(f"measured in {perf_counter() - self._begun:.0f} s", file=sys.stderr)
        if self.write:
            (PAGES / f"{self._name}.md").write_text(text, encoding="utf-8")


def machine(*packages: str, more: Iterable[str] = ()) -> list[str]:
    """Return the facts of the machine, with the versions of packages; the load is the last."""
    *about, load = facts()
    return [*about, *(f"{each} {version(each)}" for each in packages), *more, load]
