"""The documentation is true: examples print what is shown, verbs have pages, links resolve."""

import inspect
import json
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

import limpet
from limpet import AsyncScope, AsyncStore, Scope, Store, Unavailable
from limpet.cli._app import run
from tests import snippets
from tests.concurrency.verbs import claim, release, renew
from tests.frameworks.catalogue import FRAMEWORKS
from tests.servers.http import Served
from tests.servers.pg_proxy import PgProxy
from tests.servers.postgres import Connection, Postgres
from tests.snippets import Block, blocks

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"
INDEX = GUIDES / "README.md"
CONCEPTS = GUIDES / "concepts.md"
POSTGRES = GUIDES / "postgres.md"
HTTP, SERVING = GUIDES / "http.md", GUIDES / "server.md"
JAVASCRIPT = set(GUIDES.glob("javascript*.md"))  # tests/js runs their examples
FRAMEWORK_PAGES = {GUIDES / f"{each.page}.md" for each in FRAMEWORKS.values()}  # tests/frameworks
PAGES = sorted(set(GUIDES.glob("*.md")) - {INDEX})
START = ROOT / "docs" / "README.md"
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
SINGLE = [ROOT / "docs" / f"{name}.md" for name in ("errors", "integrations", "promises")]
PICTURES = sorted((GUIDES / "images").glob("*"))
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

PAGE_OF = {
    "save": "save",
    "append": "append",
    "load": "load",
    "load_many": "load_many",
    "info": "info",
    "history": "history",
    "ids": "ids",
    "ancestors": "ancestors",
    "leaves": "leaves",
    "update": "update",
    "fork": "fork",
    "restore": "restore",
    "diff": "diff",
    "prune": "prune",
    "redact": "forgetting",
    "note": "notes",
    "notes": "notes",
    "noted_ids": "notes",
    "set_note": "notes",
    "delete_note": "notes",
    "delete_snapshot": "deletes",
    "delete": "deletes",
    "delete_session": "deletes",
    "scope": "sessions_and_scopes",
    "sessions": "sessions_and_scopes",
    "scopes": "sessions_and_scopes",
    "find": "sessions_and_scopes",
    "store.history": "sessions_and_scopes",
    "stats": "upkeep",
    "compact": "upkeep",
    "check": "upkeep",
    "repair": "upkeep",
    "rekey": "encryption",
    "open": "opening",
    "open_async": "opening",
    "close": "opening",
    "run": "async",
    "watch": "watch",
    "claim": "claim",
}


def prose(document: Path) -> str:
    """Return a document without its fenced blocks and its spans of code."""
    text = re.sub(r"^```.*?^```$", "", document.read_text("utf-8"), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "code", text)


def names(pages: list[Path]) -> list[str]:
    return [page.name for page in pages]


# Examples.

# Runs the examples of a page in one namespace, and says what each of them printed. They are read
# under the name and the lines of their page, so that a traceback leads there.
RUNNER = """
import contextlib, io, json, sys
page, sources = json.load(sys.stdin)
space, printed = {"__name__": "__main__"}, []
for line, text in sources:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile("\\n" * (line - 1) + text, page, "exec"), space)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


ELSEWHERE = {POSTGRES, HTTP, SERVING, *JAVASCRIPT, *FRAMEWORK_PAGES}
ALONE = [page for page in [*PAGES, *RECIPES, *SINGLE] if page not in ELSEWHERE]


@pytest.mark.parametrize("page", ALONE, ids=names(ALONE))
def test_examples_run_and_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    check_examples(page, blocks(page), tmp_path)


def check_examples(page: Path, all_blocks: list[Block], folder: Path) -> None:
    """Run a new process in an empty folder, top to bottom; warnings are errors."""
    sources = [block for block in all_blocks if block.language == "python"]
    # What an example prints is shown in the block of text right behind it, and nowhere else.
    shown = {
        before.line: after.text
        for before, after in pairwise(all_blocks)
        if (before.language, after.language) == ("python", "text")
    }
    assert sources
    assert len(shown) == sum(block.language == "text" for block in all_blocks)

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNNER],
        input=json.dumps([page.name, [(block.line, block.text) for block in sources]]),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    printed = dict(zip([block.line for block in sources], json.loads(done.stdout), strict=True))
    assert {line: text for line, text in printed.items() if text} == shown


def test_the_tutorials_run_one_after_the_other_in_one_folder(database: str, tmp_path: Path) -> None:
    """They tell one story, so that each needs the files of those before it."""
    assert [page.name[0] for page in TUTORIALS] == ["1", "2", "3", "4", "5"]
    for page in TUTORIALS:
        made = tmp_path / "travel"  # by the first of them
        snippets.run(page, made if made.exists() else tmp_path, {SERVER: database})


def test_the_examples_over_http_run(tmp_path: Path) -> None:
    """With a server in a process of its own."""
    with Served("sqlite:///agents.db", folder=tmp_path) as served:
        address = "http://127.0.0.1:7420"
        there = [
            each._replace(text=each.text.replace(address, served.url)) for each in blocks(HTTP)
        ]
        assert there != blocks(HTTP)
        check_examples(HTTP, there, tmp_path)


# PostgreSQL: the examples of its page need a server, and so does what it says.

SERVER = "postgresql://postgres@localhost/agents"  # as the page has it
STATE = {"messages": [{"role": "user", "content": f"hello {n} " * 5} for n in range(20)]}


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty database."""
    with postgres.database() as url:
        yield url


def test_the_examples_on_postgres_run(database: str, tmp_path: Path) -> None:
    """The tables are where the page says, so it takes a database and not a mere schema."""
    there = [each._replace(text=each.text.replace(SERVER, database)) for each in blocks(POSTGRES)]
    assert there != blocks(POSTGRES)
    check_examples(POSTGRES, there, tmp_path)
    shell = "".join(each.text for each in there if each.language == "sh")
    rows = r"^\| `(\w+_list)` \| \w+ \| (.*) \|$"
    table = dict(re.findall(rows, POSTGRES.read_text("utf-8"), re.M))
    with psycopg.connect(database) as conn:
        found = [conn.execute(each).fetchall() for each in re.findall(r'-c "(.*)"$', shell, re.M)]
        assert [len(each) for each in found] == [1, 1]
        assert table.keys() == views(conn).keys()
        for name, columns in views(conn).items():
            assert set(re.findall(r"`(\w+)`", table[name])) <= columns


def views(conn: Connection) -> dict[str, set[str]]:
    """Return the columns of each view."""
    query = """
        SELECT table_name, array_agg(column_name::text)
          FROM information_schema.columns
          JOIN information_schema.views USING (table_schema, table_name)
         WHERE table_schema = 'limpet' GROUP BY table_name"""
    return {name: set(columns) for name, columns in conn.execute(query)}


@contextmanager
def roles(database: str) -> Iterator[tuple[str, str, str]]:
    """Have the page's roles under names of their own; yield these, and its SQL with them."""
    (grants,) = [each.text for each in blocks(POSTGRES) if each.language == "sql"]
    writer, reader = (f"{each}_{secrets.token_hex(4)}" for each in ("writer", "reader"))
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {writer} LOGIN; CREATE ROLE {reader} LOGIN")
        yield (
            writer,
            reader,
            grants.replace("agents_writer", writer).replace("agents_reader", reader),
        )
        for each in (writer, reader):
            conn.execute(f"DROP OWNED BY {each}; DROP ROLE {each}")


def test_the_grants_on_the_page_are_enough(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["schema", "postgres"]) == 0
    with roles(database) as (writer, reader, grants), psycopg.connect(database) as conn:
        conn.execute(capsys.readouterr().out)
        conn.execute(grants)
        conn.commit()
        with limpet.open(database.replace("postgres@", f"{writer}@"), setup=False) as store:
            write_everything(store)
        with limpet.open(database.replace("postgres@", f"{reader}@"), setup=False) as store:
            assert read_everything(store) == ["d", "a"]
            for write in (lambda: store.scope("s").save(1), lambda: list(store.repair())):
                with pytest.raises(Unavailable, match="42501"):
                    write()


def write_everything(store: Store) -> None:
    scope = store.scope("s")
    scope.save(STATE, id="a", labels={"user": "ann"})
    scope.save({}, id="b", keep=False)
    scope.save({}, id="c", keep=False)
    scope.append("messages", ["x"], keep=False)
    scope.save({}, id="d")
    scope.update("d", lambda it: it.with_(state={"n": 1}))
    scope.save({}, id="d", overwrite=True)
    scope.save({}, id="e", head=False)
    scope.fork("a").delete()
    scope.fork("a", to="other")
    scope.set_note("title", "Lisbon")
    scope.delete_note("title")
    scope.delete_snapshot("e")
    store.delete_session("other")
    store.compact()
    assert [each.code for each in store.repair()] == []


def read_everything(store: Store) -> list[str]:
    scope = store.scope("s")
    assert scope.load("a") is not None
    assert list(scope.notes()) == []
    assert [each.id for each in store.history(labels={"user": "ann"})] == ["a"]
    assert [each.key.session_id for each in store.scopes()] == list(store.sessions()) == ["s"]
    assert store.stats().snapshots == len(list(scope.load_many(scope.ids()))) == 2
    assert list(store.check()) == []
    return [each.id for each in scope.history()]


class Cost(NamedTuple):
    """What is done in a new scope, mine and theirs, before a verb is counted."""

    verb: Callable[[Scope], object]
    before: Callable[[Scope, Scope], object] = lambda mine, theirs: None


def three(mine: Scope, theirs: Scope) -> None:
    for id in ("a", "b", "c"):
        mine.save({**STATE, "id": id}, id=id)
    mine.set_note("title", "Lisbon")


def theirs_first(mine: Scope, theirs: Scope) -> None:
    three(theirs, mine)


def deltas(mine: Scope, theirs: Scope) -> None:
    text = " ".join(map(str, range(2_000)))
    for id in ("a", "b", "c"):
        theirs.save({"text": text, "id": id}, id=id)


def loaded(mine: Scope, theirs: Scope) -> None:
    theirs_first(mine, theirs)
    mine.load()


def drafted(mine: Scope, theirs: Scope) -> None:
    three(mine, theirs)
    mine.save(STATE, keep=False)


def overtaken(mine: Scope, theirs: Scope) -> None:
    three(mine, theirs)
    theirs.save(STATE)


def claimed(mine: Scope, theirs: Scope) -> None:
    three(mine, theirs)
    claim(mine)


def save(scope: Scope) -> None:
    scope.save({**STATE, "last": True})


FORKS: list[Callable[[Scope], object]] = [
    lambda s: s.fork("c"),
    lambda s: s.fork("b"),
    lambda s: s.fork("b", patch={"n": 1}),
    lambda s: s.fork("b", to=f"{s.session_id} again"),
]
COSTS = [  # in the order of the page's table: what each number of a line is about
    [
        Cost(save, three),
        Cost(lambda s: s.append("messages", ["x"]), three),
        Cost(lambda s: s.save(STATE, id="new", overwrite=True), three),
        Cost(lambda s: s.set_note("new", 1, expect=None), three),
    ],
    [
        Cost(save),
        Cost(save, drafted),
        Cost(lambda s: s.save(STATE, keep=False), drafted),
        Cost(save, theirs_first),
        Cost(save, loaded),
        Cost(lambda s: s.append("messages", ["x"]), theirs_first),
    ],
    [Cost(save, overtaken)],
    [
        Cost(Scope.load, theirs_first),
        *(
            Cost(verb, before)
            for before in (theirs_first, deltas)
            for verb in (
                lambda s: s.load("b"),
                lambda s: s.info(),
                lambda s: s.info("b"),
                lambda s: s.note("title"),
                lambda s: list(s.notes()),
            )
        ),
    ],
    [
        Cost(Scope.load, deltas),
        Cost(lambda s: list(s.load_many(["a", "b", "c"])), theirs_first),
    ],
    [
        Cost(verb, theirs_first)
        for verb in (
            lambda s: list(s.history(limit=20)),
            lambda s: list(s.ids()),
        )
    ],
    [
        Cost(verb, theirs_first)
        for verb in (
            lambda s: Store(s.driver).find("b", prefix=s.session_id),
            lambda s: list(Store(s.driver).history(limit=20)),
            lambda s: list(Store(s.driver).history(limit=20, labels={"a": "b"})),
            lambda s: list(Store(s.driver).sessions(limit=20)),
            lambda s: list(Store(s.driver).scopes(s.session_id)),
        )
    ],
    [Cost(claim, theirs_first), Cost(renew, claimed), Cost(release, claimed)],
    [
        Cost(lambda s: s.set_note("title", 1), three),
        Cost(lambda s: s.delete_note("title"), three),
        Cost(lambda s: s.delete_note("title"), theirs_first),
        Cost(lambda s: s.delete_note("title"), overtaken),
    ],
    [
        Cost(partial(Scope.update, id=id, fn=change), before)
        for change in (lambda it: it.with_(status="x"), lambda it: it.with_(state="x"))
        for id in ("c", "b")
        for before in (three, theirs_first, deltas)
    ],
    [Cost(fork, before) for fork in FORKS for before in (three, theirs_first)],
    [Cost(fork, deltas) for fork in FORKS[:-1]],
    [Cost(lambda s: s.delete_snapshot("b"), three)],
    [Cost(Scope.delete, three)],
    [Cost(lambda s: Store(s.driver).delete_session(s.session_id), three)],
]


@pytest.mark.slow
def test_the_round_trips_are_those_of_the_page(database: str) -> None:
    """Each on a connection that is used, and the least of three: some prepare a statement."""
    text = POSTGRES.read_text("utf-8")
    (table,) = re.findall(r"^\| verb \| round trips \|\n(.*?)\n\n", text, re.M | re.S)
    shown = re.findall(r"^\| (.*) \| (\d+) \|$", table, re.M)
    numbered = count()
    with (
        PgProxy(database) as proxy,
        limpet.open(database) as others,
        limpet.open(proxy.url) as store,
    ):

        def trips(cost: Cost) -> int:
            taken = []
            for _ in range(4):
                name = f"s{next(numbered)}"
                cost.before(store.scope(name), others.scope(name))
                proxy.forget()
                cost.verb(store.scope(name))
                taken.append(proxy.round_trips())
            return min(taken)

        found = [[trips(cost) for cost in costs] for costs in COSTS]
    wrong = {
        verb: each
        for (verb, number), each in zip(shown, found, strict=True)
        if set(each) != {int(number)}
    }
    assert wrong == {}


# Pages.


def verbs(*classes: type) -> set[str]:
    """Return the public methods of classes."""
    return {
        name
        for each in classes
        for name, member in vars(each).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }


def test_every_verb_is_called_on_its_page() -> None:
    wanted = verbs(Scope, Store, AsyncScope, AsyncStore) | {"open", "open_async", "store.history"}
    wanted -= {"aclose"}  # another name of `close`
    assert PAGE_OF.keys() == wanted
    missing = []
    for verb, page in PAGE_OF.items():
        examples = "".join(b.text for b in blocks(GUIDES / f"{page}.md") if b.language == "python")
        if f".{verb.rpartition('.')[2]}(" not in examples:
            missing.append(verb)
    assert missing == []


# Links.


def anchors(document: Path) -> set[str]:
    """Return the addresses of a document's headings, as GitHub makes them."""
    text = re.sub(r"(?ms)^```.*?^```$", "", document.read_text("utf-8"))
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def links(document: Path) -> list[str]:
    """Return where the links and pictures of a document lead inside the project."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(document))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def test_relative_links_resolve() -> None:
    dead = []
    for document in DOCUMENTS:
        for link in links(document):
            path, _, anchor = link.partition("#")
            target = (document.parent / path).resolve() if path else document
            if not target.exists() or (anchor and anchor not in anchors(target)):
                dead.append(f"{document.relative_to(ROOT)}: {link}")
    assert dead == []


def test_the_readme_leads_to_the_tutorials_the_recipes_and_the_reference() -> None:
    named = [link.partition("#")[0] for link in links(ROOT / "README.md")]
    assert START.relative_to(ROOT).as_posix() in named
    shown = links(START)
    for page in [*TUTORIALS, *RECIPES, INDEX, CONCEPTS]:
        assert page.relative_to(START.parent).as_posix() in shown
    order = [shown.index(f"{each.parent.name}/{each.name}") for each in (TUTORIALS[0], RECIPES[0])]
    assert order[0] < order[1] < shown.index("guides/README.md")


def test_each_tutorial_ends_with_what_was_learned_and_leads_on() -> None:
    for page, following in pairwise([*TUTORIALS, START]):
        end = page.read_text("utf-8").rpartition("## What you learned")[2]
        assert following.name in end, page.name


def test_the_index_of_the_guides_leads_to_every_page() -> None:
    pages = [link for link in links(INDEX) if "/" not in link]
    assert pages[0] == CONCEPTS.name
    assert sorted(pages) == names(PAGES)


# Pictures.


def pictures_of(page: Path) -> list[tuple[str, str, str]]:
    """Return the alt text, the target and the caption of each picture on a page."""
    return re.findall(r"^!\[(.*)\]\((.+)\)\n\n(.*)$", page.read_text("utf-8"), re.M)


def test_every_picture_is_shown_with_alt_text_and_a_caption() -> None:
    shown = [each for page in PAGES for each in pictures_of(page)]
    screens = sorted((ROOT / "docs" / "images").glob("inspector-*.webp"))
    expected = [f"images/{each.name}" for each in PICTURES]
    expected += [f"../images/{each.name}" for each in screens]
    assert sorted(expected) == sorted(target for _, target, _ in shown)
    for alt, _, caption in shown:
        assert len(alt) > 40
        assert re.fullmatch(r"\*[^*]+\*", caption)
