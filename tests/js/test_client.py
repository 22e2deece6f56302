"""The client for JavaScript, in Node, against a real server."""

import json
from pathlib import Path

import pytest

from tests.js.serving import Served, run_tests, serve, start_script
from tests.servers.proxy import Proxy


def test_every_verb(served: Served) -> None:
    run_tests("core.test.mjs", served.url)


def test_watching_and_leases(served: Served) -> None:
    run_tests("live.test.mjs", served.url)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["core", "live", "pages"])
def test_on_sqlite(name: str, tmp_path: Path) -> None:
    with serve(f"sqlite:///{tmp_path}/agents.db") as served:
        run_tests(f"{name}.test.mjs", served.url)


def test_lost_requests_and_answers(served: Served) -> None:
    with Proxy(served.port) as proxy:
        proxy.drop_replies(2, method="POST")
        proxy.drop_requests(1, method="GET")
        proxy.drop_requests(1, method="PUT")
        proxy.drop_replies(1, method="DELETE")
        run_tests("retries.test.mjs", proxy.url)
        counts = proxy.counts()
    assert (counts["POST"], counts["PUT"], counts["DELETE"]) == (3, 2, 1)


@pytest.mark.slow
def test_a_server_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agents.db"
    with serve(url) as first, start_script("restart.mjs", first.url) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "ready\n"
        first.process.kill()
        first.process.wait()
        with serve(url, port=first.port):
            told, _ = script.communicate(timeout=300)
    assert json.loads(told) == {"list": list(range(40)), "repeated": 0}
