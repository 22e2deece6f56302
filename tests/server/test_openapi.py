"""docs/openapi.json is what the server says, valid, and true: schemathesis asks for everything."""

import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from openapi_spec_validator import validate

from docs._make.openapi import PAGE, REQUESTS, requests
from limpet.core.operations import OPERATIONS
from limpet.server.openapi import build, document
from tests.server.process import Server

ENDLESS = ("watch", "scope_watch", "changes")


def test_the_file_is_what_the_server_says() -> None:
    assert PAGE.read_bytes() == document() + b"\n", "it is old: run `make docs`"


def test_the_requests_in_javascript_are_those_of_the_table() -> None:
    assert REQUESTS.read_text(encoding="utf-8") == requests(), "they are old: run `make docs`"


def test_it_is_a_valid_document_of_openapi() -> None:
    validate(orjson.loads(document()))


def test_it_has_every_operation_with_a_sentence() -> None:
    paths = build()["paths"]
    found = [each for path in paths.values() for each in path.values()]
    assert sorted(each["operationId"] for each in found) == sorted(x.name for x in OPERATIONS)
    assert all(each["summary"].endswith(".") for each in found)


def test_the_page_names_every_operation() -> None:
    page = (PAGE.parent / "http.md").read_text(encoding="utf-8")
    missing = [x.path for x in OPERATIONS if not re.search(rf"{x.path}[`? ]", page)]
    assert missing == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_schemathesis_finds(server: Server, tmp_path: Path) -> None:
    """No 5xx, documented statuses, types and bodies; what does not fit the document is refused.

    Not that all that fits is accepted: some rules concern several members.
    """
    command = [str(Path(sys.executable).with_name("st")), "run", f"{server.url}/openapi.json"]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", "20", "--seed", "27"]
    command += ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
    command += ["--no-color", "--warnings", "off", "--continue-on-failure"]
    for each in ENDLESS:
        command += ["--exclude-operation-id", each]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
    assert "Traceback" not in server.log
    assert server.ask("GET", "/readyz").status == 200
