"""The OpenAPI document, generated from the operations."""

from functools import cache
from typing import Any

import orjson

from limpet.core import schema, wire
from limpet.core.operations import JSON_TYPE, LABELS, LINES_TYPE, OPERATIONS, Operation, Param
from limpet.core.schema import Schema
from limpet.server.call import PROBLEM_TYPE

_ERRORS = {
    "400": "the request is not valid",
    "401": "a token is needed",
    "403": "the token does not allow it",
    "404": "there is nothing at this address",
    "408": "the body did not arrive in time",
    "409": "the id exists with another body, or a lease has passed to another holder",
    "412": "another revision was found than If-Match or If-None-Match expect",
    "413": "the body is too large",
    "414": "the address is too long",
    "415": "the body must be JSON",
    "422": "the Idempotency-Key was sent with another request",
    "431": "the headers are too large",
    "500": "stored data is damaged, or the server failed",
    "501": "this engine cannot do it",
    "503": "the storage does not answer, or the server is busy",
}
_KEY = {"minLength": 1, "maxLength": 255}
_STAMP = {"pattern": wire.STAMP_PATTERN}
_OF_BODIES = ("408", "413", "415")
_OF_WRITES = ("422",)
_NAMES = {id(each): name for name, each in wire.COMPONENTS.items()}


@cache
def document() -> bytes:
    """Return the document as JSON."""
    return orjson.dumps(build(), option=orjson.OPT_INDENT_2)


def build() -> dict[str, Any]:
    from limpet import __version__

    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    parts = {name: _inside(each) for name, each in wire.COMPONENTS.items()}
    problem = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    errors = {each: {"description": what, "content": problem} for each, what in _ERRORS.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Limpet",
            "version": __version__,
            "summary": "Keeps the state of AI agents safe.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": parts,
            "responses": errors,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.what,
        "parameters": [_param(each) for each in operation.params.values()],
        "responses": _responses(operation),
    }
    if operation.writes:
        found["parameters"] += [
            _header("Limpet-Lease", "the key of the lease to write under"),
            _header("Idempotency-Key", "makes repeating the request harmless", **_KEY),
            _header("Limpet-Stamp", "the time and the random bits of the write", **_STAMP),
        ]
    if operation.conditional:
        found["parameters"] += [
            _header("If-Match", "the revision that must be found, in quotes"),
            _header("If-None-Match", "`*`: there must be none yet; in reads, what you have"),
        ]
    if operation.body is not None:
        content = {JSON_TYPE: {"schema": _ref(operation.body)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _responses(operation: Operation) -> dict[str, Any]:
    item = _ref(operation.result.schema)
    content: dict[str, Any] = {operation.media_type: {"schema": item}}
    if operation.cursor is not None:
        page = wire.page(operation.result).schema
        content = {JSON_TYPE: {"schema": _ref(page)}, LINES_TYPE: {"schema": item}}
    found: dict[str, Any] = {"200": {"description": "done", "content": content}}
    if operation.conditional and operation.method == "GET":
        found["304"] = {"description": "you have the current revision"}
    errors = {*_ERRORS}
    errors -= {*_OF_BODIES} if operation.body is None else set()
    errors -= set() if operation.writes else {*_OF_WRITES}
    return found | {each: {"$ref": f"#/components/responses/{each}"} for each in sorted(errors)}


def _param(param: Param) -> dict[str, Any]:
    kind = _ref(param.schema)
    if param.many:
        kind = {"type": "array", "items": kind}
    found = {
        "name": param.name,
        "in": "query",
        "required": param.required,
        "description": param.what,
    }
    if param is LABELS:
        return {**found, "content": {JSON_TYPE: {"schema": schema.LABELS}}}
    return {**found, "schema": kind}


def _header(name: str, what: str, **more: Any) -> dict[str, Any]:
    kind = {"type": "string", **more}
    return {"name": name, "in": "header", "required": False, "description": what, "schema": kind}


def _ref(given: Schema) -> dict[str, Any]:
    name = _NAMES.get(id(given))
    return _inside(given) if name is None else {"$ref": f"#/components/schemas/{name}"}


def _inside(given: Schema) -> dict[str, Any]:
    found: dict[str, Any] = dict(given)
    if "properties" in found:
        found["properties"] = {name: _ref(each) for name, each in found["properties"].items()}
    if "items" in found:
        found["items"] = _ref(found["items"])
    return found
