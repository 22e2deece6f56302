"""`limpet log`: lines and graphs of history, as JSON, and its exit codes."""

import json
from datetime import UTC, datetime, timedelta

from rich.cells import cell_len

import limpet
from tests.cli.conftest import Command

START = datetime(2024, 1, 1, tzinfo=UTC)


def fill(url: str) -> dict[str, str]:
    """Save a line a-b-c-d with a branch x at b, a fork of c, and a draft; return the fork's ids."""
    with limpet.open(url) as store:
        line = store.scope("trip")
        messages: list[dict[str, str]] = []
        for minute, id in enumerate("abcd"):
            messages.append({"role": "user", "content": f"step {id}"})
            line.save(
                {"messages": messages},
                id=id,
                labels={"step": id},
                created_at=START + timedelta(minutes=minute),
            )
        branch = {"status": "failed", "head": False, "created_at": START + timedelta(minutes=5)}
        line.save({}, id="x", parent="b", **branch)  # type: ignore[arg-type]
        side = line.fork("c", scope_id="side")
        first = side.info()
        side.save({"n": 1}, id="y", created_at=START + timedelta(days=900))
        line.save({"messages": []}, id="draft", keep=False, status="running")
        assert first is not None
        return {"first": first.id}


def columns(text: str) -> list[list[str]]:
    return [row.split() for row in text.splitlines()]


def test_a_line_for_each_snapshot_under_its_scope(command: Command, any_url: str) -> None:
    fill(any_url)
    done = command("log", "trip", "--url", any_url)
    assert (done.returncode, done.stderr) == (0, "")
    main, side = done.stdout.split("\n\n")
    title, *rows = columns(main)
    assert title == ["trip", "·", "main"]
    assert [row[:2] for row in rows] == [["◇", "draft"], *(["●", id] for id in "xdcba")]
    assert rows[0][3:] == ["running", "15", "B", "-139", "B", "head,", "a", "draft"]
    assert rows[2][3:] == ["\N{EN DASH}", "154", "B", "+35", "B", "step=d"]
    assert rows[5][3:] == ["\N{EN DASH}", "49", "B", "step=a"]  # it grew from nothing
    title, *rows = columns(side)
    assert title == ["trip", "·", "side"]
    assert rows[0][:2] == ["◆", "y"]
    assert rows[1][-3:] == ["from", "main@c", "step=c"]


def test_entries_of_pydantic_ai_are_no_labels_for_people(command: Command, url: str) -> None:
    with limpet.open(url) as store:
        entries = {f"019ab3f0-8f53-7c11-a1f2-{n:012}": "entry" for n in range(64)}
        scope = store.scope("many", kind="conversation")
        scope.append("messages", [], labels=entries)
    for verb in (["log", "many"], ["log", "many", "--graph"], ["show", "many"]):
        done = command(*verb, "--url", url)
        assert (done.returncode, "entry" in done.stdout) == (0, False)
    assert len(json.loads(command("log", "many", "--json", "--url", url).stdout)["labels"]) == 64


def test_a_graph_of_the_whole_session(command: Command, any_url: str) -> None:
    fork = fill(any_url)["first"]
    done = command("log", "trip", "--graph", "--url", any_url)
    assert done.returncode == 0
    title, *rows = done.stdout.splitlines()
    assert title == "trip"
    width = len("│ │ ")
    drawn = [(row[:width].rstrip(), row[width:].split()[0]) for row in rows]
    short = f"{fork[:8]}…{fork[-4:]}"
    assert drawn == [
        ("◇", "draft"),
        ("●", "d"),
        ("│ ◆", "y"),
        ("│ ●", short),
        ("●─╯", "c"),
        ("│ ●", "x"),
        ("●─╯", "b"),
        ("●", "a"),
    ]
    assert "main" in rows[0]
    assert "side" in rows[2]
    cut = command("log", "trip", "--graph", "-n", "2", "--url", any_url).stdout.splitlines()
    assert cut[-1] == "… and older ones (-n 0 shows all)"
    assert len([row for row in cut if "●" in row or "◆" in row]) == 2


def test_its_json_is_a_line_for_each(command: Command, any_url: str) -> None:
    fill(any_url)
    done = command("log", "trip", "main", "--json", "--messages", "--url", any_url)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["id"] for each in found] == ["draft", *"xdcba"]
    assert [each["is_head"] for each in found] == [True, *[False] * 5]
    assert [each["message"] for each in found] == [None, None, *(f"step {id}" for id in "dcba")]
    with limpet.open(any_url) as store:
        info = store.scope("trip").info("d")
    assert info is not None
    assert (found[2]["parent_id"], found[2]["kept"]) == ("c", True)
    assert (found[2]["size"], found[2]["revision"]) == (info.size, info.revision)
    assert found[2]["labels"] == {"step": "d"}


def test_some_of_them(command: Command, any_url: str) -> None:
    fill(any_url)
    labelled = command("log", "trip", "--label", "step=c", "--url", any_url).stdout
    assert columns(labelled)[1][:2] == ["●", "c"]
    assert labelled.count("\n\n") == 1  # the fork has the label of what it left
    failed = command("log", "trip", "--status", "failed", "--url", any_url).stdout
    assert [row[1] for row in columns(failed)[1:]] == ["x"]
    few = command("log", "trip", "main", "-n", "2", "--times", "-m", "--url", any_url).stdout
    assert [row[1] for row in columns(few)[1:]] == ["draft", "x", "d"]
    assert "2024-01-01 00:03:00" in few
    assert "user step d" in few
    none = command("log", "trip", "--label", "step=z", "--url", any_url)
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "no snapshot matches\n")


def test_what_is_not_there_or_cannot_be_asked(command: Command, url: str) -> None:
    fill(url)
    assert command("log", "nobody", "--url", url).returncode == 1
    assert command("log", "trip", "nothing", "--url", url).returncode == 1
    assert command("log", "trip", "--kind", "graph", "--url", url).returncode == 1
    assert command("log", "trip", "--label", "step", "--url", url).returncode == 2
    assert command("log", "trip", "--graph", "--status", "failed", "--url", url).returncode == 2
    assert command("log", "trip", "s", "--url", url).stdout.startswith("trip · side\n")


def test_nothing_is_wider_than_the_terminal_or_draws_on_it(command: Command, url: str) -> None:
    with limpet.open(url) as store:
        line = store.scope("旅行の計画", "範囲" * 20)
        state = {"messages": [{"role": "us\x1b[2Jer", "content": "長い" * 99 + "\x1b[2J\n"}]}
        for name in ("識別子" * 9, "evil\x1b[2J\n", "c"):
            line.save(state, id=name, status="\x1b[0m待つ" * 9, labels={"\x1b": "値" * 50})
            line.fork(name)
    for width, flags in ((40, ()), (60, ("--graph", "-m")), (100, ("-m",))):
        shown = command("log", "旅行", *flags, "--url", url, COLUMNS=str(width)).stdout
        assert "\x1b" not in shown
        rows = [row for row in shown.splitlines() if not row.startswith("旅行")]  # names are whole
        assert max(map(cell_len, rows)) <= width
