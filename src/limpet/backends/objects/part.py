"""What the parts of the storage have in common."""

from collections.abc import Callable, Collection
from typing import TypeVar

from limpet.backends.objects.files import Files, Gone
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

    def reader(self, key: ScopeKey, lost: Collection[str] = ()) -> ObjectReader:
        return ObjectReader(self.files, key, self.files.read(key).head, lost)

    def reading(self, key: ScopeKey, use: Callable[[ObjectReader], T]) -> T:
        """Return what `use` returns for one moment; repeat it if the head moves meanwhile."""
        lost = set[str]()
        while True:
            try:
                return use(self.reader(key, lost))
            except Gone as gone:
                lost.add(str(gone))
