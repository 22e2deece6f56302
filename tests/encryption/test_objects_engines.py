"""Encrypted folders and object stores keep every promise: the suite and kills."""

import os
from pathlib import Path

import pytest

from limpet import opening
from limpet.backends.buckets import Bucket
from limpet.backends.objects.encrypted import EncryptedBucket
from limpet.core.encryption import Keys
from limpet.model import ANY
from limpet.protocol import Backend
from limpet.testing.conformance.programs import Programs
from tests.conformance.parts import Stored, Sync, some
from tests.conformance.test_directory import OnDirectory
from tests.encryption.objects_kit import ONE, TWO

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


class TestEncryptedDirectory(Sync, OnEncryptedDirectory, Programs):
    """The random programs; the rest is that of a folder."""

    programs = some(4)


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestEncryptedDirectoryAtLength(Sync, OnEncryptedDirectory, Stored):
    programs = some(15, 40)
