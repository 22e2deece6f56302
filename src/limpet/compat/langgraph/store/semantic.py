"""Semantic search: which texts of an item are embedded, and exact cosine similarity in memory."""

from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from math import sqrt
from typing import Any, NamedTuple

from langgraph.store.base import IndexConfig, PutOp
from langgraph.store.base.embed import ensure_embeddings, get_text_at_path, tokenize_path

from limpet.api.integrations import Backend, FoundNote, Recent, limits, verbs
from limpet.compat.langgraph.store import records
from limpet.errors import InvalidInput
from limpet.model import Note, ScopeKey

_WHOLE = "$"
_CACHE_BYTES_MAX = 64 * limits.MIB
_ENTRY_BYTES = 300
_FEW = 16  # vectors that are read one by one


class Vectors(NamedTuple):
    """The vectors of an item at a revision."""

    revision: str
    vectors: tuple[bytes, ...] = ()


class Index:
    """The index configuration of a store: how texts become vectors, and which fields have texts."""

    def __init__(self, config: IndexConfig) -> None:
        self.dims = config.get("dims")
        self.embeddings = ensure_embeddings(config.get("embed"))
        self.cache = VectorCache()
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


class VectorCache:
    """The vectors of the namespaces that were searched last, each with the revision of its item."""

    def __init__(self) -> None:
        self._recent: Recent[ScopeKey, dict[str, Vectors]] = Recent(_CACHE_BYTES_MAX, _bytes_of)

    def vectors_of(self, backend: Backend, items: Sequence[FoundNote]) -> list[tuple[bytes, ...]]:
        """Return the vectors of each item; only those that are not known yet are read."""
        by_scope: dict[ScopeKey, list[FoundNote]] = {}
        for item in items:
            by_scope.setdefault(item.scope, []).append(item)
        known = {scope: self._known(backend, scope, each) for scope, each in by_scope.items()}
        return [known[item.scope][item.name].vectors for item in items]

    def _known(
        self, backend: Backend, scope: ScopeKey, items: Sequence[FoundNote]
    ) -> dict[str, Vectors]:
        known = self._recent.get(scope) or {}
        none = Vectors("")
        missing = [each for each in items if known.get(each.name, none).revision != each.revision]
        if missing:
            read = dict(_read(backend, scope, [each.name for each in missing]))
            new = {each.name: Vectors(each.revision, read.get(each.name, ())) for each in missing}
            known = {each.name: new.get(each.name) or known[each.name] for each in items}
            self._recent.put(scope, known)
        return known


def _read(
    backend: Backend, scope: ScopeKey, names: list[str]
) -> Iterator[tuple[str, tuple[bytes, ...]]]:
    """Yield the vectors of some items, those that were made of the items as they are now."""
    tokens: dict[str, str] = {}
    for at in range(0, len(names), limits.PAGE_ITEMS_MAX):
        for item in backend.read_notes(scope, names[at : at + limits.PAGE_ITEMS_MAX]):
            match item.value:
                case {"vectors": str(token)}:
                    tokens[item.name] = token
    on = [records.VECTORS]
    notes: Iterable[Note]
    if len(names) <= _FEW:
        asked = (backend.list_notes(scope, on=on, name=name, after="", limit=1) for name in tokens)
        notes = chain.from_iterable(asked)
    else:
        notes = verbs.each(backend, verbs.notes_of(scope, on))
    for note in notes:
        match note.value:
            case {"of": str(of), "vectors": dict(vectors)} if tokens.get(note.name) == of:
                yield note.name, tuple(map(b64decode, vectors.values()))


def _bytes_of(known: Mapping[str, Vectors]) -> int:
    return sum(_ENTRY_BYTES + sum(map(len, each.vectors)) for each in known.values())


def ranked(
    query: Sequence[float], vectors: Sequence[tuple[bytes, ...]]
) -> list[tuple[float | None, int]]:
    """Return which items are nearest, by their best vector; those without any come last."""
    owners = [at for at, each in enumerate(vectors) for _ in each]
    best: dict[int, float] = {}
    for at, score in zip(owners, _cosines(query, [*chain(*vectors)]), strict=True):
        best[at] = max(score, best.get(at, score))
    order = sorted(best, key=lambda at: -best[at])
    rest = (at for at in range(len(vectors)) if at not in best)
    return [*((best[at], at) for at in order), *((None, at) for at in rest)]


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
    found: list[float] = scores.tolist()
    return found


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    length = sqrt(sum(x * x for x in one)) * sqrt(sum(x * x for x in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / length if length else 0.0
