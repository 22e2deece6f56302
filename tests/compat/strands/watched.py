"""An `S3Storage` that is watched, and a client as a user makes one."""

import secrets
from urllib.parse import parse_qs, urlsplit

from obstore.store import S3Store

from limpet.compat.strands import S3Storage
from tests.interop.places import Below, Objects
from tests.servers.proxy import Proxy
from tests.servers.service import Service


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
