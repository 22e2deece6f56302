"""The requests of each verb, sent through obstore directly: the same bytes, the same conditions."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import orjson
from obstore.store import S3Store

from benchmarks.objects.material import HEAD, Keys
from tests.servers.service import Service

FIRST_BYTES = 16 * 1024  # of the head, which says whether a copy counts


def bare_store(service: Service) -> S3Store:
    """Open the bucket as Limpet does, without retries."""
    return S3Store(
        service.name,
        config={
            "endpoint": service.url,
            "region": "us-east-1",
            "access_key_id": service.access_key_id,
            "secret_access_key": service.secret_access_key,
            "conditional_put": "etag",
            "virtual_hosted_style_request": False,
        },
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


class BareWriter:
    """Puts what a save puts, below a prefix. It knows the version of its head, as a writer does."""

    def __init__(self, store: S3Store, prefix: str, pool: ThreadPoolExecutor) -> None:
        self._store = store
        self._prefix = prefix
        self._pool = pool
        self._version: str | None = None

    def save(self, document: bytes, keys: Keys) -> None:
        """Send the four requests one after the other."""
        self.put_head(document)
        self._mark(keys.by_id)
        self._mark(keys.by_place)
        self._create(keys.copy, document)

    def save_best(self, document: bytes, keys: Keys) -> None:
        """Send the pointers at once: the head must come before them, and the copy after them."""
        self.put_head(document)
        list(self._pool.map(self._mark, (keys.by_id, keys.by_place)))
        self._create(keys.copy, document)

    def put_head(self, document: bytes) -> None:
        """Replace the head, if it is still the one that was put before."""
        path = self._prefix + HEAD
        if self._version is None:
            done = self._store.put(path, document, mode="create", use_multipart=False)
        else:
            mode = {"e_tag": self._version}
            done = self._store.put(path, document, mode=mode, use_multipart=False)  # type: ignore[arg-type]
        self._version = done["e_tag"]

    def _create(self, key: str, document: bytes) -> None:
        self._store.put(self._prefix + key, document, mode="create", use_multipart=False)

    def _mark(self, key: str) -> None:
        self._store.put(self._prefix + key, b"", mode="overwrite", use_multipart=False)


def load(store: S3Store, keys: Sequence[str]) -> object:
    """Get documents one after the other, all but the last only in part; parse the last."""
    *before, last = keys
    for key in before:
        store.get(key, options={"range": (0, FIRST_BYTES)}).bytes()
    return orjson.loads(store.get(last).bytes().to_bytes())
