"""The composition point: from a URL to an engine to a face.

The only file that names the engines, the clock, randomness and the environment. A new engine is
one function here and one file in `backends/`.
"""

import os
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode

from limpet.api.opened import Opened, Tools
from limpet.api.store import AsyncStore, Store
from limpet.core import limits
from limpet.core.layout import Layout
from limpet.errors import InvalidInput, Unsupported
from limpet.protocol import Backend, Clock, Stamp

if TYPE_CHECKING:
    from limpet.backends.buckets import Bucket

# Options, in URLs and by name: each is returned as it should be, or refused by a ValueError.

ROOT = "sessions/"
DEFAULT_SCHEMA = "limpet"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")  # so that no quotes are needed anywhere
_INTERVAL_S_MIN = 0.01


def root(value: Any) -> str:
    """Return a root below which sessions lie: ours, or one of the Strands tools."""
    if value not in (ROOT, "", "session/"):
        raise ValueError
    return str(value)


def flag(value: Any) -> bool:
    """Return True or False, which a URL writes in words or digits."""
    if value in (True, "true", "1"):
        return True
    if value in (False, "false", "0"):
        return False
    raise ValueError


def positive_int(value: Any) -> int:
    """Return a whole number from 1 on."""
    number = int(value)
    if number < 1 or isinstance(value, bool | float):
        raise ValueError
    return number


def seconds(value: Any) -> float:
    """Return seconds, none or many."""
    number = float(value)
    if not 0 <= number <= limits.WAIT_S_MAX or isinstance(value, bool):
        raise ValueError
    return number


def interval(value: Any) -> float:
    """Return seconds between two looks."""
    return max(_INTERVAL_S_MIN, seconds(value))


def durability(value: Any) -> str:
    """Return what SQLite calls `synchronous`."""
    if value not in ("full", "normal", "off"):
        raise ValueError
    return str(value)


def text(value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def check_schema(value: Any) -> str:
    """Return the name of a schema, or raise InvalidInput."""
    if not isinstance(value, str) or not _SCHEMA.fullmatch(value):
        raise InvalidInput("the name of a schema has up to 63 of a-z, 0-9 and _, no digit first")
    return value


def checked(
    options: Mapping[str, Any], known: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    """Return options by name, or raise InvalidInput for one that is not known or acceptable."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise InvalidInput(f"there is no such option. option=`{name}`")
        try:
            found[name] = known[name](value)
        except (TypeError, ValueError, OverflowError):
            # The value may be a secret in the wrong place, so it is not shown.
            raise InvalidInput(f"the option's value is not acceptable. option=`{name}`") from None
    return found


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
DEFAULT_URL = "sqlite:///limpet.db"


def open(url: str | None = None, **options: Any) -> Store:
    """Open a store by its URL, as a context manager.

    Without a URL: `$LIMPET_URL`, else the file `limpet.db` in this folder. Options may stand in
    the URL's query or be given by name: `state_bytes_max`, `workers` (threads of the async face);
    for SQLite `lock_wait_s`, `synchronous` (`full`, `normal` or `off`) and `cache_bytes_max` (last
    states kept in memory, so that the next ones are compared without reading them); for folders and
    object stores `root` (`sessions/`, or one of the roots of the Strands tools: nothing, or
    `session/`) and `poll_s` (how long a watch may take to notice where nothing tells it); for
    folders `sync`; for object stores `timeout_s` of a request, `retry_s` of all attempts and
    `parallel` requests; for PostgreSQL `schema`, `setup`, `connections`, `pooler` and more (the
    guide has them all), beside what libpq knows; for S3 `endpoint_url`, `region`, `profile`,
    `path_style` and keys, which are better left where AWS's own tools look for them.

    Raises:
        InvalidInput: the URL or an option is not understood, or the file is not Limpet's.
        Unsupported: the file was written by a newer version.
        Unavailable: the storage cannot be opened.
        Corrupt: the file is damaged.
    """
    engine = _engine(url, options)
    engine.open()
    return Store(engine)


def open_async(url: str | None = None, **options: Any) -> AsyncStore:
    """Async twin of `open`; not awaited. The engine is opened by `async with`, or by first use."""
    return Store(_engine(url, options)).aio


def open_bucket(bucket: str, *, prefix: str = "", **options: Any) -> AsyncStore:
    """Return the async face of a store in a bucket of S3, by its name instead of a URL."""
    for name, value in (("bucket", bucket), ("prefix", prefix)):
        if not isinstance(value, str):
            raise InvalidInput(f"the {name} must be text. type=`{type(value).__name__}`")
    if "/" in bucket:
        raise InvalidInput(f"the name of the bucket is not acceptable. bucket=`{bucket!a}`")
    common, own = _common(options)
    scheme = _SCHEMES["s3"]
    opener = scheme.opener(f"//{bucket}/{prefix}", checked(own, scheme.options))
    return Store(Opened(opener, _tools(common))).aio


def open_client(client: Any, *, name: str, prefix: str = "", root: str) -> AsyncStore:
    """Return the async face of a store over a store of obstore that somebody else made."""
    from limpet.backends.buckets.s3.open import client_bucket

    bucket = client_bucket(client, name=name, prefix=prefix, clock=CLOCK)
    return Store(Opened(lambda: _over(bucket, root=root), _tools({}))).aio


def store_over(backend: Backend, **options: Any) -> Store:
    """Return a store over an engine of your own; `.aio` is its async face."""
    common, rest = _common(options)
    if rest:
        raise InvalidInput(f"there is no such option. option=`{min(rest)}`")
    engine = Opened(lambda: backend, _tools(common))
    engine.open()
    return Store(engine)


def open_files(url: str, **options: Any) -> "Bucket":
    """Open a folder or an object store as plain keys and bytes: for the files of other tools."""
    scheme, address, given = _read_url(url)
    if scheme.files is None:
        raise InvalidInput("files of other tools are in a folder or in an object store")
    known = {name: check for name, check in scheme.options.items() if name not in _ABOVE}
    return scheme.files(address, checked(_merged(given, options), known))()


def open_backend(url: str, **options: Any) -> Backend:
    """Open an engine without a face: for layers and for tests of the engine itself."""
    return _engine(url, options).open()


def file_of(url: str | None = None) -> str | None:
    """Return the path of the file that a URL names, None for an engine without one.

    Opens nothing, and the file need not exist.
    """
    scheme, address, _ = _read_url(url)
    return None if scheme.file is None else scheme.file(address)


def scheme_of(url: str | None = None) -> str:
    """Return the scheme of a URL, in lower case; `file` for a plain path."""
    scheme, _, _ = _read_url(url)
    return next(name for name, each in _SCHEMES.items() if each is scheme)


class Migration(NamedTuple):
    """The SQL of one migration; `record_sql` records in the database that it has run."""

    version: int
    name: str
    sql: str
    record_sql: str


def schema_migrations(engine: str, schema: str = DEFAULT_SCHEMA) -> list[Migration]:
    """Return the migrations of `sqlite` or `postgres`, in order, for the tables of a schema."""
    from limpet.backends.sql.statements import in_schema, load_migrations

    check_schema(schema)
    found = []
    for version, name, script in load_migrations(engine):
        record = ""
        if engine == "postgres" and version:  # version 0 creates the table of migrations
            values = f"VALUES ({version}, '{name}');"
            record = f"\nINSERT INTO {DEFAULT_SCHEMA}.schema_migrations (version, name) {values}\n"
        found.append(Migration(version, name, in_schema(script, schema), in_schema(record, schema)))
    return found


def environment(**more: str) -> dict[str, str]:
    """Return the environment of this process with `more` in it, for a process that it starts."""
    return {**os.environ, **more}


CLOCK = Clock(time.monotonic, time.sleep, random.random)


def draw() -> Stamp:
    """Draw the time and the chance of one write."""
    chance = os.urandom(18)
    return Stamp(time.time_ns() // 1000, chance[:8].hex(), int.from_bytes(chance[8:]))


def _tools(common: Mapping[str, Any]) -> Tools:
    return Tools(
        draw=draw,
        clock=CLOCK,
        state_bytes_max=common.get("state_bytes_max", limits.STATE_BYTES_MAX),
        workers=common.get("workers", 8),
    )


def _engine(url: str | None, options: Mapping[str, Any]) -> Opened:
    scheme, address, given = _read_url(url)
    common, own = _common(_merged(given, options))
    engine = Opened(scheme.opener(address, checked(own, scheme.options)), _tools(common))
    if scheme.instant:
        engine.open()
    return engine


def _merged(given: list[tuple[str, str]], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a URL together with those that were given by name."""
    merged: dict[str, Any] = dict(options)
    for name, value in given:
        if name in merged:
            raise InvalidInput(f"the option is given twice. option=`{name}`")
        merged[name] = value
    return merged


def _read_url(url: str | None) -> tuple["_Scheme", str, list[tuple[str, str]]]:
    """Return the scheme of a URL, its address and the options in its query."""
    if url is None:
        url = os.environ.get("LIMPET_URL") or DEFAULT_URL
    if not isinstance(url, str):
        raise InvalidInput(f"the URL must be text. type=`{type(url).__name__}`")
    found = _SCHEME.match(url)
    # A bare word may be a scheme that was misspelt, so a plain path shows that it is one.
    if found is None and "/" in url and not url.startswith(("//", ":", "?")):
        return _SCHEMES["file"], os.path.expanduser(url), []  # a plain path
    name = "" if found is None else found[1].lower()
    scheme = _SCHEMES.get(name)
    if found is None or scheme is None:
        # The rest of the URL is not shown: it may hold a password.
        known = ", ".join(f"{name}:" for name in _SCHEMES)
        if found is None:
            advice = "write memory:, ./folder or sqlite:///file.db"
            raise InvalidInput(f"the URL has no scheme: {advice}. scheme=``")
        raise InvalidInput(f"the URL's scheme is not known. scheme=`{name}` known=`{known}`")
    # The path is everything up to the query, so that no `#` or `;` in it gets lost.
    path, _, query = url[found.end() :].partition("?")
    try:
        address = unquote(path, errors="strict")
        given = parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise InvalidInput("the URL holds an escape that is not UTF-8") from None
    if "\0" in address:
        raise InvalidInput("the URL holds NUL")
    if not scheme.shares_query:
        return scheme, address, given
    # It is somebody else's URL, in which only the options that we know are ours.
    ours = {*scheme.options, *_COMMON}
    others = [each for each in given if each[0] not in ours]
    address = f"{path}?{urlencode(others, quote_via=quote)}" if others else path
    return scheme, address, [each for each in given if each[0] in ours]


def _open_memory(address: str, options: Mapping[str, Any]) -> Callable[[], Backend]:
    from limpet.backends.memory import MemoryBackend

    if address:
        raise InvalidInput("the URL of the memory engine is `memory:`, without a path")
    return MemoryBackend


def _open_sqlite(address: str, options: Mapping[str, Any]) -> Callable[[], Backend]:
    from limpet.backends.sqlite.backend import SqliteBackend

    path = _sqlite_file(address)
    return lambda: SqliteBackend(path, clock=CLOCK, **options)


def _sqlite_file(address: str) -> str:
    path = address.removeprefix("///")
    if path == address or not path or path == ":memory:":
        raise InvalidInput("write sqlite:///relative.db or sqlite:////absolute.db, or memory:")
    # Absolute, so that a later change of directory does not lead to another file.
    return os.path.abspath(path)


def _folder_files(address: str, options: Mapping[str, Any]) -> Callable[[], "Bucket"]:
    from limpet.backends.buckets.directory.bucket import DirectoryBucket

    path = _folder(address)
    return lambda: DirectoryBucket(path, token=_token, now=_now, clock=CLOCK, **options)


def _folder(address: str) -> str:
    path = address
    if address.startswith("//"):
        host, slash, rest = address[2:].partition("/")
        path = slash + rest
        if host not in ("", "localhost") or not slash:
            raise InvalidInput("write file:///absolute/folder, or a plain path")
    if not path or "\0" in path:
        raise InvalidInput("write file:///absolute/folder, or a plain path")
    return os.path.abspath(path)


def _s3_files(address: str, options: Mapping[str, Any]) -> Callable[[], "Bucket"]:
    from limpet.backends.buckets.s3.open import s3_bucket

    return _made(lambda *at, **own: s3_bucket(*at, environ=os.environ, **own), address, options)


def _gcs_files(address: str, options: Mapping[str, Any]) -> Callable[[], "Bucket"]:
    from limpet.backends.buckets.s3.open import gcs_bucket

    return _made(gcs_bucket, address, options)


def _azure_files(address: str, options: Mapping[str, Any]) -> Callable[[], "Bucket"]:
    from limpet.backends.buckets.s3.open import azure_bucket

    return _made(azure_bucket, address, options)


def _made(
    factory: Callable[..., "Bucket"], address: str, options: Mapping[str, Any]
) -> Callable[[], "Bucket"]:
    """Make a bucket in an object store, which asks for nothing yet: `//bucket/prefix`."""
    if not address.startswith("//"):
        raise InvalidInput("write s3://bucket/prefix")
    name, _, prefix = address[2:].partition("/")
    if "@" in name:
        raise InvalidInput("a URL does not hold keys: give access_key_id= and secret_access_key=")
    bucket = factory(name, prefix=prefix, clock=CLOCK, **options)
    return lambda: bucket


def _open_postgres(address: str, options: Mapping[str, Any]) -> Callable[[], Backend]:
    try:
        from limpet.backends.postgres.backend import PostgresBackend, check_url
    except ImportError as cause:
        raise Unsupported("PostgreSQL needs an extra: pip install 'limpet[postgres]'") from cause
    if not address.startswith("//"):
        raise InvalidInput("write postgresql://user@host/database")
    url = check_url(f"postgresql:{address}")
    return lambda: PostgresBackend(url, clock=CLOCK, draw=draw, **options)


def _objects(files: "_Files") -> "_Opener":
    """Return the opener of the engine over such files."""

    def opener(address: str, options: Mapping[str, Any]) -> Callable[[], Backend]:
        above = {name: value for name, value in options.items() if name in _ABOVE}
        own = {name: value for name, value in options.items() if name not in _ABOVE}
        bucket = files(address, own)
        return lambda: _over(bucket(), **above)

    return opener


def _over(bucket: "Bucket", *, root: str = ROOT, **options: Any) -> Backend:
    from limpet.backends.objects.backend import ObjectBackend

    # Other tools know no index, and theirs are the other roots.
    index = root == ROOT
    return ObjectBackend(
        bucket, layout=Layout(root), index=index, clock=CLOCK, draw=draw, **options
    )


def _token() -> str:
    return os.urandom(8).hex()


def _now() -> int:
    return time.time_ns() // 1000


_Files: TypeAlias = Callable[[str, Mapping[str, Any]], Callable[[], "Bucket"]]
_Opener: TypeAlias = Callable[[str, Mapping[str, Any]], Callable[[], Backend]]


class _Scheme(NamedTuple):
    opener: _Opener
    options: Mapping[str, Callable[[Any], Any]]
    instant: bool = False
    file: Callable[[str], str] | None = None
    shares_query: bool = False  # with options that are not ours
    files: _Files | None = None  # what lies below the engine, where that is files


_COMMON: Mapping[str, Callable[[Any], Any]] = {
    "state_bytes_max": positive_int,
    "workers": positive_int,
}
_ABOVE: Mapping[str, Callable[[Any], Any]] = {"root": root, "poll_s": interval}
_OBJECTS: Mapping[str, Callable[[Any], Any]] = {
    **_ABOVE,
    "timeout_s": seconds,
    "retry_s": seconds,
    "parallel": positive_int,
}
_POSTGRES = _Scheme(
    _open_postgres,
    {
        "schema": check_schema,
        "setup": flag,
        "connections": positive_int,
        "lock_wait_s": seconds,
        "retry_s": seconds,
        "pooler": flag,
        "advisory_locks": flag,
        "notify": flag,
        "poll_s": interval,
        "cache_bytes_max": positive_int,
    },
    shares_query=True,
)
_SCHEMES: Mapping[str, _Scheme] = {
    "memory": _Scheme(_open_memory, {}, instant=True),
    "sqlite": _Scheme(
        _open_sqlite,
        {
            "lock_wait_s": seconds,
            "synchronous": durability,
            "cache_bytes_max": positive_int,
        },
        file=_sqlite_file,
    ),
    "file": _Scheme(
        _objects(_folder_files),
        {**_ABOVE, "sync": flag, "lock_wait_s": seconds},
        file=_folder,
        files=_folder_files,
    ),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "s3": _Scheme(
        _objects(_s3_files),
        {
            **_OBJECTS,
            "endpoint_url": text,
            "region": text,
            "access_key_id": text,
            "secret_access_key": text,
            "session_token": text,
            "profile": text,
            "path_style": flag,
        },
        files=_s3_files,
    ),
    "gs": _Scheme(_objects(_gcs_files), _OBJECTS, files=_gcs_files),
    "az": _Scheme(_objects(_azure_files), {**_OBJECTS, "account": text}, files=_azure_files),
}


def _common(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the options that every engine has from an engine's own."""
    common = {name: value for name, value in options.items() if name in _COMMON}
    own = {name: value for name, value in options.items() if name not in _COMMON}
    return checked(common, _COMMON), own
