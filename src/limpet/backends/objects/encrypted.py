"""A bucket over a bucket that encrypts the objects of sessions.

An encrypted object has one or two parts, each encrypted by itself: a head or a segment its facts
and the rest, so that a listing reads the facts alone, and a damaged state does not hide them; any
other object one. The length of the first part is behind the id of its key:

    01 key(4) length(4) nonce(12) ciphertext(length) tag(16)     the first part
    01 key(4) nonce(12) ciphertext tag(16)                       the rest

The first part is bound to the object's key, to its length, and to whether a rest follows; the rest
to the object's key and to the nonce of the first part. So an object is decrypted under its own key
only, nothing of it can be cut off, and parts of two versions do not fit together.

The objects of the index hold nothing but ids, and are not encrypted.
"""

from collections.abc import Sequence
from functools import lru_cache

from limpet.backends.buckets.protocol import Bucket, Moved, Stored
from limpet.backends.objects.format import facts_end
from limpet.backends.objects.keys import ROOT
from limpet.core.encryption import ENCRYPTED_BYTES, Cipher, Ciphers, is_encrypted
from limpet.core.names import Clipped, escape, start_of, unescape
from limpet.errors import Corrupt, InvalidInput, Unavailable
from limpet.model import Expect

_ID_END = 5
_LENGTH_END = 9
_NONCE_BYTES = 12
_FIRST_BYTES = _LENGTH_END - _ID_END + ENCRYPTED_BYTES  # what the first part has more than its text
_TRIES_MAX = 100


class Unreadable(Stored):
    """An object that cannot be decrypted: its data raises Corrupt. `[0]` is what is stored.

    It may be whole, if it raises WrongKeys: the store was opened without its key, or without the
    permission to read what is not encrypted.
    """

    error: Corrupt

    @property
    def data(self) -> bytes:
        raise self.error


class EncryptedBucket:
    """Encrypts what is put below `sessions/`, and decrypts it again; `below` is what stores it.

    Each session has its cipher. A session id that is clipped in keys is known by that name, of
    which only the beginning is compared with the prefixes of the store's keys.
    """

    def __init__(self, below: Bucket, ciphers: Ciphers) -> None:
        self.below = below
        self._ciphers = ciphers
        # What needs no key.
        self.mark, self.delete, self.list = below.mark, below.delete, below.list
        self.fingerprints, self.listen, self.close = below.fingerprints, below.listen, below.close
        for prefix in ciphers.prefixes:
            if start_of(prefix) != escape(prefix):
                raise InvalidInput(
                    "the prefix of a key is too long for folders and object stores, whose names "
                    f"have only the beginning of a long session id. prefix=`{prefix}`"
                )

    # Reading

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """As `Bucket.get`; an object that cannot be decrypted is `Unreadable`.

        Where the rest is damaged, or is not all among the bytes asked for, the data is the first
        part; nothing if that is not among them either.
        """
        more = _FIRST_BYTES if self._ciphers.encrypts else 0
        found = self.below.get(keys, first=None if first is None else first + more)
        return [
            each if each is None or not key.startswith(ROOT) else self._readable(key, each)
            for key, each in zip(keys, found, strict=True)
        ]

    def _readable(self, key: str, stored: Stored) -> Stored:
        try:
            return self._opened(key, stored)
        except Corrupt as error:
            found = Unreadable(*stored)
            found.error = error
            return found

    def _opened(self, key: str, stored: Stored, *, is_whole: bool = False) -> Stored:
        """Decrypt an object; with `is_whole` raise Corrupt if its rest cannot be."""
        raw = stored.data
        if not is_encrypted(raw):
            self._cipher(key).plain(raw)
            return stored
        length = int.from_bytes(raw[_ID_END:_LENGTH_END])
        end = length + _FIRST_BYTES
        has_rest, is_cut = end < stored.size, len(raw) < stored.size
        size = stored.size - _FIRST_BYTES - (ENCRYPTED_BYTES if has_rest else 0)
        if is_cut and len(raw) < end:
            return stored._replace(data=b"", size=size)
        first = raw[:_ID_END] + raw[_LENGTH_END:end]
        data = self._cipher(key).decrypt(first, _about(key, length, has_rest))
        if has_rest and not is_cut:
            about = _about_rest(key, first)
            try:
                data += self._cipher(key).decrypt(raw[end:], about)
            except Corrupt:
                if is_whole:
                    raise
        return stored._replace(data=data, size=size)

    def _cipher(self, key: str) -> Cipher:
        return self._ciphers.of(_session_of(key[len(ROOT) :].partition("/")[0]))

    # Writing

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        return self.below.put(key, self._sealed(key, data), expect=expect)

    def _sealed(self, key: str, data: bytes) -> bytes:
        if not self._ciphers.encrypts or not key.startswith(ROOT):
            return data
        cipher, is_split = self._cipher(key), key.endswith("/head") or "/segments/" in key
        length = facts_end(data) if is_split else len(data)
        first = cipher.encrypt(data[:length], _about(key, length, length < len(data)))
        stored = [first[:_ID_END], length.to_bytes(_LENGTH_END - _ID_END), first[_ID_END:]]
        if length < len(data):
            stored.append(cipher.encrypt(data[length:], _about_rest(key, first)))
        return b"".join(stored)

    def renew(self, keys: Sequence[str]) -> int:
        """Encrypt objects with the current keys; return how many were not.

        What cannot be decrypted is left alone.
        """
        found = zip(keys, self.below.get(keys, first=_ID_END), strict=True)
        return sum(self._renew(key) for key, each in found if each and self._is_old(key, each))

    def _renew(self, key: str) -> bool:
        for _ in range(_TRIES_MAX):
            (stored,) = self.below.get([key])
            if stored is None or not self._is_old(key, stored):
                return False
            try:
                self.put(key, self._opened(key, stored, is_whole=True).data, expect=stored.version)
                return True
            except Corrupt:
                return False
            except Moved:
                continue
        raise Unavailable(f"other writers kept changing an object: try again later. key=`{key}`")

    def _is_old(self, key: str, stored: Stored) -> bool:
        return not self._cipher(key).is_current(stored.data)


@lru_cache(maxsize=4096)
def _session_of(name: str) -> str:
    """Return the session id of a name in a key; of a clipped one, what the name has of it."""
    found = unescape(name)
    if isinstance(found, Clipped):
        return f"{found.start}~{found.digest}"
    return name if found is None else found


def _about(key: str, length: int, has_rest: bool) -> bytes:
    return b"%b\0first %d %d" % (key.encode(), length, has_rest)


def _about_rest(key: str, first: bytes) -> bytes:
    return b"%b\0rest %b" % (key.encode(), first[_ID_END : _ID_END + _NONCE_BYTES])
