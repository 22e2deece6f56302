"""The table of operations fits the backend, the server, and the engine over HTTP."""

import inspect

from limpet.backends.http.backend import HttpBackend
from limpet.core.operations import OPERATIONS, SCOPE_PARAMS
from limpet.protocol import Backend
from limpet.server.operations import handler_of

OF_BACKEND = [each for each in OPERATIONS if each.backend]


def test_names_and_addresses_are_unique() -> None:
    names = [each.name for each in OPERATIONS]
    addresses = [(each.method, each.path) for each in OPERATIONS]
    assert len({*names}) == len({*addresses}) == len(OPERATIONS)


def test_each_operation_has_a_function() -> None:
    assert all(callable(handler_of(each)) for each in OPERATIONS)


def test_what_a_method_of_the_backend_takes_is_what_is_sent() -> None:
    """Else the server would call it with None, or a client could send what nobody reads."""
    for each in OF_BACKEND:
        wanted = {*inspect.signature(getattr(Backend, each.backend)).parameters} - {"self"}
        sent = {*each.params, *({} if each.body is None else each.body["properties"])}
        if "scope" in wanted:
            sent = sent - {param.name for param in SCOPE_PARAMS} | {"scope"}
        assert wanted - {"expect", "fence"} == sent, each.name
        assert ("expect" in wanted) == each.conditional, each.name
        assert "fence" not in wanted or each.writes, each.name
        assert each.cursor is None or {"after", "limit"} <= wanted, each.name


def test_the_engine_over_http_has_each_method() -> None:
    for each in OF_BACKEND:
        asked = inspect.signature(getattr(HttpBackend, each.backend)).parameters
        assert [*asked] == ["self", "args", "options"], f"{each.backend} is not made of the table"
