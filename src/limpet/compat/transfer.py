"""What importing from, and exporting to, the files of another tool comes to."""

from dataclasses import dataclass

from limpet.model import Finding


@dataclass(frozen=True, slots=True)
class Transfer:
    """How many were carried over, and why others were not."""

    count: int
    skipped: tuple[Finding, ...] = ()
