"""The composition point: from a URL to an engine to a store.

The only file that names the engines, the clock, randomness and the environment. A new engine is
a function here, a row in `_SCHEMES`, and a package in `backends/`.
"""

import os
import random
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Unpack

from limpet.api.driver import Driver
from limpet.api.opened import Opened, Tools
from limpet.api.store import AsyncStore, Store
from limpet.backends.layers import observer
from limpet.backends.support.located import explained
from limpet.core import limits
from limpet.core.encryption import NO_KEYS, Ciphers, Keys, KeyText
from limpet.core.options import COMMON, KEYS, OpenOptions, checked, nearest, no_option
from limpet.errors import Corrupt, InvalidInput, Unavailable, Unsupported
from limpet.protocol import Backend, Clock, Stamp

if TYPE_CHECKING:
    from limpet.backends.buckets import Bucket
    from limpet.backends.sql.transaction import Migration

DEFAULT_URL = "sqlite:///limpet.db"
DEFAULT_SCHEMA = "limpet"
CLOCK = Clock(time.monotonic, time.sleep, random.random)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_SQLITE_ENDS = (".db", ".sqlite", ".sqlite3")
_PASSWORD = re.compile(r"(//[^:/?@]*:)[^?]*@")
_SECRET_OPTION = re.compile(r"([?&][^=&]*(?:key|secret|token|pass)[^=&]*=)[^&]*", re.IGNORECASE)


def open(url: str | None = None, **options: Unpack[OpenOptions]) -> Store:
    """Open a store. Use it as a context manager, or call `close`.

    Example:
        with limpet.open("sqlite:///agents.db") as store:
            store.scope("chat-42").save({"messages": []})

    Args:
        url: `sqlite:///file.db` or `file.db`, a folder (`./folder` or `file:///folder`),
            `postgresql://…`, `s3://bucket/prefix`, `gs://…`, `az://…`, `https://…` (what
            `limpet serve` serves) or `memory:`. By default `$LIMPET_URL`, else
            `sqlite:///limpet.db`.
        options: may be given here or in the query of the URL. For every engine: `state_bytes_max`,
            `workers` (threads of the async API), `default` (a function that makes JSON of each
            value that is not, as in `json.dumps`: `default=limpet.jsonable`), `keys` or `keys_file`
            (what is stored is encrypted; also `$LIMPET_KEYS`, `$LIMPET_KEYS_FILE`) and
            `allow_plaintext` (what is not encrypted is read all the same), `otel` (spans and
            metrics of OpenTelemetry), `slow_s` (operations that take longer are logged). SQLite:
            `lock_wait_s`, `synchronous` (`full`, `normal` or `off`), `mode` (`ro` only reads),
            `cache_bytes_max`. Folders: `poll_s`, `compress` (`zstd` or `none`), `sync`,
            `lock_wait_s`. Object stores: `poll_s`, `compress`, `timeout_s`, `retry_s`, `parallel`,
            and for S3 `endpoint_url`, `region`, `profile`, `path_style` and keys. PostgreSQL:
            `schema`, `setup`, `connections`, `pooler`, and what libpq knows. HTTP: `token`,
            `token_file`, `timeout_s`, `retry_s`, `connections`, `ca_file`. The guide "Opening a
            store" explains all of them.

    Raises:
        InvalidInput: the URL or an option is not valid, or the file is not Limpet's.
        Unsupported: the file was written by a newer version, or an extra is not installed.
        Unavailable: the storage cannot be opened.
        Corrupt: the file is damaged.
    """
    opened = _opened(url, options)
    opened.open()
    return Store(Driver(opened))


def open_async(url: str | None = None, **options: Unpack[OpenOptions]) -> AsyncStore:
    """Return a store with the async API; not awaited. Its first use opens the engine.

    Async twin of `open`.

    Example:
        async with limpet.open_async("sqlite:///agents.db") as store:
            await store.scope("chat-42").save({"messages": []})

    Args:
        url: as in `open`.
        options: as in `open`.
    """
    return Store(Driver(_opened(url, options))).aio


def open_folder(path: str) -> "Bucket":
    """Open a folder as keys and bytes."""
    return _directory_bucket(path, {})()


def open_bucket(bucket: str, *, prefix: str = "", **options: Any) -> "Bucket":
    """Return a bucket of S3 as keys and bytes, by its name instead of a URL. Sends no request."""
    for name, value in (("bucket", bucket), ("prefix", prefix)):
        if not isinstance(value, str):
            raise InvalidInput(f"the {name} must be text. type=`{type(value).__name__}`")
    if "/" in bucket:
        raise InvalidInput(f"the name of the bucket is not acceptable. bucket=`{bucket!a}`")
    known = set(_SCHEMES["s3"].options).difference(_OBJECTS)
    return _S3(f"//{bucket}/{prefix}", checked(options, known))()


def open_client(client: Any, *, name: str, prefix: str = "") -> "Bucket":
    """Return a bucket over an object store of `obstore` that the caller made."""
    from limpet.backends.buckets.s3.open import client_bucket

    return client_bucket(client, name=name, prefix=prefix, clock=CLOCK)


def store_over(backend: Backend, **options: Any) -> Store:
    """Return a store over a backend of your own."""
    common, rest = _split(options, COMMON)
    if rest:
        raise no_option(min(rest), COMMON)
    found, engine = checked(common, COMMON), type(backend).__name__
    observe = observer(found, engine, CLOCK)
    opened = Opened(lambda: observe(backend), _tools(found), engine)
    opened.open()
    return Store(Driver(opened))


def open_files(url: str, **options: Any) -> "Bucket":
    """Open a folder or an object store as keys and bytes: for the files of other tools."""
    scheme, address, given = _read_url(url)
    if scheme.bucket is None:
        raise InvalidInput("files of other tools are in a folder or in an object store")
    known = set(scheme.options).difference(_OBJECTS)
    return scheme.bucket(address, checked(_merged(given, options), known))()


def open_backend(url: str, **options: Any) -> Backend:
    """Open an engine without a store: for layers, and for tests of the engine itself."""
    return _opened(url, options).open()


@contextmanager
def open_backup(path: str, ciphers: Ciphers | None, *, staged: str = "") -> Iterator[Store]:
    """Open a backup: to be read, or as `staged`, which begins with what it holds and replaces it.

    Without ciphers those of the environment are used.
    """
    from limpet.backends.sqlite import staging
    from limpet.backends.sqlite.storage import SqliteStorage
    from limpet.engine import open_engine

    given: dict[str, Any] = {"ciphers": copy(ciphers or _ciphers()), "synchronous": "normal"}
    with _ours():
        if staged:
            staging.begin(staged, path)
        else:
            given["mode"] = "ro"
        engine = open_engine(SqliteStorage, staged or path, clock=CLOCK, draw=draw, **given)
        with store_over(engine) as store:
            yield store
        if staged:
            staging.end(staged, path)


def file_of(url: str | None = None) -> str | None:
    """Return the path that a URL names, None for an engine without one.

    Opens nothing; the path need not exist.
    """
    scheme, address, _ = _read_url(url)
    return None if scheme.path is None else scheme.path(address)


def keys_file_of(url: str | None = None) -> str | None:
    """Return the path of the file with the keys of a store, None if none is given."""
    _, _, given = _read_url(url)
    return dict(given).get("keys_file") or os.environ.get("LIMPET_KEYS_FILE") or None


def scheme_of(url: str | None = None) -> str:
    """Return the scheme of a URL, in lower case; `file` for a plain path."""
    scheme, _, _ = _read_url(url)
    return _name_of(scheme)


def _name_of(scheme: "_Scheme") -> str:
    return next(name for name, each in _SCHEMES.items() if each is scheme)


def stores_here() -> list[str]:
    """Return the names of the stores of SQLite, `*.db`, in the current folder."""
    files = sorted(name for name in os.listdir() if name.endswith(".db"))
    if not files:
        return []
    from limpet.backends.sqlite.schema import is_store

    return [name for name in files if is_store(name)]


def schema_migrations(engine: str, schema: str = DEFAULT_SCHEMA) -> "list[Migration]":
    """Return the migrations of `sqlite` or `postgres`, in order, for the tables of a schema."""
    from limpet.backends.sql.transaction import migrations_of

    return migrations_of(engine, schema)


def random_token() -> str:
    """Return a token that nobody can guess."""
    return os.urandom(16).hex()


def environment(**more: str) -> dict[str, str]:
    """Return the environment of this process and `more`, for a child process."""
    return {**os.environ, **more}


def draw() -> Stamp:
    """Draw the time and the random bits of one write."""
    try:
        chance = _chances.pop()
    except IndexError:  # a call of the system takes as long as the rest of this
        many = os.urandom(18 * 64)
        _chances.extend([many[at : at + 18] for at in range(18, len(many), 18)])
        chance = many[:18]
    return _new(Stamp, (time.time_ns() // 1000, chance[:8].hex(), int.from_bytes(chance[8:])))


def _now_us() -> int:
    return time.time_ns() // 1000


_chances: list[bytes] = []
os.register_at_fork(after_in_child=_chances.clear)  # no two processes draw the same
_new = tuple.__new__  # the same as Stamp(…), without a call of Python code


def _tools(found: Mapping[str, Any]) -> Tools:
    return Tools(
        draw=draw,
        clock=CLOCK,
        state_bytes_max=found.get("state_bytes_max", limits.STATE_BYTES_MAX),
        workers=found.get("workers", 8),
        default=found.get("default"),
    )


def _ciphers(
    keys: KeyText | None = None, keys_file: str | None = None, allow_plaintext: bool = False
) -> Ciphers:
    """Return the ciphers of the keys that are given, of a file, or of the environment."""
    if keys is not None and keys_file is not None:
        raise InvalidInput("give keys or keys_file, not both")
    if keys is None and keys_file is None:
        keys = os.environ.get("LIMPET_KEYS") or None
        keys_file = os.environ.get("LIMPET_KEYS_FILE") or None
    if keys is None and keys_file is not None:
        keys = partial(_read_secret, os.path.abspath(keys_file), "keys")
    if keys is None:
        return NO_KEYS
    clock = time.monotonic
    return Keys(keys, random=os.urandom, monotonic=clock, allow_plaintext=allow_plaintext)


def _read_secret(path: str, what: str) -> str:
    from pathlib import Path

    try:
        return Path(path).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as cause:
        raise InvalidInput(f"the {what} cannot be read. path=`{path}`") from cause


def _opened(url: str | None, options: Mapping[str, Any]) -> Opened:
    scheme, address, given = _read_url(url)
    common, own = _split(_merged(given, options), COMMON)
    if any(name == "keys" for name, _ in given):
        raise InvalidInput("a URL does not hold keys: give keys= by name, or keys_file")
    found = checked(common, COMMON)
    observe = observer(found, _name_of(scheme), CLOCK)
    with _ours():
        ciphers = _ciphers(**_split(found, KEYS)[0])
        opener = scheme.opener(address, checked(own, scheme.options), ciphers)

    def engine() -> Backend:
        with _ours():
            return observe(opener())

    opened = Opened(engine, _tools(found), _shown(_url_or_default(url)))
    if not scheme.blocks:
        opened.open()
    return opened


@contextmanager
def _ours() -> Iterator[None]:
    """Raise Unavailable where the system refuses, as when too many files are open."""
    try:
        yield
    except Corrupt as error:
        raise explained(error) from error.__cause__
    except OSError as cause:
        raise Unavailable(f"the storage cannot be opened: {cause.strerror}") from cause


# URLs


def _read_url(url: str | None) -> tuple["_Scheme", str, list[tuple[str, str]]]:
    """Return the scheme of a URL, its address and the options in its query."""
    url = _url_or_default(url)
    if not isinstance(url, str):
        raise InvalidInput(f"the URL must be text. type=`{type(url).__name__}`")
    found = _SCHEME.match(url)
    if found is None:
        if url.endswith(_SQLITE_ENDS) and not url.startswith(("//", ":", "?")):
            return _SCHEMES["sqlite"], f"///{os.path.expanduser(url)}", []
        # A bare word may be a misspelt scheme, so a folder that does not exist needs a `/`.
        if ("/" in url or os.path.isdir(url)) and not url.startswith(("//", ":", "?")):
            return _SCHEMES["file"], os.path.expanduser(url), []
        advice = "write memory:, ./folder, file.db or sqlite:///file.db"
        raise InvalidInput(f"the URL has no scheme: {advice}. scheme=``")
    name = found[1].lower()
    scheme = _SCHEMES.get(name)
    if scheme is None:
        # The rest of the URL is not shown: it may hold a password.
        known = ", ".join(f"{name}:" for name in _SCHEMES)
        near = nearest(name, _SCHEMES, ":")
        raise InvalidInput(f"the URL's scheme is not known{near}. scheme=`{name}` known=`{known}`")
    # The path is everything up to the query, so that no `#` or `;` in it is lost.
    path, _, query = url[found.end() :].partition("?")
    try:
        address, given = _unescaped(path, query)
    except ValueError:
        raise InvalidInput("the URL holds an escape that is not UTF-8") from None
    if "\0" in address:
        raise InvalidInput("the URL holds NUL")
    if not scheme.shares_query:
        return scheme, address, given
    # The driver's own URL, in which only the options that we know are ours.
    ours = {*scheme.options, *COMMON}
    others = [each for each in given if each[0] not in ours]
    if others:
        from urllib.parse import quote, urlencode

        path += f"?{urlencode(others, quote_via=quote)}"
    return scheme, path, [each for each in given if each[0] in ours]


def _unescaped(path: str, query: str) -> tuple[str, list[tuple[str, str]]]:
    if "%" not in path and not query:
        return path, []  # without urllib, which takes some milliseconds to import
    from urllib.parse import parse_qsl, unquote

    return unquote(path, errors="strict"), parse_qsl(query, keep_blank_values=True, errors="strict")


def _url_or_default(url: str | None) -> str:
    return os.environ.get("LIMPET_URL") or DEFAULT_URL if url is None else url


def _shown(url: str) -> str:
    """Return a URL without its secrets: the password, and options that are named like one."""
    return _SECRET_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1***@", url))


def _merged(given: list[tuple[str, str]], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a URL together with those given by name."""
    merged: dict[str, Any] = dict(options)
    for name, value in given:
        if name in merged:
            raise InvalidInput(f"the option is given twice. option=`{name}`")
        merged[name] = value
    return merged


def _split(
    options: Mapping[str, Any], names: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into those of these names and the others."""
    return (
        {name: value for name, value in options.items() if name in names},
        {name: value for name, value in options.items() if name not in names},
    )


# Engines: each function checks an address and returns what opens the backend or the bucket.


def _open_memory(
    address: str, options: Mapping[str, Any], ciphers: Ciphers
) -> Callable[[], Backend]:
    from limpet.backends.memory import MemoryStorage
    from limpet.engine import Engine

    if address:
        raise InvalidInput("the URL of the memory engine is `memory:`, without a path")
    # Keys are ignored: nothing is stored that could be encrypted.
    return lambda: Engine(MemoryStorage(), clock=CLOCK, draw=draw)


def _open_sqlite(
    address: str, options: Mapping[str, Any], ciphers: Ciphers
) -> Callable[[], Backend]:
    from limpet.backends.sqlite.storage import SqliteStorage
    from limpet.engine import open_engine

    path, given = _sqlite_path(address), {"rolls": "background", "ciphers": ciphers, **options}
    return lambda: open_engine(SqliteStorage, path, clock=CLOCK, draw=draw, **given)


def _sqlite_path(address: str) -> str:
    path = address.removeprefix("///")
    if path == address or not path or path == ":memory:":
        raise InvalidInput("write sqlite:///relative.db or sqlite:////absolute.db, or memory:")
    # Absolute, so that a later change of directory does not lead to another file.
    return os.path.abspath(path)


def _open_postgres(
    address: str, options: Mapping[str, Any], ciphers: Ciphers
) -> Callable[[], Backend]:
    try:
        from limpet.backends.postgres.server import check_url
        from limpet.backends.postgres.storage import PostgresStorage
        from limpet.engine import open_engine
    except ImportError:
        raise Unsupported("PostgreSQL needs an extra: pip install 'limpet[postgres]'") from None
    if not address.startswith("//"):
        raise InvalidInput("write postgresql://user@host/database")
    url = check_url(f"postgresql:{address}")
    # With one connection a roll in a thread would keep the next save waiting.
    own = {"rolls": "inline" if options.get("connections") == 1 else "background", **options}
    return lambda: open_engine(PostgresStorage, url, clock=CLOCK, draw=draw, ciphers=ciphers, **own)


def _open_http(scheme: str) -> "_Opener":
    def opener(address: str, options: Mapping[str, Any], ciphers: Ciphers) -> Callable[[], Backend]:
        if ciphers.encrypts:
            raise Unsupported("a URL of HTTP takes no keys: give them to the server")
        try:
            from limpet.backends.http.backend import HttpBackend
            from limpet.backends.http.client import settings_of
        except ImportError:
            raise Unsupported("a URL of HTTP needs an extra: pip install 'limpet[http]'") from None
        tokens, others = _split(options, _TOKENS)
        settings = settings_of(scheme, address, token=_token(**tokens), **others)
        return lambda: HttpBackend(settings, clock=CLOCK, draw=draw)

    return opener


def _token(token: str | None = None, token_file: str | None = None) -> str | None:
    """Return the token that is given, that of a file, or that of the environment."""
    if token is not None and token_file is not None:
        raise InvalidInput("give token or token_file, not both")
    if token_file is not None:
        token = _read_secret(token_file, "token")
    return os.environ.get("LIMPET_TOKEN") or None if token is None else token


def _directory_bucket(address: str, options: Mapping[str, Any]) -> Callable[[], "Bucket"]:
    from limpet.backends.buckets.directory.bucket import DirectoryBucket

    path = _directory_path(address)
    return lambda: DirectoryBucket(
        path, token=lambda: draw().nonce, now=_now_us, clock=CLOCK, **options
    )


def _directory_path(address: str) -> str:
    path = address
    if address.startswith("//"):
        host, slash, rest = address[2:].partition("/")
        path = slash + rest if host in ("", "localhost") else ""
    if not path or "\0" in path:
        raise InvalidInput("write file:///absolute/folder, or a plain path")
    return os.path.abspath(path)


def _remote_bucket(scheme: str) -> "_BucketOpener":
    def opener(address: str, options: Mapping[str, Any]) -> Callable[[], "Bucket"]:
        from limpet.backends.buckets.s3.open import azure_bucket, gcs_bucket, s3_bucket

        factories: dict[str, Callable[..., Bucket]] = {
            "s3": partial(s3_bucket, environ=os.environ),
            "gs": gcs_bucket,
            "az": azure_bucket,
        }
        if not address.startswith("//"):
            raise InvalidInput(f"write {scheme}://bucket/prefix")
        name, _, prefix = address[2:].partition("/")
        if "@" in name:
            raise InvalidInput("a URL holds no keys: give access_key_id= and secret_access_key=")
        bucket = factories[scheme](name, prefix=prefix, clock=CLOCK, **options)  # sends nothing
        return lambda: bucket

    return opener


def _over(open_bucket: "_BucketOpener", *, compress: str) -> "_Opener":
    """Return the opener of the object engine over such buckets."""

    def opener(address: str, options: Mapping[str, Any], ciphers: Ciphers) -> Callable[[], Backend]:
        own, below = _split({"compress": compress, **options}, _OBJECTS)
        bucket = open_bucket(address, below)
        # With keys nobody reads it with a shell.
        own |= {"compress": ciphers.encrypts or own["compress"] == "zstd", "ciphers": ciphers}

        def opened() -> Backend:
            from limpet.backends.objects.storage import ObjectStorage
            from limpet.engine import open_engine
            from limpet.engine.rolling import OBJECTS

            given = {"tails": OBJECTS, "rolls": "background", "clock": CLOCK, **own}
            return open_engine(partial(ObjectStorage, draw=draw), bucket(), draw=draw, **given)

        return opened

    return opener


_BucketOpener: TypeAlias = Callable[[str, Mapping[str, Any]], Callable[[], "Bucket"]]
_Opener: TypeAlias = Callable[[str, Mapping[str, Any], Ciphers], Callable[[], Backend]]


class _Scheme(NamedTuple):
    opener: _Opener
    options: tuple[str, ...]
    blocks: bool = True  # False: it is opened at once, also for the async API
    path: Callable[[str], str] | None = None  # from an address to a file or folder
    shares_query: bool = False  # with options of the driver
    bucket: _BucketOpener | None = None  # what the object engine is over


_OBJECTS = ("poll_s", "compress")
_REMOTE = (*_OBJECTS, "timeout_s", "retry_s", "parallel")
_POSTGRES = _Scheme(
    _open_postgres,
    (
        *("schema", "setup", "connections", "lock_wait_s", "retry_s", "pooler", "advisory_locks"),
        *("notify", "poll_s", "cache_bytes_max"),
    ),
    shares_query=True,
)
_TOKENS = ("token", "token_file")
_HTTP = (*_TOKENS, "timeout_s", "retry_s", "connections", "ca_file")
_CREDENTIALS = ("access_key_id", "secret_access_key", "session_token", "profile")
_S3, _GS, _AZ = map(_remote_bucket, ("s3", "gs", "az"))
_SCHEMES: Mapping[str, _Scheme] = {
    "memory": _Scheme(_open_memory, (), blocks=False),
    "sqlite": _Scheme(
        _open_sqlite,
        ("lock_wait_s", "synchronous", "cache_bytes_max", "mode"),
        path=_sqlite_path,
    ),
    "file": _Scheme(
        _over(_directory_bucket, compress="none"),
        (*_OBJECTS, "sync", "lock_wait_s"),
        path=_directory_path,
        bucket=_directory_bucket,
    ),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "http": _Scheme(_open_http("http"), _HTTP),
    "https": _Scheme(_open_http("https"), _HTTP),
    "s3": _Scheme(
        _over(_S3, compress="zstd"),
        (*_REMOTE, *_CREDENTIALS, "endpoint_url", "region", "path_style"),
        bucket=_S3,
    ),
    "gs": _Scheme(_over(_GS, compress="zstd"), _REMOTE, bucket=_GS),
    "az": _Scheme(_over(_AZ, compress="zstd"), (*_REMOTE, "account"), bucket=_AZ),
}
