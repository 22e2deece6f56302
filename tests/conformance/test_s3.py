"""The suite on a real S3 server, and the conditions on one that lists by bytes."""

import hashlib
from pathlib import Path

import pytest
import zstandard

from limpet import opening
from limpet.core.names import name_of
from limpet.model import ANY
from limpet.protocol import Backend
from limpet.testing import conformance
from limpet.testing.conformance.functions import Functions
from limpet.testing.conformance.leasing import Leasing
from limpet.testing.conformance.programs import Programs, Verbs
from limpet.testing.conformance.promises import Promises
from limpet.testing.conformance.threads import Threads
from tests.conformance.parts import Async, InBoth, Sync, some
from tests.servers.service import Service

POLL_S = 0.1  # how often watches poll


class OnService(conformance.Kit):
    """Gives each test a prefix of its own."""

    service: Service
    text_order = False

    def open_backend(self, place: Path) -> Backend:
        url = f"s3://{self.service.name}/{prefix_of(place)}"
        return opening.open_backend(url, poll_s=POLL_S, **self.service.options)

    def damage(self, place: Path, text: bytes) -> int:
        """Spoil the last frame of each object that has the text in one of its frames."""
        bucket = self.service.open(prefix_of(place))
        found = 0
        for each in bucket.list("", limit=1000):
            (stored,) = bucket.get([each.key])
            if stored is not None and text in _plain(stored.data):
                found += 1
                bucket.put(each.key, stored.data[:-6] + b"spoilt", expect=ANY)
        bucket.close()
        return found


def _plain(data: bytes) -> bytes:
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    try:
        return reader.read()
    except zstandard.ZstdError:
        return data


def prefix_of(place: Path) -> str:
    return hashlib.sha256(str(place).encode()).hexdigest()[:16]


class OnSeaweedFS(OnService):
    @pytest.fixture(autouse=True)
    def _served(self, seaweedfs: Service) -> None:
        self.service = seaweedfs

    def folder_order(self, name: str) -> str:
        return name_of(name)  # it keeps a tree, so folders are sorted by their names alone


class TestSeaweedFS(Sync, OnSeaweedFS, Programs, Functions, Threads, Leasing):
    """The chapters that depend most on the storage."""

    programs = some(2)
    test_damage = Promises.test_promise_10_bad_data_is_contained_on_storage


@pytest.mark.slow
class TestSeaweedFSAtLength(Sync, OnSeaweedFS, conformance.Suite):
    """Every chapter."""


@pytest.mark.slow
class TestSeaweedFSAsync(Async, OnSeaweedFS, InBoth):
    pass


class TestByBytes(Sync, OnService):
    @pytest.fixture(autouse=True)
    def _served(self, small_s3: Service) -> None:
        self.service = small_s3

    def folder_order(self, name: str) -> str:
        return f"{name_of(name)}."

    twins = Verbs.twins
    both = Verbs.both
    test_expect_compares_the_head = Verbs.test_expect_compares_the_head
    test_the_same_id_again = Verbs.test_the_same_id_again
