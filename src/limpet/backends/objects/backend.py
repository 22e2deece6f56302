"""The engine over buckets: directories and object stores.

One object for each scope, the head, is its only authority: replacing it by compare-and-set is the
commit of every write. It carries the last deltas; now and then a save moves them into an immutable
segment (docs/format.md). Each base class below has some of the verbs of the `Backend` protocol.
"""

from collections.abc import Callable
from typing import Final

from limpet.backends.buckets.protocol import Bucket
from limpet.backends.objects.commit import Saving
from limpet.backends.objects.delete import Deleting
from limpet.backends.objects.leases import Leases
from limpet.backends.objects.listen import ObjectListener, Watching
from limpet.backends.objects.queries import Queries
from limpet.backends.objects.rekey import Rekeying
from limpet.backends.objects.storage import Storage
from limpet.backends.objects.writer import Writer
from limpet.backends.support.located import located
from limpet.core.encryption import NO_KEYS, Ciphers
from limpet.protocol import Clock, Stamp

POLL_S: Final = 1.0


@located
class ObjectBackend(Saving, Queries, Deleting, Leases, Watching, Rekeying):
    """An engine whose storage is a bucket."""

    blocking = True
    capabilities = frozenset({"durable", "index"})

    def __init__(
        self,
        bucket: Bucket,
        *,
        clock: Clock,
        draw: Callable[[], Stamp],
        compress: bool = False,
        poll_s: float = POLL_S,
        ciphers: Ciphers = NO_KEYS,
    ) -> None:
        """With `compress` objects are written as frames of zstd, else as lines; both are read.

        `poll_s` is the interval of polling where there are no notifications.
        """
        storage = Storage(bucket, clock=clock, draw=draw, compress=compress, ciphers=ciphers)
        super().__init__(Writer(storage))
        self._poll_s = poll_s

    def listen(self) -> ObjectListener:
        clock = self._storage.clock
        return ObjectListener(self._bucket.listen(poll_s=self._poll_s, clock=clock))

    def close(self) -> None:
        self._storage.close()
