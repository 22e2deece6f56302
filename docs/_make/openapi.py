"""Writes what is made of the table of operations: docs/openapi.json, and the requests of the client
for JavaScript. Run by `make docs`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from limpet.core.operations import OPERATIONS, SCOPE_PARAMS, Operation
from limpet.server.openapi import document

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "openapi.json"
_SCOPE = json.dumps([each.name for each in SCOPE_PARAMS])
REQUESTS = ROOT / "clients" / "js" / "src" / "operations.js"


def requests() -> str:
    """Return the module of the client for JavaScript that says how each operation is requested."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "// The operations of the HTTP API. Written by `make docs` from limpet.core.operations."
    yield ""
    yield f"const scope = {_SCOPE};"
    yield ""
    for each in OPERATIONS:
        facts = [f'method: "{each.method}"', f'path: "{each.path.removeprefix("/v1")}"']
        facts += [f"params: {_params(each)}"]
        facts += ["hasBody: true"] if each.body is not None else []
        facts += ["writes: true"] if each.writes else []
        facts += ["idempotent: true"] if each.idempotent else []
        yield f"export const {_name(each)} = {{ {', '.join(facts)} }};"


def _name(operation: Operation) -> str:
    first, *rest = operation.name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _params(operation: Operation) -> str:
    return json.dumps([*operation.params]).replace(_SCOPE[:-1], "[...scope")


if __name__ == "__main__":
    PAGE.write_bytes(document() + b"\n")
    REQUESTS.write_text(requests(), encoding="utf-8")
