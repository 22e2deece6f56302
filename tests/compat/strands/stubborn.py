"""A service that keeps what it is told to delete, and says so in its answer, as S3 does: by key."""

import re
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.servers.stub import Stub


class Stubborn(Stub):
    """Objects whose keys end with `keeps` cannot be deleted, for the reason `code`."""

    def __init__(self, *, keeps: str, code: str = "AccessDenied") -> None:
        super().__init__(ignores=())
        self.keeps = keeps
        self.code = code

    def _delete(self, body: bytes) -> bytes:
        answers = []
        for each in ElementTree.fromstring(body).iter():
            if each.tag.rpartition("}")[2] != "Key":
                continue
            key = each.text or ""
            named = f"<Key>{escape(key)}</Key>"
            if self.keeps and key.endswith(self.keeps):
                why = f"<Code>{self.code}</Code><Message>told to</Message>"
                answers.append(f"<Error>{named}{why}</Error>")
            else:
                self.objects.pop(key, None)
                answers.append(f"<Deleted>{named}</Deleted>")
        return f"<DeleteResult>{''.join(answers)}</DeleteResult>".encode()

    def _one(
        self, method: str, key: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        status, fields, found = super()._one(method, key, headers, body)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
        if status != 200 or method != "GET" or asked is None:
            return status, fields, found
        part = found[int(asked[1]) : int(asked[2]) + 1]
        last = int(asked[1]) + len(part) - 1
        return 206, {**fields, "Content-Range": f"bytes {asked[1]}-{last}/{len(found)}"}, part
