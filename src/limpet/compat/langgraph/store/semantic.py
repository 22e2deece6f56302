"""Semantic search: which texts of an item are embedded, and exact cosine similarity in memory."""

from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from math import sqrt
from typing import Any

from langgraph.store.base import IndexConfig, PutOp
from langgraph.store.base.embed import ensure_embeddings, get_text_at_path, tokenize_path

from limpet.compat.langgraph.store.records import Stored
from limpet.errors import InvalidInput

_WHOLE = "$"


class Index:
    """The index configuration of a store: how texts become vectors, and which fields have texts."""

    def __init__(self, config: IndexConfig) -> None:
        self.dims = config.get("dims")
        self.embeddings = ensure_embeddings(config.get("embed"))
        self._fields = _paths(config.get("fields") or [_WHOLE])

    def texts_of(self, op: PutOp) -> dict[str, str]:
        """Return the texts of an item that are embedded, by path."""
        if op.value is None or op.index is False:
            return {}
        paths = self._fields if op.index is None else _paths(op.index)
        found: dict[str, str] = {}
        for path, tokens in paths.items():
            texts = get_text_at_path(op.value, tokens)
            for at, text in enumerate(texts):
                found[f"{path}.{at}" if len(texts) > 1 else path] = text
        return found

    def check(self, vectors: Any, count: int) -> list[list[float]]:
        """Return the vectors that an embedding function gave, or raise InvalidInput."""
        found = [[*map(float, each)] for each in vectors]
        wrong = {len(each) for each in found} - {self.dims or len(found[0])}
        if len(found) != count or wrong:
            sizes = ", ".join(map(str, sorted({len(each) for each in found})))
            raise InvalidInput(
                "the embedding function must return one vector for each text, of the size that "
                f"`dims` says. texts=`{count}` vectors=`{len(found)}` sizes=`{sizes}` "
                f"dims=`{self.dims}`"
            )
        return found


def _paths(fields: Any) -> dict[str, Any]:
    names = [fields] if isinstance(fields, str) else fields
    return {name: name if name == _WHOLE else tokenize_path(name) for name in names}


def packed(vector: Iterable[float]) -> str:
    return b64encode(array("f", vector).tobytes()).decode()


def ranked(query: Sequence[float], found: Sequence[Stored]) -> list[tuple[float | None, Stored]]:
    """Return items by the similarity of their nearest vector; those without any come last."""
    owners: list[int] = []
    vectors: list[bytes] = []
    for at, each in enumerate(found):
        stored: Mapping[str, str] = each.document.get("vectors") or {}
        owners += [at] * len(stored)
        vectors += map(b64decode, stored.values())
    best: dict[int, float] = {}
    for at, score in zip(owners, _cosines(query, vectors), strict=True):
        best[at] = max(score, best.get(at, score))
    order = sorted(best, key=lambda at: -best[at])
    rest = (at for at in range(len(found)) if at not in best)
    return [(best[at], found[at]) for at in order] + [(None, found[at]) for at in rest]


def _cosines(query: Sequence[float], vectors: Sequence[bytes]) -> list[float]:
    wrong = {len(each) for each in vectors} - {4 * len(query)}
    if wrong:
        raise InvalidInput(
            "stored vectors have another size: put the items again with this index, or search "
            f"without a query. dims=`{len(query)}` found=`{min(wrong) // 4}`"
        )
    if vectors and find_spec("numpy") is not None:
        return _cosines_of_numpy(query, vectors)
    return [_cosine(query, array("f", each)) for each in vectors]


def _cosines_of_numpy(query: Sequence[float], vectors: Sequence[bytes]) -> list[float]:
    import numpy as np

    rows = np.frombuffer(b"".join(vectors), dtype=np.float32).reshape(len(vectors), -1)
    asked = np.asarray(query, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(asked)
    scores = np.divide(
        rows @ asked, lengths, out=np.zeros(len(rows), np.float32), where=lengths > 0
    )
    return [float(each) for each in scores]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    length = sqrt(sum(x * x for x in one)) * sqrt(sum(x * x for x in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / length if length else 0.0
