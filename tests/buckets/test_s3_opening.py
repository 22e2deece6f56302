"""Where a bucket in an object store is, and by whose keys it is asked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limpet.backends.buckets.s3 import open
from limpet.backends.buckets.s3.bucket import before, start_of
from limpet.backends.buckets.s3.open import (
    Keys,
    azure_bucket,
    gcs_bucket,
    normal_prefix,
    read_profile,
    s3_bucket,
)
from limpet.errors import InvalidInput, Unavailable, Unsupported
from limpet.model import ANY
from limpet.opening import CLOCK
from tests.cases import for_each
from tests.servers.service import Service, free_port
from tests.servers.stub import Stub


def make(bucket: str = "b", **options: Any) -> open.ObjectStoreBucket:
    return s3_bucket(bucket, **{"clock": CLOCK, "environ": {"HOME": "/nonexistent"}, **options})


# Prefixes and names


@for_each(
    "given, normal",
    [("", ""), ("/", ""), ("a", "a/"), ("/a/b/", "a/b/"), ("a//b///c", "a/b/c/"), ("a b", "a b/")],
)
def test_prefixes_are_made_normal(given: str, normal: str) -> None:
    assert normal_prefix(given) == normal
    assert f"prefix=`{normal}`" in repr(make(prefix=given))


@for_each("prefix", ["..", "a/../b", "./a", "a/.", "a\nb", "a\\b"])
def test_prefixes_that_lead_elsewhere_are_refused(prefix: str) -> None:
    with pytest.raises(InvalidInput):
        make(prefix=prefix)


@for_each("name", ["", "a/b", "a\nb"])
def test_odd_names_of_buckets_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        make(name)
    with pytest.raises(InvalidInput):
        gcs_bucket(name, clock=CLOCK)
    with pytest.raises(InvalidInput):
        azure_bucket(name, clock=CLOCK)


@for_each("url", ["localhost:9000", "ftp://x", "http://", "s3cr3t"])
def test_odd_endpoints_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidInput, match="endpoint_url") as caught:
        make(endpoint_url=url)
    assert "s3cr3t" not in str(caught.value)


def test_half_a_pair_of_keys_is_refused() -> None:
    for half in ("access_key_id", "secret_access_key"):
        with pytest.raises(InvalidInput):
            make(**{half: "s3cr3t"})


def test_the_other_clouds_open_without_a_request() -> None:
    assert "prefix=`p/`" in repr(gcs_bucket("b", prefix="/p", clock=CLOCK))
    assert "prefix=`p/`" in repr(azure_bucket("c", account="a", prefix="p/", clock=CLOCK))


# Where requests go


def test_the_bucket_is_in_the_path_or_in_the_host() -> None:
    assert open.address_of("http://127.0.0.1:9000/", None) == "http://127.0.0.1:9000"
    assert open.address_of("https://s3.example", "b") == "https://b.s3.example"


def test_an_endpoint_may_come_from_the_environment() -> None:
    with Stub(ignores=()) as stub:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            keys = {"access_key_id": "a", "secret_access_key": "s"}
            environ = {"HOME": "/nonexistent", name: stub.service.url}
            bucket = make(stub.service.name, environ=environ, **keys)
            bucket.put("k", name.encode(), expect=ANY)
            assert stub.objects["k"] == name.encode()
            bucket.close()


def test_no_credentials_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a machine's role is asked for, and none answers."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    bucket = make(endpoint_url="http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="no credentials were found") as caught:
        bucket.put("k", b"", expect=None)
    assert caught.value.outcome_known
    bucket.close()


def test_given_keys_are_not_mixed_with_the_environment(
    seaweedfs: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another-key")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")  # nor can that be turned off
    bucket = seaweedfs.open("mixed")
    bucket.delete(["k"])
    bucket.put("k", b"1", expect=None)
    bucket.close()


# Profiles

CREDENTIALS = """
[default]
aws_access_key_id = default-key
aws_secret_access_key = default-s3cr3t

[work]
aws_access_key_id = work-key
aws_secret_access_key = work-s3cr3t
aws_session_token = work-token
"""
CONFIG = """
[default]
region = eu-west-1
[profile work]
region = eu-north-1
endpoint_url = https://s3.work.example
[profile sso]
sso_session = corp
region = eu-west-3
[sso-session corp]
sso_region = eu-west-1
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(CREDENTIALS)
    (folder / "config").write_text(CONFIG)
    return {"HOME": str(tmp_path)}


def test_profiles_are_read(home: dict[str, str]) -> None:
    default = read_profile(home, None)
    assert default == (Keys("default-key", "default-s3cr3t"), "eu-west-1", None)
    work = (
        Keys("work-key", "work-s3cr3t", "work-token"),
        "eu-north-1",
        "https://s3.work.example",
    )
    assert read_profile(home, "work") == work
    assert read_profile({**home, "AWS_PROFILE": "work"}, None) == work
    assert read_profile({**home, "AWS_PROFILE": "sso"}, "work") == work
    assert "s3cr3t" not in repr(default)
    moved = {
        "HOME": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": f"{home['HOME']}/.aws/credentials",
        "AWS_CONFIG_FILE": f"{home['HOME']}/.aws/config",
    }
    assert read_profile(moved, "work") == work


def test_keys_of_the_environment_come_before_those_of_a_file(home: dict[str, str]) -> None:
    """But not before those of a profile that the caller names."""
    keyed = {**home, "AWS_ACCESS_KEY_ID": "env-key"}
    assert read_profile(keyed, None) == (None, "eu-west-1", None)
    assert read_profile({**keyed, "AWS_PROFILE": "work"}, None).keys is None
    assert read_profile(keyed, "work").keys == ("work-key", "work-s3cr3t", "work-token")


def test_a_profile_signs_requests(home: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def open_client(name: str, *, credential_provider: Callable[[], Any], **_: Any) -> None:
        signed = credential_provider()
        raise InvalidInput(f"{signed['access_key_id']} {signed['token']}")

    monkeypatch.setattr("obstore.store.S3Store", open_client)
    for extra, profile in (({}, "work"), ({"AWS_PROFILE": "work"}, None)):
        with pytest.raises(InvalidInput, match="work-key work-token"):
            make(environ={**home, **extra}, profile=profile).get(["k"])


def test_profiles_that_cannot_be_used(home: dict[str, str]) -> None:
    assert read_profile({"HOME": "/nonexistent"}, None) == (None, None, None)
    for environ, name in ((home, "none"), ({**home, "AWS_PROFILE": "none"}, None)):
        with pytest.raises(InvalidInput, match="`none`"):
            make(environ=environ, profile=name)
    with pytest.raises(Unsupported, match=r"`sso`.*`sso_session`"):
        make(environ=home, profile="sso")
    Path(home["HOME"], ".aws", "credentials").write_text("s3cr3t without a section")
    with pytest.raises(InvalidInput, match="cannot be read") as caught:
        make(environ=home)
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is None


# Offsets


@for_each("text", ["a", "s/x", "s/x-", "s/x0", "s/.", "s/x!", "!", "s/!", "s/é", "\ue000"])
def test_what_comes_before_a_text(text: str) -> None:
    """In both orders, and it is a path in the same folder."""
    offset = before(text)
    for key in (text, text + "a", text + "/a", text + "-"):
        assert offset < key
        assert offset.replace("/", "\0") < key.replace("/", "\0")
    assert not offset.endswith("/")
    folder = text[: text.rfind("/") + 1]
    assert offset == "" or offset.startswith(folder)
    offset.encode()


def test_where_a_listing_begins() -> None:
    assert start_of("", "") == ""
    assert start_of("s/", "") == ""
    assert start_of("s/", "s/") == ""
    assert start_of("s/", "s/x/~") == "s/x/~"
    assert start_of("s/", "s/x/") == "s/x/ "
    assert start_of("s/x", "") == start_of("s/x", "s/a") == start_of("s/x", "r/z") == before("s/x")
    assert start_of("s/x", "s/y") is None
    assert start_of("s/", "t") is None
    # By bytes `s/x/…` stands behind `s/x-1`; in a tree before it. The service decides.
    assert start_of("s/x-1", "s/x/foo") == "s/x/~"
