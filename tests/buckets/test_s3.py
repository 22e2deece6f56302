"""Object stores as buckets: SeaweedFS is a real one, moto a second opinion."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast.backends._bucket.s3 import ObjectStoreBucket
from tests.buckets.suite import BucketFunctions, BucketSuite, by_names
from tests.servers.fixtures import moto, seaweedfs  # noqa: F401
from tests.servers.service import Service


class TestSeaweedFS(BucketSuite):
    order = staticmethod(by_names)

    @pytest.fixture
    def bucket(self, seaweedfs: Service) -> Iterator[ObjectStoreBucket]:  # noqa: F811
        bucket = seaweedfs.open(uuid4().hex)
        yield bucket
        bucket.close()


class TestMoto(BucketFunctions):
    @pytest.fixture
    def bucket(self, moto: Service) -> Iterator[ObjectStoreBucket]:  # noqa: F811
        bucket = moto.open(uuid4().hex)
        yield bucket
        bucket.close()
