"""The ciphers of core/encryption.py: what decrypts, what does not, and which key is used."""

import base64
import itertools
import os

import pytest

from limpet.core.encryption import NO_KEYS, Keys, WrongKeys, key_id, parse_keys
from limpet.errors import Corrupt, InvalidInput
from tests.cases import for_each

ONE, TWO, THREE = (base64.b64encode(bytes([each]) * 32).decode() for each in (1, 2, 3))


def keys(*lines: str, allow_plaintext: bool = False) -> Keys:
    return Keys(
        "\n".join(lines),
        random=os.urandom,
        monotonic=lambda: 0.0,
        allow_plaintext=allow_plaintext,
    )


def test_what_is_encrypted_is_decrypted_again_in_its_place_only() -> None:
    cipher = keys(ONE).of("chat")
    stored = cipher.encrypt(b"state", b"here")
    assert cipher.decrypt(stored, b"here") == b"state"
    assert b"state" not in stored
    assert len(stored) == len(b"state") + 33
    for other, about in ((cipher, b"there"), (keys(ONE).of("chat2"), b"here")):
        with pytest.raises(Corrupt):
            other.decrypt(stored, about)


def test_every_flipped_bit_is_corrupt() -> None:
    cipher = keys(ONE).of("chat")
    stored = cipher.encrypt(b"state", b"here")
    for at, bit in itertools.product(range(len(stored)), range(8)):
        flipped = bytearray(stored)
        flipped[at] ^= 1 << bit
        with pytest.raises(Corrupt):
            cipher.decrypt(bytes(flipped), b"here")
    for end in range(len(stored)):
        with pytest.raises(Corrupt):
            cipher.decrypt(stored[:end], b"here")


def test_the_same_text_is_encrypted_differently_each_time() -> None:
    cipher = keys(ONE).of("chat")
    assert cipher.encrypt(b"state", b"") != cipher.encrypt(b"state", b"")


def test_a_new_key_encrypts_and_the_old_one_still_decrypts() -> None:
    old, both, new = keys(ONE).of("chat"), keys(TWO, ONE).of("chat"), keys(TWO).of("chat")
    stored = old.encrypt(b"state", b"")
    assert both.decrypt(stored, b"") == b"state"
    assert not both.is_current(stored)
    again = both.encrypt(b"state", b"")
    assert both.is_current(again)
    assert new.decrypt(again, b"") == b"state"
    with pytest.raises(Corrupt, match=key_id(stored)):
        new.decrypt(stored, b"")
    assert old.label("task", "tax") in both.labels("task", "tax")


def test_a_key_that_is_not_known_is_asked_for_again_but_not_all_the_time() -> None:
    given, now, asked = [ONE], [0.0], []

    def read() -> str:
        asked.append(now[0])
        return "\n".join(given)

    ours = Keys(read, random=os.urandom, monotonic=lambda: now[0])
    stored = keys(TWO).of("chat").encrypt(b"state", b"")
    cipher = ours.of("chat")
    with pytest.raises(Corrupt):
        cipher.decrypt(stored, b"")
    given.append(TWO)
    now[0] = 6.0
    assert cipher.decrypt(stored, b"") == b"state"
    given[:] = [THREE]
    for _ in range(5):
        with pytest.raises(Corrupt):
            ours.of("chat").decrypt(keys(THREE).of("chat").encrypt(b"", b""), b"")
    assert asked == [0.0, 0.0, 6.0]  # when it is opened, and then at most every five seconds


def test_the_longest_prefix_decides_which_key_is_used() -> None:
    ours = keys(ONE, f"{TWO} alice/", f"{THREE} alice/home/")
    for session, key in (("bob", ONE), ("alice", ONE), ("alice/1", TWO), ("alice/home/1", THREE)):
        stored = ours.of(session).encrypt(b"state", b"")
        assert keys(key).of(session).decrypt(stored, b"") == b"state"
    without = keys(f"{TWO} alice/").of("bob")
    with pytest.raises(InvalidInput, match="no key for this session"):
        without.encrypt(b"state", b"")
    with pytest.raises(WrongKeys):
        without.decrypt(keys(ONE).of("bob").encrypt(b"state", b""), b"")
    assert not without.is_current(b"")
    assert without.labels("task", "tax") == []


def test_a_label_is_looked_for_with_the_keys_of_all_sessions_that_may_have_it() -> None:
    ours = keys(ONE, f"{TWO} alice/", f"{THREE} bob/")
    where = {name: ours.of(name).label("task", "tax") for name in ("x", "alice/1", "bob/1")}
    assert len(set(where.values())) == 3
    assert set(ours.labels("", "task", "tax")) == set(where.values())
    assert ours.labels("alice/1", "task", "tax") == [where["alice/1"]]
    assert set(ours.labels("al", "task", "tax")) == {where["alice/1"], where["x"]}


def test_what_is_not_encrypted_is_refused_unless_it_is_allowed() -> None:
    with pytest.raises(Corrupt, match="limpet rekey"):
        keys(ONE).of("chat").decrypt(b"{}", b"")
    lenient = keys(ONE, allow_plaintext=True)
    assert lenient.of("chat").decrypt(b"{}", b"") == b"{}"
    assert ("task", "tax") in lenient.labels("", "task", "tax")


def test_without_keys_what_is_encrypted_is_refused() -> None:
    stored = keys(ONE).of("chat").encrypt(b"state", b"")
    with pytest.raises(Corrupt, match="keys="):
        NO_KEYS.of("chat").decrypt(stored, b"")


@for_each("text", ["", "# nothing", "short", ONE[:-4], f"{ONE}\n{ONE}", "ü" * 32, "A" * 43])
def test_bad_keys_are_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidInput) as found:
        parse_keys(text)
    assert len(text) < 10 or text[:10] not in str(found.value)


def test_keys_may_be_written_in_hex_or_for_urls_and_are_not_shown() -> None:
    secret = bytes(range(200, 232))
    written = (base64.b64encode(secret), base64.urlsafe_b64encode(secret), secret.hex().encode())
    (first, *others) = (parse_keys(f"# mine\n\n  {each.decode()}  ") for each in written)
    assert others == [first, first]
    assert secret.hex() not in repr(first)


def test_a_cipher_in_use_encrypts_with_the_key_that_was_read_last() -> None:
    given = [ONE]
    cipher = Keys(lambda: "\n".join(given), random=os.urandom, monotonic=lambda: 0.0).of("chat")
    given.insert(0, TWO)
    new = keys(TWO).of("chat")
    assert cipher.decrypt(new.encrypt(b"state", b""), b"") == b"state"
    assert new.decrypt(cipher.encrypt(b"state", b""), b"") == b"state"
    assert cipher.label("task", "tax") == new.label("task", "tax")
