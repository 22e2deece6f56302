"""The profile files of AWS.

obstore reads the environment and the roles of containers and machines, but no files. A profile
holds keys, which are read here, or a way to get keys (single sign-on, a role, a command) that needs
AWS's own tools: that is refused by name, instead of silently using another identity.
"""

import configparser
import os.path
from collections.abc import Mapping
from typing import NamedTuple

from limpet.errors import InvalidInput, Unsupported

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
