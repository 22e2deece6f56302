"""What the parts of the storage have in common."""

from collections.abc import Callable
from typing import TypeVar

from limpet.backends.objects.files import Files, Gone, missing
from limpet.backends.objects.index import Index
from limpet.backends.objects.reader import ObjectReader
from limpet.backends.objects.scopes import Scopes
from limpet.model import ScopeKey
from limpet.protocol import Stamp
from limpet.storage import Reader, StateReader

T = TypeVar("T")


class Part:
    """Some of the verbs of the storage, over the same objects."""

    files: Files
    index: Index
    scopes: Scopes
    states: Callable[[Reader], StateReader]
    draw: Callable[[], Stamp]

    def reader(self, key: ScopeKey) -> ObjectReader:
        return ObjectReader(self.files, key, self.files.read(key).head)

    def reading(self, key: ScopeKey, use: Callable[[ObjectReader], T]) -> T:
        """Return what `use` returns for one moment; repeat it if the head moves meanwhile."""
        seen = None
        while True:
            reader = self.reader(key)
            try:
                return use(reader)
            except Gone as gone:
                if reader.head.w == seen:
                    raise missing(gone) from None
                seen = reader.head.w
