"""Run everything, part by part, and say at the end how each went: `python -m tests.full`."""

import subprocess
import sys
import time

PYTHON = (sys.executable, "-m")
PARTS = {
    "lint": ("make", "lint"),
    "tests": (*PYTHON, "tests.again", "-n", "3", "--dist", "worksteal", "-m", "not torture"),
    "audit": (*PYTHON, "tests.audit"),
    "pythons": (*PYTHON, "tests.pythons"),
    "bench": ("make", "bench", "QUICK=1"),
}


def main() -> int:
    said, failed = [], 0
    for name, command in PARTS.items():
        begun_s = time.monotonic()
        code = subprocess.run(command, check=False).returncode
        failed += code != 0
        minutes, seconds = divmod(round(time.monotonic() - begun_s), 60)
        said.append(
            f"{name:8} {minutes:3}:{seconds:02}  {f'FAILED ({code})' if code else 'passed'}"
        )
    sys.stdout.write("\n".join(["", "make full", *said, ""]))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
