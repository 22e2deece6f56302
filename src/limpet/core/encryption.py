"""Encryption of what is stored: AES-256-GCM, with a key for each prefix of session ids.

Keys come as text, one to a line: 32 bytes in base64 or hex and, behind a space, the prefix of the
sessions that it is for; without one it is for all others. The first key of a prefix encrypts, all
of them decrypt. So a key is replaced by a new line above it, and the old line goes when nothing is
encrypted with it any more. Without its key a session cannot be read again: that forgets it.

What is encrypted begins with the byte 1, which nothing else that is stored begins with; the id of
the key, which is the beginning of a hash of it; and a random nonce. It is bound to what it is
`about`: to where it is stored, and to all that is stored next to it without being encrypted.
Decrypted elsewhere, or next to something else, it is Corrupt.

Each session of each store has a key of its own, derived from that of its prefix. Labels and
statuses have to be found, so a hash with a key stands for each of them: equal ones are seen to be
equal.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from limpet.errors import Corrupt, InvalidInput, Unsupported

# The modules for keys are imported where they are used: most stores have none.

KEY_BYTES = 32
MARK = b"\x01"
_ID_BYTES = 4
_NONCE_BYTES = 12
_HEADER_BYTES = len(MARK) + _ID_BYTES
ENCRYPTED_BYTES = _HEADER_BYTES + _NONCE_BYTES + 16  # that encryption adds
_REREAD_S = 5.0  # an unknown key is asked for no more often; new ones, by queries for labels
_CIPHERS_MAX = 4096
PLAIN_NONCE = "0" * 16  # stands for the write of a state that was not encrypted
KEYS_MISSING = "this is encrypted: open the store with keys= or $LIMPET_KEYS_FILE"

KeyText: TypeAlias = str | Callable[[], str]
"""Keys as text, or what returns it; that is called again when a key is not known."""


class WrongKeys(Corrupt):
    """Cannot be read with the keys that are given, but is not damaged: nothing may replace it."""


class Cipher:
    """Encrypts and decrypts what is stored of one session; this one leaves it as it is."""

    def encrypt(self, data: bytes, about: bytes) -> bytes:
        """Return it encrypted, bound to what it is about.

        Raises:
            InvalidInput: there is no key for the session.
        """
        return data

    def check_key(self) -> None:
        """Raise InvalidInput if there is no key for the session."""

    def decrypt(self, stored: bytes, about: bytes) -> bytes:
        """Return what `encrypt` was given.

        Raises:
            WrongKeys: its key is missing; or it is not encrypted, and has to be.
            Corrupt: it was changed, or stored elsewhere.
        """
        if stored.startswith(MARK):
            raise WrongKeys(f"{KEYS_MISSING}. key=`{key_id(stored)}`")
        return stored

    def plain(self, stored: bytes) -> bytes:
        """Return what is stored as it is; WrongKeys if it is encrypted, or has to be."""
        return self.decrypt(stored, b"")

    def is_current(self, stored: bytes) -> bool:
        """Return whether it is encrypted with the key that `encrypt` uses."""
        return not stored.startswith(MARK)

    def label(self, name: str, value: str) -> tuple[str, str]:
        """Return a label as an index has it."""
        return name, value

    def labels(self, name: str, value: str) -> list[tuple[str, str]]:
        """Return a label as an index may have it: with each of the keys."""
        return [(name, value)]


PLAIN = Cipher()


class Ciphers:
    """The ciphers of a store; these are of one without keys."""

    encrypts = False

    @property
    def prefixes(self) -> Collection[str]:
        """The prefixes of session ids that there are keys for."""
        return ()

    def of(self, session_id: str) -> Cipher:
        """Return the cipher of a session. Without a key for it, nothing can be encrypted."""
        return PLAIN

    def bind(self, store_id: bytes) -> None:
        """Derive the keys of sessions for one store: what is copied into another is Corrupt."""

    def labels(self, prefix: str, name: str, value: str) -> list[tuple[str, str]]:
        """Return a label as the index may have it for any session that begins with `prefix`."""
        return [(name, value)]


NO_KEYS = Ciphers()


class _Key(NamedTuple):
    id: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"<key {self.id.hex()}>"


class Keys(Ciphers):
    """The keys of a store."""

    encrypts = True

    def __init__(
        self,
        given: KeyText,
        *,
        random: Callable[[int], bytes],
        monotonic: Callable[[], float],
        allow_plaintext: bool = False,
    ) -> None:
        """Read the keys. With `allow_plaintext` what is not encrypted can be read, too."""
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise Unsupported("keys need an extra: pip install 'limpet[encryption]'") from None
        self.aes: Callable[[bytes], Any] = AESGCM
        self.invalid: type[Exception] = InvalidTag
        self.random = random
        self.allow_plaintext = allow_plaintext
        self._given = given
        self._monotonic = monotonic
        self._read_at = self._labels_read_at = monotonic() - _REREAD_S
        self._rings = parse_keys(_text_of(given))
        self._ciphers: dict[str, _SessionCipher] = {}
        self.store_id = b""

    @property
    def prefixes(self) -> Collection[str]:
        return self._rings.keys()

    def of(self, session_id: str) -> "_SessionCipher":
        found = self._ciphers.get(session_id)
        if found is None:
            prefix = max(filter(session_id.startswith, self._rings), key=len, default=None)
            ring = () if prefix is None else self._rings[prefix]
            if len(self._ciphers) >= _CIPHERS_MAX:
                self._ciphers = {}
            found = self._ciphers[session_id] = _SessionCipher(self, session_id, ring)
        return found

    def bind(self, store_id: bytes) -> None:
        self.store_id, self._ciphers = store_id, {}

    def labels(self, prefix: str, name: str, value: str) -> list[tuple[str, str]]:
        # What a new key has written would be missing, without an error that says so.
        self._labels_read_at = self._read_after(self._labels_read_at)
        rings = [ring for each, ring in self._rings.items() if each.startswith(prefix)]
        above = max(filter(prefix.startswith, self._rings), key=len, default=None)
        if above is not None and above != prefix:
            rings.append(self._rings[above])
        return self.spellings({key: None for ring in rings for key in ring}, name, value)

    def spellings(self, keys: Iterable["_Key"], name: str, value: str) -> list[tuple[str, str]]:
        """Return a label as it may be stored with some keys, or without."""
        found = [_hashed(key, name, value) for key in keys]
        return [*found, (name, value)] if self.allow_plaintext else found

    def reread(self) -> None:
        """Read the keys again, unless that was just done."""
        self._read_at = self._read_after(self._read_at)

    def _read_after(self, last: float) -> float:
        """Read the keys, unless that was just done; return when it was done last."""
        if not callable(self._given) or self._monotonic() - last < _REREAD_S:
            return last
        now = self._monotonic()
        try:
            rings = parse_keys(_text_of(self._given))
        except InvalidInput:
            return now  # the file is being written, or gone: those that are known stay
        if rings != self._rings:
            self._rings, self._ciphers = rings, {}
        return now


class _SessionCipher(Cipher):
    def __init__(self, keys: Keys, session_id: str, ring: tuple[_Key, ...]) -> None:
        self._keys = keys
        self._session_id = session_id
        self._ring = ring
        self._aes = {key.id: keys.aes(self._derived(key)) for key in ring}

    def _derived(self, key: _Key) -> bytes:
        import hmac

        about = b"limpet 1 data%b\0%b" % (self._keys.store_id, self._session_id.encode())
        return hmac.digest(key.secret, about, "sha256")

    def _current(self) -> _Key:
        """Return the key that encrypts, or raise InvalidInput."""
        if not self._ring:
            raise InvalidInput(
                "there is no key for this session: add one for its prefix, or one without. "
                f"session=`{self._session_id}`"
            )
        return self._ring[0]

    def encrypt(self, data: bytes, about: bytes) -> bytes:
        # A transaction that met a new key on the way must not write with the old one.
        newest = self._keys.of(self._session_id)
        if newest is not self:
            return newest.encrypt(data, about)
        key_id, nonce = self._current().id, self._keys.random(_NONCE_BYTES)
        header = MARK + key_id
        sealed: bytes = self._aes[key_id].encrypt(nonce, data, header + about)
        return b"%b%b%b" % (header, nonce, sealed)

    def check_key(self) -> None:
        self._keys.of(self._session_id)._current()

    def decrypt(self, stored: bytes, about: bytes) -> bytes:
        header = stored[:_HEADER_BYTES]
        if not header.startswith(MARK):
            if self._keys.allow_plaintext:
                return stored
            raise WrongKeys(
                "this is not encrypted, and the store has keys: run `limpet rekey --plaintext`"
            )
        aes = self._aes.get(header[1:])
        if aes is None:
            if (fresh := self._fresh()) is not None:
                return fresh.decrypt(stored, about)
            raise WrongKeys(f"the key of what is stored is not given. key=`{key_id(stored)}`")
        at = _HEADER_BYTES + _NONCE_BYTES
        try:
            data: bytes = aes.decrypt(stored[_HEADER_BYTES:at], stored[at:], header + about)
        except (ValueError, self._keys.invalid):
            raise Corrupt(
                "what is stored was changed, or belongs elsewhere: it does not decrypt. "
                f"key=`{key_id(stored)}`"
            ) from None
        return data

    def is_current(self, stored: bytes) -> bool:
        return bool(self._ring) and stored.startswith(MARK + self._ring[0].id)

    def label(self, name: str, value: str) -> tuple[str, str]:
        return _hashed(self._keys.of(self._session_id)._current(), name, value)

    def labels(self, name: str, value: str) -> list[tuple[str, str]]:
        return self._keys.spellings(self._ring, name, value)

    def _fresh(self) -> "_SessionCipher | None":
        """Return the cipher of the keys as they are now, if they are others than before."""
        self._keys.reread()
        fresh = self._keys.of(self._session_id)
        return None if fresh is self else fresh


def _hashed(key: _Key, name: str, value: str) -> tuple[str, str]:
    """Return a label of which only equality is seen; its name is part of both texts."""
    import base64
    import hashlib
    import hmac

    secret = hmac.digest(key.secret, b"limpet 1 labels", "sha256")
    texts = (name.encode(), b"%d:%b%b" % (len(name), name.encode(), value.encode()))
    digests = (hashlib.blake2b(each, key=secret, digest_size=12) for each in texts)
    first, second = (base64.urlsafe_b64encode(each.digest()).decode() for each in digests)
    return first, second


def is_encrypted(stored: bytes) -> bool:
    return stored.startswith(MARK)


def key_id(stored: bytes) -> str:
    """Return the id of the key that something is encrypted with, for people to read."""
    return stored[len(MARK) : _HEADER_BYTES].hex()


def _text_of(given: KeyText) -> str:
    text = given() if callable(given) else given
    if not isinstance(text, str):
        raise InvalidInput(f"keys must be text, or return it. type=`{type(text).__name__}`")
    return text


def parse_keys(text: str) -> Mapping[str, tuple[_Key, ...]]:
    """Return the keys of each prefix. Lines that begin with `#`, and empty ones, are left out.

    Raises:
        InvalidInput: a line is not a key; the message has its number and nothing else of it.
    """
    import hashlib

    rings: dict[str, tuple[_Key, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        written, _, prefix = line.strip().partition(" ")
        if not written or written.startswith("#"):
            continue
        try:
            secret = _decoded(written)
        except ValueError:
            secret = b""
        if len(secret) != KEY_BYTES:
            raise InvalidInput(
                f"a key has {KEY_BYTES} bytes in base64 or hex: `openssl rand -base64 32` makes "
                f"one. line=`{number}`"
            )
        key = _Key(hashlib.sha256(b"limpet 1 id" + secret).digest()[:_ID_BYTES], secret)
        ring = rings.get(prefix.strip(), ())
        if any(each.id == key.id for each in ring):
            raise InvalidInput(f"the same key is there twice. line=`{number}`")
        rings[prefix.strip()] = (*ring, key)
    if not rings:
        raise InvalidInput("there is no key in the text of the keys: write one to a line")
    return rings


def _decoded(written: str) -> bytes:
    if len(written) == 2 * KEY_BYTES:
        return bytes.fromhex(written)
    import base64

    return base64.b64decode(written.replace("-", "+").replace("_", "/"), validate=True)
