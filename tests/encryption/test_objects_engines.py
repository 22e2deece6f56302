"""Encrypted folders and object stores keep every promise: the suite and kills."""

import os
from pathlib import Path
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from limpet import opening
from limpet.backends.buckets import Bucket
from limpet.backends.objects.encrypted import EncryptedBucket
from limpet.core.encryption import Keys
from limpet.model import ANY
from limpet.protocol import Backend
from limpet.testing.conformance.functions import Functions
from limpet.testing.conformance.programs import Programs, Verbs
from limpet.testing.conformance.promises import Promises
from tests.conformance.parts import Async, InBoth, Stored, Sync, some
from tests.conformance.test_directory import OnDirectory
from tests.conformance.test_s3 import POLL_S, OnSeaweedFS, prefix_of
from tests.crash.mortal_objects import ALL
from tests.crash.test_objects_kill import LATE_S, torture
from tests.encryption.objects_kit import CANARY, ONE, TWO, fill, shown
from tests.servers.service import Service

KEYS = f"{TWO}\n{ONE}\n{ONE} s"  # two of the others; sessions that begin with s have their own


def spoil(below: Bucket, text: bytes) -> int:
    """Spoil the end of each object that has the text in it; return how many."""
    bucket = EncryptedBucket(below, Keys(KEYS, random=os.urandom, monotonic=lambda: 0.0))
    found = 0
    for each in below.list("sessions/", limit=1000):
        (plain,), (stored,) = bucket.get([each.key]), below.get([each.key])
        if plain is not None and stored is not None and stored.data and text in plain.data:
            found += 1
            below.put(each.key, stored.data[:-6] + b"spoilt", expect=ANY)
    bucket.close()
    return found


class OnEncryptedDirectory(OnDirectory):
    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(f"file://{place}/store", sync=False, keys=KEYS)

    def open_program(self, place: Path) -> Backend:
        return self.open_backend(place)

    def damage(self, place: Path, text: bytes) -> int:
        return spoil(opening.open_folder(f"{place}/store"), text)


class OnEncryptedS3(OnSeaweedFS):
    def open_backend(self, place: Path) -> Backend:
        url = f"s3://{self.service.name}/{prefix_of(place)}"
        return opening.open_backend(url, poll_s=POLL_S, keys=KEYS, **self.service.options)

    def damage(self, place: Path, text: bytes) -> int:
        return spoil(self.service.open(prefix_of(place)), text)


class TestEncryptedDirectory(Sync, OnEncryptedDirectory, Programs):
    """The random programs; the rest is that of a folder."""

    programs = some(4)


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestEncryptedDirectoryAtLength(Sync, OnEncryptedDirectory, Stored):
    programs = some(40, 40)


@pytest.mark.slow
class TestEncryptedDirectoryAsync(Async, OnEncryptedDirectory, InBoth):
    pass


@pytest.mark.slow
class TestEncryptedS3(Sync, OnEncryptedS3, Promises, Verbs, Functions):
    """The chapters in which most is read and replaced; the rest is that of a folder."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_was_acknowledged_survives_the_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMPET_KEYS", KEYS)
    counts = torture(f"file://{tmp_path}/store", rounds=6, writes_max=24, seed=900)
    assert sum(counts[kind] for kind in ALL) > 30


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_a_service_acknowledged_survives_the_kill(
    seaweedfs: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMPET_KEYS", KEYS)
    url = f"s3://{seaweedfs.name}/{uuid4().hex}?{urlencode(seaweedfs.options)}"
    counts = torture(url, rounds=3, writes_max=24, seed=950, late_s=LATE_S)
    assert sum(counts[kind] for kind in ALL) > 10


@pytest.mark.slow
def test_a_service_holds_no_content_and_its_keys_change(seaweedfs: Service) -> None:
    prefix = uuid4().hex
    url = f"s3://{seaweedfs.name}/{prefix}"
    with opening.open(url, keys=ONE, **seaweedfs.options) as store:
        fill(store)
        expected = shown(store)
    with opening.open(url, keys=f"{TWO}\n{ONE}", **seaweedfs.options) as store:
        assert store.rekey() > 5
        assert store.rekey() == 0
    with opening.open(url, keys=TWO, **seaweedfs.options) as store:
        assert shown(store) == expected
        assert list(store.check()) == []
    bucket = seaweedfs.open(prefix)
    for each in bucket.list("", limit=1000):
        (stored,) = bucket.get([each.key])
        assert CANARY not in each.key
        assert stored is not None
        assert CANARY.encode() not in stored.data
    bucket.close()
