"""Three workers over one store: one of them is killed, and another finishes its run.

python examples/workers.py                                      a SQLite file in this directory
python examples/workers.py postgresql://user@host/database      PostgreSQL
"""

import multiprocessing
import sys
import time
from typing import Any

import limpet
from limpet import runs

WORKERS = ["ann", "ben", "cleo"]
PAGES = 6
PAGE_S = 0.25  # the time to write one page
TTL_S = 2.0  # a worker on another host without a heartbeat for this long counts as dead


def report_of(name: str) -> str:
    return f"example/report-of-{name}"


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # in one write: other processes print too


def write_report(me: str, run: runs.Run) -> None:
    """Write the report page by page, and save each page."""
    report = run.state
    while len(report["pages"]) < PAGES:
        page = len(report["pages"]) + 1
        say(f"{me}: page {page} of {run.run_id}")
        time.sleep(PAGE_S)
        report["pages"].append({"page": page, "by": me})
        run.step(report)


def is_done(store: limpet.Store, name: str) -> bool:
    found = runs.get(store, report_of(name))
    return found is not None and found.status == "completed"


def work(url: str, me: str) -> None:
    """Run one worker: write a report, then finish the reports of dead workers."""
    options: dict[str, Any] = {"owner": me, "ttl_s": TTL_S}
    empty: dict[str, Any] = {"pages": []}
    with limpet.open(url) as store:
        with runs.start(store, report_of(me), task="report", initial=empty, **options) as run:
            write_report(me, run)
        while not all(is_done(store, name) for name in WORKERS):
            for dead in runs.list(store, status="expired", prefix="example/"):
                try:
                    with runs.adopt(store, dead.run_id, **options) as run:
                        say(
                            f"{me}: adopts {dead.run_id}, saved by {dead.owner}: {dead.steps} pages"
                        )
                        write_report(me, run)
                except limpet.Conflict:
                    pass  # another worker was faster
            time.sleep(0.05)


def main(url: str) -> None:
    """Start the workers, kill one in the middle of a page, and check the reports at the end."""
    spawn = multiprocessing.get_context("spawn")
    with limpet.open(url) as store:
        for name in WORKERS:
            store.delete_session(report_of(name))
        workers = {name: spawn.Process(target=work, args=(url, name)) for name in WORKERS}
        for worker in workers.values():
            worker.start()

        for info in store.scope(report_of("ben"), "main", "run").watch():
            if info.metadata["run"]["steps"] >= 3:
                break
        time.sleep(PAGE_S / 2)
        workers["ben"].kill()  # SIGKILL: it cannot clean up
        say("ben: is killed in the middle of a page")

        for worker in workers.values():
            worker.join()
        for name in WORKERS:
            report = store.scope(report_of(name), "main", "run").load()
            assert report is not None
            pages = report.state["pages"]
            assert [each["page"] for each in pages] == [1, 2, 3, 4, 5, 6]  # every page exactly once
            say(f"{report_of(name)}: {report.status}, by {' '.join(each['by'] for each in pages)}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["sqlite:///workers.db"])
