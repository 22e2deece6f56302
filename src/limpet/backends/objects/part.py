"""What the parts of the storage have in common."""

from collections.abc import Callable

from limpet.backends.objects.building import StateReader
from limpet.backends.objects.files import Files
from limpet.backends.objects.index import Index
from limpet.backends.objects.scopes import Scopes
from limpet.protocol import Stamp
from limpet.storage import Reader


class Part:
    """Some of the verbs of the storage, over the same objects."""

    files: Files
    index: Index
    scopes: Scopes
    states: Callable[[Reader], StateReader]
    draw: Callable[[], Stamp]
