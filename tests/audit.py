"""Look up known vulnerabilities of the installed packages: `python -m tests.audit`.

Fails if there is one. Where the package index or the advisory service cannot be reached, it says so
in one line and goes on: `make full` must also work offline.
"""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

_WAIT_S = 300


def main() -> int:
    uv = Path(sys.executable).with_name("uv")
    installed = sysconfig.get_path("purelib")
    tool = ("tool", "run", "--quiet", "pip-audit", "--format=json", "--progress-spinner=off")
    try:
        done = subprocess.run(
            [uv, *tool, "--path", installed], capture_output=True, text=True, timeout=_WAIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        answer, why = "", str(error)
    else:
        answer, why = done.stdout, done.stderr
    code, text = judged(answer, why)
    sys.stdout.write(f"{text}\n")
    return code


def judged(answer: str, why: str) -> tuple[int, str]:
    """Return the exit code and what to say about an answer of pip-audit."""
    try:
        found = json.loads(answer)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = (why.strip().splitlines() or ["no answer"])[-1][:200]
        return 0, f"audit: not done, the advisory service cannot be reached: {reason}"
    bad = [
        f"{each['name']} {each['version']}: {vulnerability['id']}"
        for each in found
        for vulnerability in each.get("vulns", ())
    ]
    if bad:
        return 1, "\n".join(["audit: known vulnerabilities", *bad])
    return 0, f"audit: {len(found)} packages, no known vulnerability"


if __name__ == "__main__":
    sys.exit(main())
