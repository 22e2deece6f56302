"""Every engine, and both SDKs."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import limpet
from limpet import Store
from tests.interop.conftest import sdk

__all__ = ["sdk"]


class Address(NamedTuple):
    """What a store is opened with, as often as one likes."""

    url: str
    options: dict[str, Any]

    def open(self) -> Store:
        return limpet.open(self.url, **self.options)


def address_of(engine: str, request: pytest.FixtureRequest) -> Address:
    folder: Path = request.getfixturevalue("tmp_path")
    match engine:
        case "memory":
            return Address("memory:", {})
        case "sqlite":
            return Address(f"sqlite:///{folder}/agents.db", {})
        case "directory":
            return Address(f"file://{folder}/store", {"sync": False})
        case "postgres":
            return Address(request.getfixturevalue("postgres_url"), {})
    service = request.getfixturevalue("seaweedfs")
    return Address(f"s3://{service.name}/{secrets.token_hex(8)}", {**service.options})


def slowly(*engines: str) -> list[Any]:
    return [pytest.param(each, marks=pytest.mark.slow) for each in engines]


@pytest.fixture(params=["memory", "sqlite", *slowly("directory", "postgres", "s3")])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of each engine."""
    with address_of(request.param, request).open() as store:
        yield store


@pytest.fixture(params=["sqlite", *slowly("directory", "postgres", "s3")])
def address(request: pytest.FixtureRequest) -> Address:
    """The address of an empty store that can be opened again."""
    return address_of(request.param, request)
