"""`limpet export` and `limpet import`: for programs, for people, and from other tools."""

import json
import os
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import limpet
from tests.cases import for_each
from tests.cli.conftest import EXECUTABLE, Command
from tests.portable.stores import fill, lines, noise

FIXTURES = Path(__file__).parent.parent
STRANDS = FIXTURES / "interop" / "fixtures"


def test_what_is_exported_is_imported(command: Command, any_url: str, tmp_path: Path) -> None:
    with limpet.open(any_url) as store:
        fill(store)
        expected = lines(store)
    done = command("export", "-o", "x.jsonl", "--url", any_url)
    assert (done.returncode, (tmp_path / "x.jsonl").read_bytes()) == (0, expected)
    assert done.stderr.startswith("✓ x.jsonl: 11 sessions · 39 snapshots · ")
    other = any_url.replace("agents", "other")
    told = json.loads(command("import", "x.jsonl", "--url", other, "--json").stdout)
    assert told["written"] > told["snapshots"] == 39
    with limpet.open(other) as store:
        assert lines(store) == expected
    assert command("import", "x.jsonl", "--url", other).stdout.endswith(", nothing new\n")
    assert sorted(path.name for path in tmp_path.iterdir() if "part" in path.name) == []


def test_through_a_pipe(url: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/piped.db"
    with subprocess.Popen(
        [EXECUTABLE, "export", "alice/chat-1", "--url", url], stdout=subprocess.PIPE
    ) as source:
        done = subprocess.run(
            [EXECUTABLE, "import", "jsonl", "-", "--url", target],
            stdin=source.stdout,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (source.returncode, done.returncode, done.stderr) == (0, 0, "")
    with limpet.open(url) as one, limpet.open(target) as other:
        assert lines(other) == lines(one, session_id="alice/chat-1")


def test_documents_for_people(command: Command, any_url: str, tmp_path: Path) -> None:
    with limpet.open(any_url) as store:
        chat = store.scope("alice/chat-1")
        chat.save({"messages": [{"role": "user", "content": "hello <script>alert(1)</script>"}]})
        chat.fork(next(chat.history()).id, scope_id="other")
    done = command("export", "alice", "-o", "chat.html", "--url", any_url, "--json")
    assert json.loads(done.stdout) == {
        "path": "chat.html",
        "format": "html",
        "sessions": 1,
        "snapshots": 2,
        "bytes": (tmp_path / "chat.html").stat().st_size,
        "skipped": [],
    }
    page = (tmp_path / "chat.html").read_text()
    assert "hello &lt;script&gt;" in page
    assert "<script" not in page
    markdown = command("export", "alice", "--format", "markdown", "--url", any_url).stdout
    assert markdown.startswith("# hello &lt;script&gt;alert(1)&lt;/script&gt;\n")
    assert "\nSession `alice/chat-1`\n" in markdown
    assert "## `other`" in markdown
    assert command("export", "--format", "html", "--url", any_url).returncode == 2
    assert command("export", "nobody", "--url", any_url).returncode == 1


def test_scopes_are_in_the_order_in_which_they_began(
    command: Command, url: str, tmp_path: Path
) -> None:
    with limpet.open(url) as store:
        main = store.scope("trip", "zoo")
        main.set_note("title", "A day out")
        first = main.save({"n": 1})
        main.fork(first.id, scope_id="museum")
        main.fork(first.id, scope_id="aquarium")
        main.save({"n": 2})
    command("export", "trip", "-o", "trip.html", "--url", url)
    page = (tmp_path / "trip.html").read_text()
    assert re.findall(r"<h2>(\w+)</h2>", page) == ["zoo", "museum", "aquarium", "History"]
    assert re.findall(r'<li><a href="[^"]+">(\w+)</a>', page)[:3] == ["zoo", "museum", "aquarium"]
    assert "<h1>A day out</h1>" in page


def test_an_export_that_fails_leaves_the_file_as_it_was(
    command: Command, url: str, tmp_path: Path
) -> None:
    (tmp_path / "x.jsonl").write_text("old")
    with limpet.open((tmp_path / "folder").as_uri()) as store:
        fill(store)
    script = 'ulimit -f 4; exec "$0" export -o x.jsonl --url "$1"'  # as on a disk that is full
    words = ["sh", "-c", script, str(EXECUTABLE), f"{tmp_path}/folder"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "limpet: cannot write the file: File too large. path=`x.jsonl`\n"
    assert (tmp_path / "x.jsonl").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []
    assert command("export", "-o", "no/such/folder.jsonl", "--url", url).returncode == 4


def test_what_is_no_file_is_written_as_it_is(command: Command, url: str, tmp_path: Path) -> None:
    """A link leads to its file, a pipe stays a pipe, and `-` is the output."""
    (tmp_path / "real.jsonl").write_text("old")
    (tmp_path / "real.jsonl").chmod(0o640)
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    assert command("export", "-o", "link.jsonl", "--url", url).returncode == 0
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "real.jsonl").stat().st_mode & 0o777 == 0o600
    expected = (tmp_path / "real.jsonl").read_bytes()
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", "pipe"], cwd=tmp_path, stdout=subprocess.PIPE) as reader:
        assert command("export", "-o", "pipe", "--url", url).returncode == 0
        assert reader.communicate()[0] == expected
    assert (tmp_path / "pipe").is_fifo()
    assert command("export", "-o", "-", "--url", url).stdout.encode() == expected


def test_output_that_cannot_be_written_is_told_in_one_line(url: str) -> None:
    for arguments in (["ls"], ["export"], ["ls", "--json"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [EXECUTABLE, *arguments, "--url", url],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode == 4
        assert done.stderr == "limpet: cannot write the output: No space left on device\n"


def test_what_is_no_export_is_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("hello\n")
    done = command("import", "x.jsonl", "--url", "sqlite:///new.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not an export, which `limpet export` writes: the first line" in done.stderr
    assert command("import", "absent.jsonl", "--url", "sqlite:///new.db").returncode == 1
    assert command("import", "other", "x", "--url", "sqlite:///new.db").returncode == 2
    (tmp_path / "x.jsonl").write_text('{"type":"limpet","version":1}\n')
    assert command("import", "x.jsonl", "--url", "sqlite:///new.db").returncode == 5  # cut off
    (tmp_path / "empty").mkdir()
    assert command("import", "strands", "empty", "--url", "sqlite:///new.db").returncode == 1
    assert command("import", "genkit", "absent", "--url", "sqlite:///new.db").returncode == 1


@for_each(
    ("form", "folder", "session", "said"),
    [
        ("strands", STRANDS / "ts_filestorage", "demo-invocation", "Hello"),
        ("strands", STRANDS / "py_legacy_file", "demo-legacy", "Hello"),
        ("genkit", FIXTURES / "compat" / "genkit" / "fixtures" / "store", "linear", "user"),
        ("go-runs", FIXTURES / "compat" / "runs" / "fixtures" / "sessions", "adhoc", "user"),
    ],
)
def test_the_files_of_other_tools_show_their_conversations(
    command: Command, tmp_path: Path, form: str, folder: Path, session: str, said: str
) -> None:
    """What the tool's files hold as messages is what `show` draws after an import."""
    url = f"sqlite:///{tmp_path}/x.db"
    for written in (True, False):
        told = json.loads(command("import", form, str(folder), "--url", url, "--json").stdout)
        assert (told["format"], told["snapshots"] > 0) == (form, True)
        assert told["written"] == (told["snapshots"] if written else 0)
    shown = command("show", session, "--url", url, "--full")
    assert (shown.returncode, said in shown.stdout) == (0, True)


def test_a_store_is_not_overwritten_by_its_own_export(command: Command, tmp_path: Path) -> None:
    base, folder = tmp_path / "a.db", tmp_path / "folder"
    for each in (f"sqlite:///{base}", folder.as_uri()):
        with limpet.open(each) as store:
            store.scope("s").save({"n": 1})
    (tmp_path / "link").symlink_to(base)
    (document,) = folder.rglob("head")
    before = base.read_bytes(), document.read_bytes()
    for name in ("a.db", "link", "a.db-wal"):
        done = command("export", "-o", name, "--url", f"sqlite:///{base}")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"limpet: the output is a file of the store itself. path=`{name}`\n"
    for name in (str(document), "folder/new.jsonl"):
        assert command("export", "-o", name, "--url", str(folder)).returncode == 2
    os.link(base, tmp_path / "second.jsonl")  # a second name, which then is that of another file
    assert command("export", "-o", "second.jsonl", "--url", f"sqlite:///{base}").returncode == 0
    assert (base.read_bytes(), document.read_bytes()) == before
    assert command("export", "-o", "new.jsonl", "--url", str(folder)).returncode == 0
    assert (tmp_path / "new.jsonl").stat().st_mode & 0o777 == 0o600


def test_much_damage_is_counted_and_its_first_few_are_named(
    command: Command, tmp_path: Path
) -> None:
    with limpet.open(f"{tmp_path}/agents.db", synchronous="off") as store:
        for number in range(300):
            store.scope("s").save({"text": noise(number)[:200]})
    with closing(sqlite3.connect(tmp_path / "agents.db", isolation_level=None)) as db:
        db.execute("UPDATE tails SET checksum = 0")
        db.execute("UPDATE segments SET checksum = 0")
    for words in ("export --url", "copy agents.db", "grep text --history --url"):
        done = command(*words.split(), "target.db" if "copy" in words else "agents.db")
        assert done.returncode == 5, words
        lines = done.stderr.splitlines()
        assert len(lines) == 6, words
        assert sum("300 snapshots" in line for line in lines) == 1, words
        assert sum("docs/check.md#salvage" in line for line in lines) == 5, words
