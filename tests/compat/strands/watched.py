"""An `S3Storage` that is watched, and one that is refused."""

import secrets
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from obstore.store import S3Store

from limpet import LimpetError, Unavailable
from limpet.compat.strands import S3Storage, SessionError
from tests.interop.places import Below, Objects
from tests.servers.proxy import Proxy
from tests.servers.service import Service
from tests.servers.stub import Stub


class Watched:
    """A storage with a prefix of its own, behind a proxy."""

    def __init__(self, service: Service, proxy: Proxy) -> None:
        self.prefix = f"watched/{secrets.token_hex(6)}"
        self.proxy = proxy
        self.objects = Objects(Below(service, self.prefix))
        options = {**service.options, "endpoint_url": proxy.url}
        self.storage = S3Storage(bucket=service.name, prefix=self.prefix, **options)

    def listed(self) -> list[dict[str, str]]:
        """Return the query of each LIST."""
        return [
            {name: value for name, (value,) in parse_qs(urlsplit(each.path).query).items()}
            for each in self.proxy.requests()
            if each.method == "LIST"
        ]

    def asked(self, method: str) -> list[str]:
        """Return the keys of the requests of a method, below the prefix."""
        found = [each for each in self.proxy.requests() if each.method == method]
        paths = [urlsplit(each.path).path for each in found]
        return [path.partition(f"{self.prefix}/")[2] for path in paths]


class Failing:
    """A storage over a stub, which refuses once it is told to."""

    def __init__(self, stub: Stub) -> None:
        self.stub = stub
        self.storage = S3Storage(bucket=stub.service.name, retry_s=0.2, **stub.service.options)

    async def refuses(self, call: Any, *, status: int = 403, code: str = "AccessDenied") -> None:
        """See that a call fails as one that the service refused."""
        self.stub.answer(status, code, n=100)
        with pytest.raises(SessionError) as caught:
            await call
        assert isinstance(caught.value, LimpetError)
        assert isinstance(caught.value.__cause__, Unavailable)
        assert code in str(caught.value.__cause__)


def client_of(service: Service) -> S3Store:
    """Return a client as a user makes one."""
    return S3Store(
        service.name,
        endpoint=service.url,
        region="us-east-1",
        access_key_id=service.access_key_id,
        secret_access_key=service.secret_access_key,
        client_options={"allow_http": True},
    )
