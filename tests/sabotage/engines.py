"""Mistakes in the engine, its storages and the API."""

from tests.sabotage.defect import Defect

DEFECTS = (
    Defect(
        "prune keeps one too many",
        "core/retention.py",
        "if rank >= self.keep_last and",
        "if rank > self.keep_last and",
        ("tests/conformance/test_memory.py -k prun",),
    ),
    Defect(
        "expect is not compared",
        "core/commits.py",
        "    if found != expect:\n",
        "    if found is None and found != expect:\n",
        ("tests/conformance/test_memory.py",),
    ),
)
