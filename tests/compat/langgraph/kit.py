"""What the tests of `LimpetSaver` share: stores of each kind, and checkpoints to put there."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple

import limpet
from limpet import Store
from limpet.compat.langgraph import LimpetSaver

ENGINES = [
    "memory",
    "sqlite",
    *(pytest.param(each, marks=pytest.mark.slow) for each in ("directory", "postgres")),
]

_count = itertools.count(1)


class Places:
    """New stores of each kind, by the name of the engine."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request = request
        self._folder = folder

    def url(self, engine: str) -> str:
        folder = self._folder / f"store-{next(_count)}"
        folder.mkdir()
        if engine == "postgres":
            schemas = self._request.getfixturevalue("schemas")
            return str(schemas.url(f"s{next(_count)}"))
        places = {"memory": "memory:", "sqlite": f"sqlite:///{folder}/a.db"}
        return places.get(engine, f"file://{folder}")

    @contextmanager
    def open(self, engine: str) -> Iterator[Store]:
        with limpet.open(self.url(engine)) as store:
            yield store


def id_of(number: int) -> str:
    """Return the id of a checkpoint: the greater the number, the later."""
    return f"1f0{number:05x}-0000-6000-8000-000000000000"


def config(thread_id: str = "t", namespace: str = "", number: int | None = None) -> Any:
    named = {"thread_id": thread_id, "checkpoint_ns": namespace}
    if number is not None:
        named["checkpoint_id"] = id_of(number)
    return {"configurable": named}


def checkpoint(number: int, **values: Any) -> Any:
    return {
        "v": 4,
        "id": id_of(number),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, f"{number:032}.0.5"),
        "versions_seen": {"__input__": {}},
        "updated_channels": sorted(values),
    }


def put(saver: LimpetSaver, number: int, parent: int | None = None, **values: Any) -> Any:
    """Save a checkpoint of the thread `t`."""
    metadata: Any = {"source": "loop", "step": number, "parents": {}}
    return saver.put(config(number=parent), checkpoint(number, **values), metadata, {})


def got(saver: LimpetSaver, number: int | None = None, **where: Any) -> CheckpointTuple:
    found = saver.get_tuple(config(number=number, **where))
    assert found is not None
    return found


class Cipher:
    """Hides nothing from a child, but shows that it was used; and fails as ciphers do."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Return it turned."""
        return "turned", bytes(255 - each for each in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Return it as it was."""
        if ciphername != "turned":
            raise ValueError("no key fits")
        return self.encrypt(ciphertext)[1]


def ids(found: Any) -> list[int]:
    """Return the numbers of checkpoints."""
    return [int(each.checkpoint["id"][3:8], 16) for each in found]


@contextmanager
def opened(*urls: str) -> Iterator[list[Store]]:
    with ExitStack() as stack:
        yield [stack.enter_context(limpet.open(url)) for url in urls]
