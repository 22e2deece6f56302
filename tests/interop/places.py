"""Where things are stored: a folder, or a prefix in a bucket."""

from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import obstore
from obstore.store import S3Store

from tests.servers.service import Service


class Files(Protocol):
    """The stored bytes, by their keys below the address, seen by neither side's code."""

    def list_keys(self) -> list[str]: ...
    def read(self, key: str) -> bytes: ...
    def write(self, key: str, data: bytes) -> None: ...
    def remove(self, key: str) -> None: ...


class Folder:
    """Files below a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def list_keys(self) -> list[str]:
        found = (each for each in self.path.rglob("*") if each.is_file())
        return sorted(each.relative_to(self.path).as_posix() for each in found)

    def read(self, key: str) -> bytes:
        return (self.path / key).read_bytes()

    def write(self, key: str, data: bytes) -> None:
        (self.path / key).parent.mkdir(parents=True, exist_ok=True)
        (self.path / key).write_bytes(data)

    def remove(self, key: str) -> None:
        (self.path / key).unlink()


class Below(NamedTuple):
    """A prefix in the bucket of a service."""

    service: Service
    prefix: str


class Objects:
    """Objects below a prefix."""

    def __init__(self, at: Below) -> None:
        self._store = S3Store(
            at.service.name,
            prefix=at.prefix,
            endpoint=at.service.url,
            region=at.service.options["region"],
            access_key_id=at.service.access_key_id,
            secret_access_key=at.service.secret_access_key,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )

    def list_keys(self) -> list[str]:
        return sorted(each["path"] for page in obstore.list(self._store) for each in page)

    def read(self, key: str) -> bytes:
        return bytes(obstore.get(self._store, key).bytes())

    def write(self, key: str, data: bytes) -> None:
        obstore.put(self._store, key, data)

    def remove(self, key: str) -> None:
        obstore.delete(self._store, key)


Place: TypeAlias = Path | Below
"""An address that both sides can be given."""
