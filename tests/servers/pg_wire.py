"""How PostgreSQL's protocol frames its messages, for a proxy between client and server."""

from typing import NamedTuple

HEAD_BYTES = 5  # one of the kind, and four of the length, which counts itself
CANCEL = 80877102
NOT_IN_PLAIN = (80877103, 80877104)  # the client asks for TLS or GSSAPI; it goes on after a NO
NO = b"N"
READY = b"Z"


class Message(NamedTuple):
    """A message: of which kind, and all of its bytes."""

    kind: bytes
    data: bytes

    @property
    def body(self) -> bytes:
        return self.data[HEAD_BYTES:]


def message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


def take_messages(buffer: bytearray) -> list[Message]:
    """Take what is complete from the front of the buffer."""
    found = []
    start = 0
    while len(buffer) - start >= HEAD_BYTES:
        end = start + 1 + int.from_bytes(buffer[start + 1 : start + HEAD_BYTES], "big")
        if len(buffer) < end:
            break
        found.append(Message(bytes(buffer[start : start + 1]), bytes(buffer[start:end])))
        start = end
    del buffer[:start]
    return found


def take_first_packet(buffer: bytearray) -> bytes | None:
    """Take a packet without a kind, as a client begins, if it is complete."""
    length = int.from_bytes(buffer[:4], "big")
    if len(buffer) < 8 or len(buffer) < length:
        return None
    packet = bytes(buffer[:length])
    del buffer[:length]
    return packet


def code_of(packet: bytes) -> int:
    return int.from_bytes(packet[4:8], "big")


def parameters_of(packet: bytes) -> dict[str, str]:
    """Return what a client says of itself when it begins."""
    words = packet[8:].rstrip(b"\0").decode().split("\0")
    return dict(zip(words[::2], words[1::2], strict=False))


def first_packet(parameters: dict[str, str]) -> bytes:
    words = [word for pair in parameters.items() for word in pair]
    body = b"\0\3\0\0" + "".join(f"{word}\0" for word in words).encode() + b"\0"
    return (len(body) + 4).to_bytes(4, "big") + body


def error(code: str, text: str) -> bytes:
    """Return a message that says why the connection ends."""
    fields = {"S": "FATAL", "V": "FATAL", "C": code, "M": text}
    body = "".join(f"{key}{value}\0" for key, value in fields.items())
    return message(b"E", body.encode() + b"\0")
