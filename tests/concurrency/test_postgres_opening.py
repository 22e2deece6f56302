"""Opening a store on PostgreSQL: addresses as libpq reads them, rights, many who open at once."""

import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

import limpet
from limpet import InvalidInput, LimpetError, Store, Unavailable, Unsupported
from tests.concurrency.pg_tools import WRITES, Background, everything, fill, opened, outage
from tests.servers.pg_proxy import PgProxy
from tests.servers.postgres import Connection, Postgres, PrivatePostgres, Schemas, one, with_option

SECRET = "p@ss'w\\or%d-7c1f"
# Addresses


def setting(store: Store, name: str) -> object:
    """Return what the connections of a store are set to."""
    with store.driver.opened.backend.storage._server.connect() as conn:  # type: ignore[attr-defined]
        return one(conn, "SELECT current_setting(%s)", name)


def test_the_environment(
    postgres: Postgres, schemas: Schemas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(postgres.port))
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setenv("PGDATABASE", urlsplit(postgres.url).path[1:])
    with limpet.open(f"postgresql://?schema={schemas.name()}") as store:
        store.scope("s").save(1)
        assert setting(store, "application_name") == "limpet"
    monkeypatch.setenv("PGAPPNAME", "from-outside")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=12345kB")
    with limpet.open(f"postgresql://?schema={schemas.name()}") as store:
        store.scope("\U0001f980").save("\U0001f980", labels={"é": "\U0001f980"})
        assert list(store.sessions()) == ["s", "\U0001f980"]
        assert setting(store, "application_name") == "from-outside"
        assert setting(store, "work_mem") == "12345kB"
        assert setting(store, "idle_in_transaction_session_timeout") == "1min"


ODD = {
    "bytea_output": "escape",
    "datestyle": "German",
    "timezone": "Asia/Kolkata",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "search_path": "pg_catalog",
    "lc_messages": "C",
    "extra_float_digits": "-15",
}


def test_odd_settings_of_a_connection(postgres: Postgres, postgres_url: str) -> None:
    """Nothing depends on what a role or a database is set to."""
    settings = quote(" ".join(f"-c {name}={value}" for name, value in ODD.items()))
    url = with_option(postgres_url, "options", settings)
    with opened(postgres, url) as store:
        fill(store.scope("s"))

        def work() -> None:
            for _ in range(10):
                store.scope("s").set_note("name", lambda n: n + 1)
                store.scope("s").append("items", [1])

        for each in [Background(work) for _ in range(4)]:
            each.result()
        found, note = store.scope("s").load(), store.scope("s").note("name")
        assert found is not None
        assert note is not None
        assert (len(found.state["items"]), note.value) == (40, 40)
        for verb in WRITES.values():
            verb(store.scope("s"))
            store.delete_session("s")
            fill(store.scope("s"))
        assert list(store.check()) == []


def test_several_hosts(postgres: Postgres, schemas: Schemas) -> None:
    """The next one is taken where one does not answer, also in mid-run."""
    with PgProxy(postgres.url) as first, PgProxy(postgres.url) as second:
        hosts = f"127.0.0.1:1,127.0.0.1:{first.port},127.0.0.1:{second.port}"
        url = f"postgresql://postgres@{hosts}{urlsplit(postgres.url).path}?schema={schemas.name()}"
        with opened(postgres, url) as store:
            store.scope("s").append("n", [1])
            assert (first.connections(), second.connections()) == (1, 0)
            first.close()
            store.scope("s").append("n", [2])
            found = store.scope("s").load()
            assert found is not None
            assert found.state == {"n": [1, 2]}
            assert second.connections() == 1


# Secrets


@pytest.fixture(scope="session")
def secretive(server: PrivatePostgres) -> PrivatePostgres:
    """A server at which the role `secretive` needs its password."""
    with server.connect() as conn:
        conn.execute("CREATE ROLE secretive LOGIN SUPERUSER")
        conn.execute(f"ALTER ROLE secretive PASSWORD '{SECRET.replace(chr(39), chr(39) * 2)}'")
        file = one(conn, "SHOW hba_file")
        conn.execute("CREATE TABLE hba (line text)")
        for line in (
            "all secretive 127.0.0.1/32 scram-sha-256",
            "all all 127.0.0.1/32 trust",
            "replication all 127.0.0.1/32 trust",  # other tests of this server have a standby
        ):
            conn.execute("INSERT INTO hba VALUES (%s)", [f"host {line}"])
        conn.execute(f"COPY hba TO '{file}'")
        conn.execute("SELECT pg_reload_conf()")
    return server


def shown(error: BaseException) -> str:
    """Return all that a log would show of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))


def test_a_password_is_never_shown(secretive: PrivatePostgres) -> None:
    server = secretive
    good = server.url.replace("postgres@", f"secretive:{quote(SECRET, safe='')}@")
    bad = server.url.replace("postgres@", f"secretive:{quote('x' + SECRET, safe='')}@")
    wrong: list[tuple[str, dict[str, Any]]] = [
        (bad, {}),
        (good.replace(f":{server.port}/", ":1/"), {}),
        (good.rpartition("/")[0] + "/missing", {}),
        (good + "?sslmode=require", {}),
        (good + "?sslmode=" + quote(SECRET), {}),
        (good + "?pasword=" + quote(SECRET), {}),
        (good + "?schema=" + quote(SECRET), {}),
        (good + "?passfile=/nowhere&password=" + quote("x" + SECRET), {}),
        (good.replace("postgresql:", "postgrsql:"), {}),
        ("postgresql://secretive:p@ss-7c1f@127.0.0.1:1/postgres", {}),  # @ is not escaped
        (good, {"password": SECRET}),
    ]
    for url, options in wrong:
        with pytest.raises(LimpetError) as caught:
            limpet.open(url, **options)
        for text in (SECRET, quote(SECRET, safe=""), "7c1f"):
            assert text not in shown(caught.value), wrong.index((url, options))
    with opened(server, good, retry_s=0.2) as store:
        store.scope("s").save(1)
        backend = store.driver.opened.backend
        server_side = backend.storage._server  # type: ignore[attr-defined]
        for each in (store, store.aio, store.driver.opened, backend, server_side):
            assert "7c1f" not in repr(each)
        server.stop()
        with pytest.raises(Unavailable) as gone:
            store.scope("s").load()
        assert "7c1f" not in shown(gone.value)
        server.start()
        store.scope("s").load()


def test_who_is_not_admitted_is_told_why_and_where(
    secretive: PrivatePostgres, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_at_once:
        port = closed_at_once.getsockname()[1]
    url, here = secretive.url, ("127.0.0.1", secretive.port)
    for refused, fact, (host, at) in (
        (
            url.replace(f":{secretive.port}/", f":{port}/"),
            "no server listens there: start it, or correct host and port of the URL",
            ("127.0.0.1", port),
        ),
        (
            f"postgresql:///agents?user=me&host={tmp_path}&port=5432",
            "no server listens at this socket: start it, or name its host",
            (str(tmp_path), 5432),
        ),
        (url.replace("postgres@", "secretive:x@"), "the server refuses the password", here),
        (url.replace("postgres@", "secretive@"), "a password is needed: put it in the URL", here),
        (url.rpartition("/")[0] + "/missing", "there is no such database: make it by CRE", here),
        (url.replace("postgres@", "nobody@"), "there is no such role: make it by CREATE", here),
    ):
        with pytest.raises(Unavailable) as caught:
            limpet.open(refused)
        assert caught.value.outcome_known
        assert str(caught.value).startswith(fact)
        assert str(caught.value).endswith(f"host=`{host}` port=`{at}`")


# Rights


@pytest.fixture
def role(postgres: Postgres, schemas: Schemas) -> Iterator[str]:
    """A role that may log in, and nothing else."""
    name = schemas.name("role")
    with postgres.connect() as conn:
        conn.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    with postgres.connect() as conn:
        conn.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


@pytest.fixture
def as_role(postgres_url: str, role: str) -> str:
    return postgres_url.replace("postgres@", f"{role}@")


def grant(conn: Connection, schema: str, role: str, rights: str) -> None:
    conn.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    conn.execute(f"GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {role}")


WRITER = "SELECT, INSERT, UPDATE, DELETE"


def test_a_role_that_may_only_read(
    postgres: Postgres, schemas: Schemas, postgres_url: str, as_role: str, role: str
) -> None:
    """It reads everything, its writes change nothing, and with more rights the store goes on."""
    with opened(postgres, postgres_url) as store, postgres.connect() as conn:
        fill(store.scope("s"))
        with pytest.raises(Unavailable):
            limpet.open(as_role)
        grant(conn, schemas.name(), role, "SELECT")
        with opened(postgres, as_role) as reader:
            assert everything(reader) == everything(store)
            for verb in WRITES.values():
                assert "42501" in str(outage(verb, reader))
            grant(conn, schemas.name(), role, WRITER)
            for verb in WRITES.values():
                verb(reader.scope("s"))
                reader.delete_session("s")
                fill(reader.scope("s"))


def test_a_role_that_may_not_create_tables(
    postgres: Postgres, schemas: Schemas, as_role: str, role: str
) -> None:
    """The error names the command whose SQL somebody else has to run; then it works."""
    with pytest.raises(Unavailable) as caught:
        limpet.open(as_role)
    assert caught.value.outcome_known
    run_what_it_says(postgres, str(caught.value))
    with postgres.connect() as conn:
        grant(conn, schemas.name(), role, WRITER)
    for setup in (False, True):  # nothing is left to be set up
        with opened(postgres, as_role, setup=setup) as store:
            fill(store.scope(f"s{setup}"))


def test_without_setup_nothing_is_made(
    postgres: Postgres, schemas: Schemas, postgres_url: str
) -> None:
    with pytest.raises(Unavailable) as caught:
        limpet.open(postgres_url, setup=False)
    assert caught.value.outcome_known
    with postgres.connect() as conn:
        assert one(conn, "SELECT to_regnamespace(%s)", schemas.name()) is None
    run_what_it_says(postgres, str(caught.value))
    with opened(postgres, postgres_url, setup=False) as store:
        fill(store.scope("s"))
        assert list(store.check()) == []


def run_what_it_says(postgres: Postgres, message: str) -> None:
    """Run the SQL that the command in a message prints."""
    command = next(part for part in message.split("`") if part.startswith("limpet schema"))
    program = Path(sys.executable).with_name("limpet")
    printed = subprocess.run([program, *command.split()[1:]], capture_output=True, check=True)
    with postgres.connect() as conn:
        conn.execute(printed.stdout)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("INSERT INTO {} VALUES (999, 'later')", "999"),
        ("UPDATE {} SET version = 3", "export it with that version.* found=`3`"),
    ],
)
def test_tables_of_another_version(
    postgres: Postgres, schemas: Schemas, postgres_url: str, change: str, message: str
) -> None:
    """They are refused in one line, and not touched."""
    with opened(postgres, postgres_url), postgres.connect() as conn:
        conn.execute(change.format(f"{schemas.name()}.schema_migrations"))
    for setup in (True, False):
        with pytest.raises(Unsupported, match=message):
            limpet.open(postgres_url, setup=setup)


def test_a_url_that_is_none_of_postgresql() -> None:
    for url in ("postgresql:", "postgresql:x", "postgresql://%00", "postgresql://[::1/x"):
        with pytest.raises(InvalidInput):
            limpet.open(url)
