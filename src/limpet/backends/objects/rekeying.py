"""Encrypting a bucket with the current keys."""

from itertools import groupby
from typing import Final

from limpet.backends.objects import keys
from limpet.backends.objects.checking import Checking
from limpet.backends.objects.reader import read_moment
from limpet.errors import Corrupt, InvalidInput, Unsupported

_LABELS: Final = "labels:"  # before the cursor of the second part


class Rekeying(Checking):
    def rekey(self, after: str, *, limit: int) -> tuple[int, str | None]:
        """Encrypt with the current keys, object by object, then label by label.

        An object is replaced by compare-and-set, so that a write in between is kept. The key of a
        label's pointer depends on the key of its session: the pointers that older keys have written
        are replaced, the new one being written first. Each page may be repeated.
        """
        if not self.files.ciphers.encrypts:
            raise InvalidInput("the store was opened without keys: give keys= or keys_file=")
        if after.startswith(_LABELS):
            count, last = self._rekey_labels(after.removeprefix(_LABELS), limit)
            return count, None if last is None else f"{_LABELS}{last}"
        page = self.files.bucket.list(keys.ROOT, after=after, limit=limit)
        count = self.files.bucket.renew([each.key for each in page if keys.is_content(each.key)])
        return count, page[-1].key if len(page) == limit else _LABELS

    def _rekey_labels(self, after: str, limit: int) -> tuple[int, str | None]:
        page = self.files.bucket.list(keys.labels_prefix(), after=after, limit=limit)
        modified = {each.key: each.modified for each in page}
        pointed = sorted(self.index.followed(page), key=lambda each: each.scope)
        count = 0
        for scope, group in groupby(pointed, key=lambda each: each.scope):
            try:
                current = read_moment(self.files, scope, self.pointers)
            except (Corrupt, Unsupported):
                continue  # what cannot be read is left alone
            old = [each for each in group if current.get(each.key) != each.key]
            moved = [each.key for each in old if each.key in current]
            self.index.write(scope, sorted({current[key] for key in moved}))
            # One that leads nowhere may be the label of a snapshot that was not encrypted.
            lost = (each for each in old if each.key not in current)
            moved += [each.key for each in lost if self._leads_nowhere(each, modified[each.key])]
            self.files.delete(moved)
            count += len(moved)
        return count, page[-1].key if len(page) == limit else None
