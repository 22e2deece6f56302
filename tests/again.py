"""Run pytest, and what failed once more, alone: `python -m tests.again <arguments of pytest>`.

A test that fails only next to others is named UNSTABLE at the end, and fails no run: a busy machine
must not refuse work that is sound. See docs/decisions/0057-unstable-tests.md.
"""

import subprocess
import sys

import pytest

AGAIN_MAX = 10  # more failures than this are no coincidence


class Failures:
    """What failed in a run, also in its fixtures and with its process."""

    def __init__(self) -> None:
        self.tests: list[str] = []
        self.other: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.tests:
            self.tests.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.other.append(report.nodeid)


def main(arguments: list[str]) -> int:
    failures = Failures()
    code = pytest.main(arguments, plugins=[failures])
    few = 0 < len(failures.tests) <= AGAIN_MAX
    if code != pytest.ExitCode.TESTS_FAILED or failures.other or not few:
        return code
    _say(f"\nagain, alone: {len(failures.tests)} failed\n")
    # What it prints is shown only if it fails: its last line is not that of the whole run.
    command = [sys.executable, "-m", "pytest", *arguments, "-n", "0", *failures.tests]
    again = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if again.returncode:
        _say(again.stdout)
        return again.returncode
    for each in failures.tests:
        _say(f"UNSTABLE {each}: failed next to other tests (see above), passed alone\n")
    _say(f"passed, but {len(failures.tests)} UNSTABLE: mend what fails on a busy machine\n")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
