"""The stateful machine over HTTP: random verbs give what the memory engine gives."""

from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from limpet import opening
from limpet.protocol import Backend
from limpet.testing.stateful import Lockstep
from tests.property.test_stateful import some
from tests.servers.http import Http


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_http_does_what_memory_does(http: Http) -> None:
    urls: list[str] = []

    class OverHttp(Lockstep):
        def open_backend(self, place: Path) -> Backend:
            urls.append(http.mount(f"sqlite:///{place}/limpet.db?synchronous=off"))
            return opening.open_backend(urls[-1])

    run_state_machine_as_test(OverHttp, settings=some(6, 30))
    for url in urls:
        http.unmount(url)
