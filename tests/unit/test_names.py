"""The keys of objects and of the index: no two ids meet, and every key leads back."""

import re
from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.backends.objects import keys
from limpet.core import ids, names
from limpet.core.names import Clipped, escape, unescape
from limpet.model import ScopeKey
from tests.cases import for_each

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
SEQS = st.integers(1, 4 * 10**18)  # of this century

PLAIN = ScopeKey("chat-42", "planner")
FOLDER = "sessions/chat-42/scopes/agent/planner/snapshots/"


def test_objects_are_where_the_format_says() -> None:
    assert keys.session_prefix("chat-42") == "sessions/chat-42/"
    assert keys.head_key(PLAIN) == FOLDER + "head"
    name = keys.part_name(255, "0a", "0b")
    assert keys.segment_key(PLAIN, name) == FOLDER + "segments/00000000000000ff.0a.after-0b"
    assert keys.page_key(PLAIN, name) == FOLDER + "notes/00000000000000ff.0a.after-0b"
    assert keys.started_key(PLAIN, "0c") == FOLDER + "started.0c"
    scope = ScopeKey("s", "t", "multiAgent")
    assert keys.head_key(scope) == "sessions/s/scopes/multiAgent/t/snapshots/head"


def test_pointers_are_where_the_format_says() -> None:
    scope, line = ScopeKey("a/b", "main", "graph"), "1982357a6cde9795"
    assert keys.id_key(scope, "x.1", 15) == (
        ".limpet/index/ids/x+2e1/a+2fb.graph.main.000000000000000f"
    )
    assert keys.label_key(scope, "run_id", "R", 0, 15) == (
        ".limpet/index/labels/run_id=+52/999999999.a+2fb.graph.main.000000000000000f"
    )
    assert keys.line_key(scope, line) == f".limpet/index/lines/7a6cde9795/a+2fb.graph.main.{line}"


@for_each(
    "id, escaped",
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


@for_each(
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
    name = keys.session_prefix(id).removeprefix("sessions/").removesuffix("/")
    assert name == "a" * 160 + "~" + sha256(id.encode()).hexdigest()[:32]
    assert unescape(name) == Clipped("a" * 160, sha256(id.encode()).hexdigest()[:32])


def test_the_longest_keys_fit_everywhere() -> None:
    longest = "\u00e9" * 512
    scope, nonce = ScopeKey(longest, longest, "k" * 64), "0" * 16
    found = [
        keys.segment_key(scope, keys.part_name(2**63, nonce, nonce)),
        keys.page_key(scope, keys.part_name(2**63, nonce, nonce)),
        keys.started_key(scope, nonce),
        keys.id_key(scope, longest, 2**63),
        keys.label_key(scope, longest, longest, 0, 2**63),
        keys.line_key(scope, nonce),
    ]
    for key in found:
        assert len(key) <= 1024 - 300  # there may be a prefix before it
        assert max(len(name) for name in key.split("/")) <= 255


@for_each(
    "key",
    [
        "",
        "sessions/",
        "other/chat-42/scopes/agent/planner/snapshots/head",
        "sessions/Chat/scopes/agent/planner/snapshots/head",
        "sessions/chat-42/scopes/Agent/planner/snapshots/head",
        FOLDER + "head.tmp",
        FOLDER + "head\n",
        FOLDER + "snapshot_latest.json",
        FOLDER + "segments/00.0a",
        FOLDER + "segments/UPPER.0a.after-0b",
        FOLDER + "notes/todo.json",
        FOLDER + "notes/00.0A.after-0b",
        FOLDER + "started.",
        FOLDER + "started.0F",
        ".limpet/index/ids/x/s.agent.main.0F",
    ],
)
def test_other_keys_are_not_ours(key: str) -> None:
    assert keys.parse(key) is None
    assert keys.parse_pointer(key) is None


@UNHURRIED
@given(id=ANY_IDS)
def test_escaped_ids_are_safe_and_lead_back(id: str) -> None:
    escaped = escape(id)
    assert re.fullmatch("[a-z0-9_+-]+", escaped)
    name = keys.session_prefix(id).removeprefix("sessions/").removesuffix("/")
    assert len(name) <= names.NAME_BYTES_MAX
    found = unescape(name)
    assert isinstance(found, Clipped) == (len(escaped) > names.NAME_BYTES_MAX)
    assert id.startswith(found.start) if isinstance(found, Clipped) else found == id


@UNHURRIED
@given(id=st.from_regex("[a-z0-9_-]{1,200}", fullmatch=True))
def test_plain_ids_are_written_as_they_are(id: str) -> None:
    assert escape(id) == id
    assert keys.session_prefix(id) == f"sessions/{id}/"


@UNHURRIED
@given(first=IDS, more=IDS)
def test_prefixes_stay_prefixes(first: str, more: str) -> None:
    assert escape(first + more) == escape(first) + escape(more)


@UNHURRIED
@given(start=ANY_IDS, more=st.just("") | ANY_IDS, other=ANY_IDS)
def test_a_prefix_lists_every_session_that_begins_with_it(
    start: str, more: str, other: str
) -> None:
    listed = keys.sessions_prefix(start)
    assert keys.session_prefix((start + more)[:512]).startswith(listed) or len(start) > 512
    if len(escape(start)) <= names.NAME_BYTES_MAX - 33 and not other.startswith(start):
        assert not keys.session_prefix(other).startswith(listed)


def spellings(id: str) -> st.SearchStrategy[str]:
    """Ids that a careless mapping would mix up with this one."""
    return st.one_of(
        ANY_IDS,
        st.sampled_from([id.upper(), id.lower(), id.swapcase(), id.casefold(), id + "a", id[:-1]]),
        st.sampled_from([escape(id), escape(id)[:200], keys.session_prefix(id)[9:-1], "a" + id]),
    )


def keys_with(id: str, scope: ScopeKey) -> list[str]:
    """Every sort of key that an id can stand in."""
    return [
        keys.session_prefix(id),
        keys.head_key(scope._replace(session_id=id)),
        keys.head_key(scope._replace(scope_id=id)),
        keys.page_key(scope._replace(scope_id=id), "1.2.after-3"),
        keys.started_key(scope._replace(scope_id=id), "0f"),
        keys.id_key(scope, id, 1),
        keys.line_key(scope._replace(session_id=id), "0f"),
        keys.line_key(scope._replace(scope_id=id), "0f"),
        keys.label_prefix(id, "v"),
        keys.label_prefix("k", id),
    ]


@UNHURRIED
@given(data=st.data(), id=ANY_IDS, scope=SCOPES)
def test_no_two_ids_share_a_key_even_where_case_is_ignored(
    data: st.DataObject, id: str, scope: ScopeKey
) -> None:
    other = data.draw(spellings(id).filter(lambda text: text not in ("", id)))
    for mine, theirs in zip(keys_with(id, scope), keys_with(other, scope), strict=True):
        assert mine.casefold() != theirs.casefold()
    assert not keys.head_key(ScopeKey(other)).startswith(keys.session_prefix(id))


@UNHURRIED
@given(scope=SCOPES, place=SEQS, nonce=st.integers(0, 2**64 - 1), is_first=st.booleans())
def test_keys_of_objects_lead_back(scope: ScopeKey, place: int, nonce: int, is_first: bool) -> None:
    part = keys.part_name(place, f"{nonce:016x}", "" if is_first else f"{nonce:016x}")
    line = f"{place:016x}"
    for key, parts in (
        (keys.head_key(scope), (None, None, None)),
        (keys.segment_key(scope, part), (part, None, None)),
        (keys.page_key(scope, part), (None, part, None)),
        (keys.started_key(scope, line), (None, None, line)),
    ):
        found = keys.parse(key)
        assert found is not None
        assert (found.segment, found.page, found.line) == parts
        assert found.is_head == (key == keys.head_key(scope))
        assert found.folder == keys.scope_prefix(scope)
        assert found.scope == (None if "~" in key else scope)
        assert keys.parse_pointer(key) is None


@UNHURRIED
@given(scope=SCOPES, id=ANY_IDS, label=ANY_IDS, value=st.just("") | ANY_IDS, seq=SEQS, stamp=SEQS)
def test_pointers_lead_back(
    scope: ScopeKey, id: str, label: str, value: str, seq: int, stamp: int
) -> None:
    by_label = keys.label_key(scope, label, value, seq, stamp)
    by_id = keys.id_key(scope, id, seq)
    assert by_label.startswith(keys.label_start(label, value, seq))
    by_line = keys.line_key(scope, f"{seq:016x}")
    assert by_line.startswith(keys.line_prefix(ids.tag_of_place(seq)))
    for key in (by_id, by_label, by_line):
        found = keys.parse_pointer(key)
        assert found is not None
        assert found.scope == (None if "~" in key.rpartition("/")[2] else scope)
        assert found.leads_to(scope)
        assert not found.leads_to(scope._replace(session_id=scope.session_id + "x"))
        assert keys.parse(key) is None
        if key == by_label:
            assert found.minute == keys.minute_of(seq)
            first, end = keys.minute_range(keys.minute_of(seq))
            assert first <= seq < end
