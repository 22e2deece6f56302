"""The keys of documents and of the index: no two ids meet, and every key leads back."""

import re
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.core import layout
from limpet.core.layout import Clipped, DocumentKey, File, Layout, Pointer, escape, unescape
from limpet.errors import InvalidInput
from limpet.model import ScopeKey, SnapshotRef

UNHURRIED = settings(deadline=None)  # a busy machine is no failure

# Letters that are easily mixed up are drawn often; case, normal forms and separators among them.
LETTERS = st.one_of(
    st.sampled_from("abAB09_-+~./\\=% \n\u00e9\u0301\u212a\u017f\u0130\U0001f600"),
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
)
IDS = st.text(LETTERS, min_size=1, max_size=80)
LONG_IDS = st.builds(lambda text, times: (text * times)[:512], IDS, st.integers(1, 512))
ANY_IDS = IDS | LONG_IDS
KINDS = st.sampled_from(["agent", "multiAgent", "graph", "run", "thread", "a" * 64])
SCOPES = st.builds(ScopeKey, ANY_IDS, ANY_IDS, KINDS)
ROOTS = st.sampled_from(["sessions/", "", "session/", "some/Folder/"])
NONCES = st.text("0123456789abcdef", min_size=16, max_size=16)

PLAIN = ScopeKey("chat-42", "planner")
OURS = Layout()
FOLDER = "sessions/chat-42/scopes/agent/planner/snapshots/"


def same(id: str, name: layout.Name | None) -> bool:
    return name.matches(id) if isinstance(name, Clipped) else name == id


def test_documents_stand_where_the_format_says() -> None:
    assert OURS.session_prefix("chat-42") == "sessions/chat-42/"
    assert OURS.scope_prefix(PLAIN) == FOLDER
    assert OURS.head_key(PLAIN) == FOLDER + "snapshot_latest.json"
    assert OURS.copy_key(PLAIN, "a_1") == FOLDER + "immutable_history/snapshot_a_1.json"
    assert OURS.manifest_key(PLAIN) == FOLDER + "manifest.json"
    assert OURS.note_key(PLAIN, "todo") == FOLDER + "notes/scope/todo.json"
    assert OURS.note_key(PLAIN, "todo", on="a_1") == FOLDER + "notes/on/a_1/todo.json"


def test_kinds_are_written_verbatim() -> None:
    scope = ScopeKey("s", "t", "multiAgent")
    assert Layout("").head_key(scope) == "s/scopes/multiAgent/t/snapshots/snapshot_latest.json"


def test_pointers_stand_where_the_format_says() -> None:
    ref = SnapshotRef(ScopeKey("a/b", "main", "graph"), "x.1")
    assert layout.id_key(ref, born="0f") == ".limpet/index/snapshots/x+2e1/a+2fb.graph.main.0f"
    assert layout.order_key(ref, seq=1, born="0f") == (
        ".limpet/index/order/a+2fb/graph/main/fffffffffffffffe.x+2e1.0f"
    )
    assert layout.label_key(ref, "run_id", "R", at_ms=1, born="0f") == (
        ".limpet/index/labels/run_id=+52/999999999999999.a+2fb.graph.main.x+2e1.0f"
    )


def test_newer_pointers_sort_first() -> None:
    ref = SnapshotRef(PLAIN, "x")
    for older, newer in ((0, 1), (9, 10), (15, 16), (999_999, 1_000_000), (2**40, 2**40 + 1)):
        orders = [layout.order_key(ref, seq=seq, born="0") for seq in (newer, older)]
        assert orders == sorted(orders)
        labels = [layout.label_key(ref, "k", "", at_ms=at, born="0") for at in (newer, older)]
        assert labels == sorted(labels)
        assert all(map(layout.parse_pointer, labels))


@pytest.mark.parametrize(
    ("id", "escaped"),
    [
        ("abc-09_z", "abc-09_z"),
        ("..", "+2e+2e"),
        ("../../etc", "+2e+2e+2f+2e+2e+2fetc"),
        ("Alice", "+41lice"),
        ("é", "+c3+a9"),
        ("a+7eb~", "a+2b7eb+7e"),
    ],
)
def test_escape(id: str, escaped: str) -> None:
    assert escape(id) == escaped
    assert unescape(escaped) == id


@pytest.mark.parametrize(
    "name",
    [
        *("", "A", "é", "a.b", "\udcff", "a" * 201),
        *("+61", "+2E", "+", "+4", "+c3", "+zz"),
        *("a~", "a~12", "~" + "0" * 32, "a~" + "G" * 32, "a~" + "0" * 32 + "~"),
        "a" * 200 + "~" + "0" * 32,
    ],
)
def test_what_escape_never_writes_is_no_name(name: str) -> None:
    assert unescape(name) is None


def test_long_ids_are_clipped_at_whole_characters() -> None:
    assert unescape(escape("a" * 200)) == "a" * 200
    id = "a" * 160 + "\U0001f600" * 20
    name = OURS.session_prefix(id).removeprefix("sessions/").removesuffix("/")
    assert name == "a" * 160 + "~" + sha256(id.encode()).hexdigest()[:32]
    assert unescape(name) == Clipped("a" * 160, sha256(id.encode()).hexdigest()[:32])


def test_the_longest_keys_fit_everywhere() -> None:
    longest = "\u00e9" * 512
    scope = ScopeKey(longest, longest, "k" * 64)
    wide = Layout("r" * 299 + "/")
    ref, born = SnapshotRef(scope, longest), "0" * 16
    keys = [
        wide.head_key(scope),
        wide.copy_key(scope, longest),
        wide.manifest_key(scope),
        wide.note_key(scope, longest),
        wide.note_key(scope, longest, on=longest),
        layout.id_key(ref, born=born),
        layout.order_key(ref, seq=1, born=born),
        layout.label_key(ref, longest, longest, at_ms=1, born=born),
    ]
    for key in keys:
        assert len(key) <= 1024
        assert max(len(name) for name in key.removeprefix(wide.root).split("/")) <= 255


@pytest.mark.parametrize("root", ["sessions", "/", "a//", "../", "a/./", "r" * 300 + "/"])
def test_bad_roots_are_refused(root: str) -> None:
    with pytest.raises(InvalidInput):
        Layout(root)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "sessions/",
        "other/chat-42/scopes/agent/planner/snapshots/snapshot_latest.json",
        "sessions/Chat/scopes/agent/planner/snapshots/snapshot_latest.json",
        "sessions/chat-42/scopes/Agent/planner/snapshots/snapshot_latest.json",
        FOLDER + "snapshot_latest.json.tmp",
        FOLDER + "snapshot_latest.json\n",
        FOLDER + "snapshot_x.json",
        FOLDER + "immutable_history/snapshot_UPPER.json",
        FOLDER + "immutable_history/snapshot_+61.json",
        FOLDER + "notes/on/+61/todo.json",
        FOLDER + "notes/scope/+61.json",
        ".limpet/index/snapshots/x/s.agent.main.0f",
    ],
)
def test_other_keys_are_not_documents(key: str) -> None:
    assert OURS.parse(key) is None
    assert layout.parse_pointer(key.replace("0f", "0F")) is None


@UNHURRIED
@given(id=ANY_IDS)
def test_escaped_ids_are_safe_and_lead_back(id: str) -> None:
    escaped = escape(id)
    assert re.fullmatch("[a-z0-9_+-]+", escaped)
    name = OURS.session_prefix(id).removeprefix("sessions/").removesuffix("/")
    assert len(name) <= layout.NAME_BYTES_MAX
    assert same(id, unescape(name))
    assert isinstance(unescape(name), Clipped) == (len(escaped) > layout.NAME_BYTES_MAX)


@UNHURRIED
@given(id=st.from_regex("[a-z0-9_-]{1,200}", fullmatch=True))
def test_plain_ids_are_written_as_they_are(id: str) -> None:
    assert escape(id) == id
    assert OURS.session_prefix(id) == f"sessions/{id}/"


@UNHURRIED
@given(first=IDS, more=IDS)
def test_prefixes_stay_prefixes(first: str, more: str) -> None:
    assert escape(first + more) == escape(first) + escape(more)


@UNHURRIED
@given(start=ANY_IDS, more=st.just("") | ANY_IDS, other=ANY_IDS)
def test_a_prefix_lists_every_session_that_begins_with_it(
    start: str, more: str, other: str
) -> None:
    listed = OURS.sessions_prefix(start)
    assert OURS.session_prefix((start + more)[:512]).startswith(listed) or len(start) > 512
    if len(escape(start)) <= layout.NAME_BYTES_MAX - 33 and not other.startswith(start):
        assert not OURS.session_prefix(other).startswith(listed)


def spellings(id: str) -> st.SearchStrategy[str]:
    """Ids that a careless mapping would mix up with this one."""
    return st.one_of(
        ANY_IDS,
        st.sampled_from([id.upper(), id.lower(), id.swapcase(), id.casefold(), id + "a", id[:-1]]),
        st.sampled_from([escape(id), escape(id)[:200], OURS.session_prefix(id)[9:-1], "a" + id]),
    )


def keys_with(id: str, scope: ScopeKey, born: str) -> list[str]:
    """Every sort of key that an id can stand in."""
    return [
        OURS.session_prefix(id),
        OURS.head_key(scope._replace(session_id=id)),
        OURS.head_key(scope._replace(scope_id=id)),
        OURS.copy_key(scope, id),
        OURS.note_key(scope, id),
        OURS.note_key(scope, id, on="x"),
        OURS.note_key(scope, "x", on=id),
        layout.id_key(SnapshotRef(scope, id), born=born),
        layout.order_prefix(scope._replace(session_id=id)),
        layout.order_prefix(scope._replace(scope_id=id)),
        layout.label_prefix(id, "v"),
        layout.label_prefix("k", id),
    ]


@UNHURRIED
@given(data=st.data(), id=ANY_IDS, scope=SCOPES, born=NONCES)
def test_no_two_ids_share_a_key_even_where_case_is_ignored(
    data: st.DataObject, id: str, scope: ScopeKey, born: str
) -> None:
    other = data.draw(spellings(id).filter(lambda text: text not in ("", id)))
    for mine, theirs in zip(keys_with(id, scope, born), keys_with(other, scope, born), strict=True):
        assert mine.casefold() != theirs.casefold()
    assert not OURS.head_key(ScopeKey(other)).startswith(OURS.session_prefix(id))


@UNHURRIED
@given(root=ROOTS, scope=SCOPES, id=ANY_IDS, note=ANY_IDS)
def test_document_keys_lead_back(root: str, scope: ScopeKey, id: str, note: str) -> None:
    keys = Layout(root)
    for file, key, on, name in (
        (File.HEAD, keys.head_key(scope), None, None),
        (File.MANIFEST, keys.manifest_key(scope), None, None),
        (File.COPY, keys.copy_key(scope, id), id, None),
        (File.NOTE, keys.note_key(scope, note), None, note),
        (File.NOTE, keys.note_key(scope, note, on=id), id, note),
    ):
        found = keys.parse(key)
        assert found is not None
        assert (found.file, found.kind) == (file, scope.kind)
        assert same(scope.session_id, found.session_id)
        assert same(scope.scope_id, found.scope_id)
        assert found.id is None if on is None else same(on, found.id)
        assert found.note is None if name is None else same(name, found.note)
        whole = DocumentKey(file, scope.session_id, scope.kind, scope.scope_id, on, name)
        assert found.clipped == (found != whole)


@UNHURRIED
@given(
    scope=SCOPES,
    id=ANY_IDS,
    label=ANY_IDS,
    value=st.just("") | ANY_IDS,
    seq=st.integers(0, 2**64 - 1),
    at_ms=st.integers(1, 10**15),
    born=NONCES,
)
def test_pointers_lead_back(
    scope: ScopeKey, id: str, label: str, value: str, seq: int, at_ms: int, born: str
) -> None:
    ref = SnapshotRef(scope, id)
    by_label = layout.label_key(ref, label, value, at_ms=at_ms, born=born)
    by_order = layout.order_key(ref, seq=seq, born=born)
    by_id = layout.id_key(ref, born=born)
    assert by_label.startswith(layout.label_prefix(label, value))
    assert by_order.startswith(layout.order_prefix(scope))
    assert by_id.startswith(layout.id_prefix(id))
    for key, place in ((by_id, (None, None)), (by_order, (seq, None)), (by_label, (None, at_ms))):
        found = layout.parse_pointer(key)
        assert isinstance(found, Pointer)
        assert (found.kind, found.born, found.seq, found.at_ms) == (scope.kind, born, *place)
        assert same(scope.session_id, found.session_id)
        assert same(scope.scope_id, found.scope_id)
        assert same(id, found.id)
        assert OURS.parse(key) is None
        assert Layout("").parse(key) is None
