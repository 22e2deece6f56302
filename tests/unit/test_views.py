"""The pure views: sizes, names, trees and diffs as people see them."""

import unicodedata
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from limpet.model import ScopeKey, SnapshotInfo, SnapshotRef
from limpet.views.diff import brief, dotted
from limpet.views.format import (
    masked_url,
    short_id,
    size_text,
    visible,
    without_secrets,
)
from limpet.views.tree import Node, build_forest, walk

# Sizes.


def test_sizes() -> None:
    for size, text in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (101_376, "99.0 KiB"),
        (102_400, "100 KiB"),
        (1024**2 - 1, "1.0 MiB"),  # not 1024 KiB
        (5 * 1024**3, "5.0 GiB"),
        (7 * 1024**5, "7168 TiB"),
        (-2048, "-2.0 KiB"),
    ]:
        assert size_text(size) == text, (size, text)


# Names.


def test_short_ids_keep_both_ends() -> None:
    assert short_id("01a1ddc2-8e9f-75d6-ad35-8e7dd0a978e6") == "01a1ddc2…78e6"
    assert short_id("checkpoint-1") == "checkpoint-1"


@given(st.text())
def test_visible_text_stays_on_its_line(text: str) -> None:
    assert visible(text).isprintable()


def test_visible_text_is_left_alone_where_it_can_be() -> None:
    assert visible("grüße, 世界 🙂 [bold]") == "grüße, 世界 🙂 [bold]"
    assert visible("❤\ufe0f ☀\ufe0f") == "❤\ufe0f ☀\ufe0f"
    assert visible("❤\ufe0f\ufe0f") == "❤\ufe0f\\ufe0f"
    assert visible("a\nb\x1b[2J\x9b\u202e") == "a\\nb\\x1b[2J\\x9b\\u202e"


def test_what_draws_nothing_is_escaped() -> None:
    for char in "\ufe00\ufe0f\u115f\u1160\u3164\uffa0\u2800\u034f\u180b\U000e0100\U000e01ef":
        assert visible(f"a{char}b") == f"a{ascii(char)[1:-1]}b", char


def test_no_mark_escapes_notice() -> None:
    """`visible` looks closely only at texts with a suspect character: every mark must be one."""
    every = map(chr, range(0x110000))
    marks = [char for char in every if unicodedata.category(char) in ("Mn", "Me")]
    assert [char for char in marks if visible(char) == char] == []


def test_marks_stand_on_a_character_and_are_few() -> None:
    names = ["Ngu\u031b\u0300o\u031b\u0300i", "שָׁלוֹם", "ผู้ใหญ่", "हिन्दी", "a" + "\u0301" * 5]
    assert [visible(name) for name in names] == names
    assert visible("a" + "\u0301" * 7) == "a" + "\u0301" * 5 + "\\u0301" * 2
    assert visible("\u0338\u0338a") == "\\u0338\\u0338a"  # would strike out what is before it


def test_urls_are_shown_without_secrets() -> None:
    for url, shown in [
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("sqlite:////home/x.db?lock_wait_s=5", "sqlite:////home/x.db?lock_wait_s=…"),
        ("memory:", "memory:"),
        ("postgres://host/db", "postgres://host/db"),
        ("postgres://bob:pw@host/db", "postgres://***@host/db"),
        ("postgres://bob@host/db", "postgres://***@host/db"),
        ("postgres://bob:p/w?@x@host/db?a=b&c=d", "postgres://***@host/db?a=…&c=…"),
        ("postgres://bob:p w@host:1/db", "postgres://***@host:1/db"),
        ("postgres://host:5432/db", "postgres://host:5432/db"),
        ("postgres://host:5432", "postgres://host:5432"),
        ("postgres://bob:SECRET", "postgres://***"),
        ("host=h password=SECRET user=x", "host=h password=*** user=x"),
        ("host=h passwd=SECRET", "host=h passwd=***"),
        # Mistyped ones.
        ("postgresql:/bob:SECRET@h/db?a=b", "postgresql:/***@h/db?a=…"),
        ("postgresql:bob:SECRET@h", "postgresql:***@h"),
        ("postgresql:///bob:SECRET@h", "postgresql:///***@h"),
        ("POSTGRES:\\\\bob:SECRET@h", "POSTGRES:\\\\***@h"),
        ("postgresql//bob:SECRET@h/db", "***@h/db"),
        ("//bob:SECRET@h", "***@h"),
        (" bob:SECRET@with@h/db", " ***@h/db"),
        ("sqlite:bob:SECRET?@h", "sqlite:***@h"),
        ("me@home/agents", "me@home/agents"),
        ("s3://bucket/?secret_access_key=abc", "s3://bucket/?secret_access_key=…"),
    ]:
        assert masked_url(url) == shown, (url, shown)


def test_text_is_shown_without_secrets() -> None:
    text = "no answer from `s3://key:pw@host/x`, then from `pg://a:b@c`"
    assert without_secrets(text) == "no answer from `s3://***@host/x`, then from `pg://***@c`"


# Trees.

MAIN = ScopeKey("s")
SIDE = ScopeKey("s", "main~side")


def info(
    id: str,
    parent: str | None = None,
    *,
    scope: ScopeKey = MAIN,
    fork: SnapshotRef | None = None,
) -> SnapshotInfo:
    now = datetime(2024, 1, 1, tzinfo=UTC)
    return SnapshotInfo(scope, id, parent, fork, "", {}, {}, now, now, "", True, 0)


def ids(forest: list[Node]) -> list[str]:
    return [node.info.id for node in walk(forest)]


def test_branches_and_forks_hang_below_what_they_left() -> None:
    snapshots = [
        info("x", scope=SIDE, fork=SnapshotRef(MAIN, "b")),  # given first, drawn after the line
        info("y", "x", scope=SIDE),
        info("a"),
        info("b", "a"),
        info("c", "b"),
        info("d", "c"),
        info("e", "b"),
        info("f", "c"),
    ]
    forest = build_forest(snapshots, heads=[SnapshotRef(MAIN, "f"), SnapshotRef(SIDE, "y")])
    assert ids(forest) == ["a", "b", "c", "d", "f", "e", "x", "y"]
    assert [node.info.id for node in walk(forest) if node.is_fork] == ["x"]
    assert [node.info.id for node in walk(forest) if node.is_head] == ["f", "y"]


def test_what_names_something_gone_is_a_root() -> None:
    elsewhere = SnapshotRef(ScopeKey("another"), "q")
    forest = build_forest([info("b", "gone"), info("x", scope=SIDE, fork=elsewhere)])
    assert [node.info.id for node in forest] == ["b", "x"]
    assert not any(node.is_fork for node in forest)


def test_the_same_id_in_two_scopes_is_two_snapshots() -> None:
    forest = build_forest([info("a"), info("a", scope=SIDE, fork=SnapshotRef(MAIN, "a"))])
    assert [node.info.scope for node in walk(forest)] == [MAIN, SIDE]
    assert len(forest) == 1


def test_a_long_line_needs_no_recursion() -> None:
    line = [info("0"), *(info(str(n), str(n - 1)) for n in range(1, 5000))]
    assert len(ids(build_forest(line))) == 5000


@given(st.data())
def test_every_snapshot_is_in_the_tree_once(data: st.DataObject) -> None:
    """Whatever the parents say, also in circles."""
    names = [str(n) for n in range(data.draw(st.integers(0, 8)))]
    parent = st.none() | st.sampled_from([*names, "gone"])
    forest = build_forest([info(name, data.draw(parent)) for name in names])
    assert sorted(ids(forest)) == names


# Diffs.


def test_paths_and_values_in_brief() -> None:
    assert dotted("") == "."
    assert dotted("/files/a~1b~0c") == "files.a/b~c"
    assert brief("a\nb") == "a\\nb"
    assert brief({"name": "maps", "role": "tool", "content": "left"}) == "maps: left"
    assert brief({"content": "left"}) == '{"content": "left"}'
    assert brief(None) == "null"
