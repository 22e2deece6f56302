"""Keys and bytes with compare-and-set: what directories and object stores have in common.

The names imported here are the ones that packages above `backends` may use.
"""

from limpet.backends.buckets.directory.folders import NOTHING, TEMPORARY, failure
from limpet.backends.buckets.protocol import Bucket, Listed, Moved, Stored
from limpet.core.limits import is_text

__all__ = [
    "NOTHING",
    "TEMPORARY",
    "Bucket",
    "Listed",
    "Moved",
    "Stored",
    "failure",
    "is_text",
]
