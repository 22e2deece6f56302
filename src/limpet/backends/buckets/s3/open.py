"""Opening a bucket in an object store: S3 and compatible services, Google, Azure.

Opening makes no request. What is not given is taken from where the service's own tools look:
environment variables, which obstore reads too, AWS profiles, the roles of a container or a machine.
"""

import configparser
import os.path
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Required, TypedDict, Unpack
from urllib.parse import urlsplit

from limpet.backends.buckets.s3.bucket import ObjectStoreBucket
from limpet.errors import InvalidInput, Unsupported
from limpet.protocol import Clock

if TYPE_CHECKING:
    from obstore.store import ObjectStore, S3Config, S3Credential

__all__ = [
    "ObjectStoreBucket",
    "azure_bucket",
    "client_bucket",
    "gcs_bucket",
    "normal_prefix",
    "s3_bucket",
]

_TIMEOUT_S = 30.0
_CONNECT_S_MAX = 5.0
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


class Common(TypedDict, total=False):
    """What every service takes. A request takes at most `retry_s` and one `timeout_s`."""

    prefix: str
    timeout_s: float
    retry_s: float
    parallel: int
    clock: Required[Clock]


def s3_bucket(
    bucket: str,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    profile: str | None = None,
    path_style: bool | None = None,
    environ: Mapping[str, str],
    **common: Unpack[Common],
) -> ObjectStoreBucket:
    """Open a bucket of S3, or of a compatible service at an `endpoint_url`.

    `path_style` puts the bucket's name into the path instead of the host. It is the default with an
    `endpoint_url`, and for a name with dots, which no certificate covers.

    Raises:
        InvalidInput: a value is not acceptable, or the profile does not exist.
        Unsupported: obstore is not installed, or the profile needs AWS's own tools.
    """
    for text in (region, access_key_id, secret_access_key, session_token):
        # They become part of a header, where the client fails on anything else.
        if text is not None and not re.fullmatch(r"[!-~]+", text):
            raise InvalidInput("a region or a key has a character that is not allowed")
    if (access_key_id is None) != (secret_access_key is None):
        raise InvalidInput("give both access_key_id and secret_access_key, or neither")
    found = read_profile(environ, profile)
    keys = found.keys
    if access_key_id is not None and secret_access_key is not None:
        keys = Keys(access_key_id, secret_access_key, session_token)
    url = endpoint_url or _first_of(environ, _ENDPOINT_VARIABLES) or found.endpoint_url
    region = region or _first_of(environ, _REGION_VARIABLES) or found.region or "us-east-1"
    # Otherwise an environment variable could turn conditional writes off.
    config: S3Config = {"region": region, "conditional_put": "etag"}
    in_path = path_style if path_style is not None else bool(url) or "." in bucket
    config["virtual_hosted_style_request"] = not in_path
    if url:
        config["endpoint"] = address_of(url, None if in_path else bucket)
    options: dict[str, Any] = {"config": config}
    if keys is not None:
        # By a function: plain settings would be mixed with the environment's.
        signed: S3Credential = {
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key,
            "token": keys.session_token,
            "expires_at": None,
        }
        options["credential_provider"] = lambda: signed
    allow_http = url is not None and url.startswith("http://")
    return _opened("S3Store", bucket, options, allow_http=allow_http, **common)


def gcs_bucket(bucket: str, **common: Unpack[Common]) -> ObjectStoreBucket:
    """Open a bucket of Google Cloud Storage, with the credentials that Google's tools find."""
    # Google compares the generation of an object, not its ETag.
    return _opened("GCSStore", bucket, {}, version="version", **common)


def azure_bucket(
    container: str, *, account: str | None = None, **common: Unpack[Common]
) -> ObjectStoreBucket:
    """Open a container of Azure Blob Storage, with the credentials that Azure's tools find.

    Azure lists only from the beginning of a folder, so later pages cost more.
    """
    options = {} if account is None else {"config": {"account_name": account}}
    return _opened("AzureStore", container, options, seeks=False, **common)


def client_bucket(
    client: "ObjectStore", *, name: str, prefix: str = "", clock: Clock
) -> ObjectStoreBucket:
    """Return a bucket over an obstore store of the caller; `name` is for messages."""
    _require_obstore()
    if not all(hasattr(client, verb) for verb in ("get", "put", "delete", "list")):
        raise InvalidInput(f"the client is not an obstore store. type=`{type(client).__name__}`")
    return ObjectStoreBucket(lambda: client, name=name, prefix=normal_prefix(prefix), clock=clock)


def _opened(
    service: str,
    name: str,
    options: Mapping[str, Any],
    *,
    allow_http: bool = False,
    prefix: str = "",
    timeout_s: float = _TIMEOUT_S,
    **more: Any,
) -> ObjectStoreBucket:
    """Return a bucket over one of obstore's stores, which the first request opens."""
    _require_obstore()
    if not re.fullmatch(r"[A-Za-z0-9._$-]+", name):
        raise InvalidInput(f"the name of the bucket is not valid. bucket=`{name!a}`")
    client_options = {
        "allow_http": allow_http,
        "timeout": timedelta(seconds=timeout_s),
        "connect_timeout": timedelta(seconds=min(timeout_s, _CONNECT_S_MAX)),
    }

    def open_store() -> "ObjectStore":
        from obstore import store

        made: ObjectStore = getattr(store, service)(
            name, client_options=client_options, retry_config={"max_retries": 0}, **options
        )
        return made

    return ObjectStoreBucket(open_store, name=name, prefix=normal_prefix(prefix), **more)


def normal_prefix(prefix: str) -> str:
    """Return a prefix without empty names and with one `/` at its end; "" for none."""
    names = [name for name in prefix.split("/") if name]
    for name in names:
        if name in (".", "..") or not name.isprintable() or "\\" in name:
            raise InvalidInput(f"a name in the prefix is not allowed. name=`{name!a}`")
    return "".join(f"{name}/" for name in names)


def _require_obstore() -> None:
    try:
        import obstore  # noqa: F401
    except ImportError:
        raise Unsupported(
            "object stores need the package obstore: pip install 'limpet[s3]'"
        ) from None


def _first_of(environ: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


def address_of(url: str, bucket: str | None) -> str:
    """Return the URL to send requests to, with the bucket in the host if given."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("http", "https") or not rest.strip("/"):
        # The URL is not shown: it may hold a password.
        raise InvalidInput("the endpoint_url must begin with http:// or https://")
    try:
        parts = urlsplit(url)
        named, _ = parts.hostname, parts.port
    except ValueError:
        named = None
    if not named or not re.fullmatch(r"[!-~]+", rest):
        raise InvalidInput("the endpoint_url is not valid: check the host and the port")
    if bucket is not None and (":" in named or re.fullmatch(r"[0-9.]+", named)):
        raise InvalidInput("the endpoint_url has an IP address: set path_style=True")
    host = rest.rstrip("/")
    return f"{scheme}://{host}" if bucket is None else f"{scheme}://{bucket}.{host}"


# The profile files of AWS, which obstore does not read. A profile holds keys, or a way to get keys
# (single sign-on, a role, a command) that needs AWS's own tools: that is refused by name, instead
# of silently using another identity.

_NEEDS_TOOLS = (
    "sso_session",
    "sso_start_url",
    "role_arn",
    "credential_process",
    "web_identity_token_file",
)


class Keys(NamedTuple):
    """What signs requests. Its `repr` hides them from messages and logs."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None

    def __repr__(self) -> str:
        return "Keys(…)"


class Profile(NamedTuple):
    keys: Keys | None = None
    region: str | None = None
    endpoint_url: str | None = None


def read_profile(environ: Mapping[str, str], name: str | None) -> Profile:
    """Read a profile: the given one, `$AWS_PROFILE`, or `default`.

    Keys in the environment win over those of a profile that the caller did not name.

    Raises:
        InvalidInput: the profile does not exist, or a file cannot be read.
        Unsupported: it has no keys, but a way to get them that needs AWS's tools.
    """
    asked = name or environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE")
    wanted = asked or "default"
    stored = _section(environ, "AWS_SHARED_CREDENTIALS_FILE", "credentials", wanted)
    section = wanted if wanted == "default" else f"profile {wanted}"
    settings = _section(environ, "AWS_CONFIG_FILE", "config", section)
    if asked and stored is None and settings is None:
        raise InvalidInput(f"there is no such AWS profile. profile=`{asked}`")
    merged = {**(settings or {}), **(stored or {})}
    keys = None
    if name or "AWS_ACCESS_KEY_ID" not in environ:
        keys = _keys(merged)
        tools = [option for option in _NEEDS_TOOLS if option in merged]
        if asked and keys is None and tools:
            raise Unsupported(
                "the AWS profile has no keys of its own: export some to the environment, for"
                f" instance by `aws configure export-credentials`. profile=`{asked}`"
                f" setting=`{tools[0]}`"
            )
    return Profile(keys, merged.get("region"), merged.get("endpoint_url"))


def _keys(section: Mapping[str, str]) -> Keys | None:
    access, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
    return Keys(access, secret, section.get("aws_session_token")) if access and secret else None


def _section(
    environ: Mapping[str, str], variable: str, file: str, section: str
) -> dict[str, str] | None:
    home = environ.get("HOME") or os.path.expanduser("~")
    path = environ.get(variable) or os.path.join(home, ".aws", file)
    if path.startswith("~"):
        path = home + path[1:]
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parser.read(path, encoding="utf-8")
    except (OSError, UnicodeError, configparser.Error):
        # The parser's message quotes the line, which may be a key.
        raise InvalidInput(f"the AWS settings cannot be read. path=`{path}`") from None
    return dict(parser[section]) if parser.has_section(section) else None
