"""Who may see the pages: tokens in a cookie, origins of forms, hosts, headers of answers."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import limpet
from limpet.inspector.page import asset
from limpet.inspector.pages import PAGES
from limpet.server.access import TICKET_S, Access, Tokens, cookie_name
from limpet.server.app import App
from tests.server import asgi
from tests.server.asgi import ask, page_cookie

TOKEN, READER = "a-token-0123456789", "r-token-0123456789"
ODD = "%;=\"',!~()[]{}-0123"  # any visible character may be in a token
FORM = "application/x-www-form-urlencoded"
HOST = "localhost:7420"


def tokens() -> Access:
    return Access(Tokens(None, f"{TOKEN}\n{READER} read\n{ODD}"))


answers = partial(asgi.answers, pages=PAGES)


def log_in(token: str, **headers: str) -> tuple[str, str, Any, dict[str, str]]:
    given = {"content_type": FORM, "origin": f"http://{HOST}", **headers}
    return ("POST", "/ui/login", {"token": token}, given)


def test_the_cookie_is_no_token_and_good_for_the_pages_alone() -> None:
    """Programs on other ports of the host receive it too: browsers do not tell ports apart."""
    for token in [TOKEN, READER, ODD]:
        by_form, by_address = answers(
            tokens(), log_in(f" {token} "), ("GET", "/ui/login", {"token": token}, {})
        )
        for answer in (by_form, by_address):
            assert (answer.status, answer.headers["location"]) == (303, "/ui"), token
            cookie, *about = answer.headers["set-cookie"].split("; ")
            assert about == ["Path=/ui", "HttpOnly", "SameSite=Strict"], token
            name, _, ticket = cookie.partition("=")
            assert name == "limpet-7420", token
            assert token not in unquote(ticket), token
            as_token = {"authorization": f"Bearer {ticket}"}
            page, session, *refused = answers(
                tokens(),
                ("GET", "/ui", {}, {"cookie": f"other=1; {cookie}"}),
                ("GET", "/ui/export", {"session_id": "s"}, {"cookie": cookie}),
                ("GET", "/v1/sessions", {}, {"cookie": cookie}),
                ("GET", "/metrics", {}, {"cookie": cookie}),
                ("GET", "/v1/sessions", {}, as_token),
                ("GET", "/ui", {}, as_token),
                ("GET", "/ui/login", {"token": ticket}, {}),
                ("GET", "/ui", {}, {"cookie": cookie, "host": "localhost:9999"}),
                ("GET", "/ui", {}, {"cookie": f"{name}={token}"}),
            )
            assert [page.status, session.status] == [200, 200], token
            assert [each.status for each in refused] == [401] * len(refused), token


def pages_with(access: Access, *cookies: str) -> list[int]:
    return [
        each.status
        for each in answers(access, *(("GET", "/ui", {}, {"cookie": each}) for each in cookies))
    ]


def test_a_ticket_ends_after_a_while_and_cannot_be_changed() -> None:
    cookie = page_cookie(tokens(), TOKEN)
    name, id, until, signature = re.split("[=.]", cookie)
    other = "0" if signature[-1] != "0" else "1"
    wrong = [
        f"{name}={id}.{int(until) + 1}.{signature}",
        f"{name}={id}.{until}.{signature[:-1]}{other}",
        f"{name}={re.split('[=.]', page_cookie(tokens(), READER))[1]}.{until}.{signature}",
        f"{name}={id}.{until}.",
        f"{name}={id}.{until}",
        f"{name}={id}.é.{signature}",
        f"{cookie}0",
        page_cookie(tokens(), TOKEN, age_s=TICKET_S),
        page_cookie(Access(Tokens(None, TOKEN.upper())), TOKEN.upper()),
    ]
    young = page_cookie(tokens(), TOKEN, age_s=TICKET_S - 60)
    assert pages_with(tokens(), cookie, young, *wrong) == [200, 200] + [401] * len(wrong)


def test_a_ticket_has_the_rights_of_its_token_and_goes_with_it(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    known = Tokens(file)
    cookie = page_cookie(Access(known), TOKEN)

    def statuses() -> list[int]:
        found = []
        for path in ("/ui/fork", "/ui/session"):
            found += answers(Access(known), ("GET", path, {"session_id": "s"}, {"cookie": cookie}))
        return [each.status for each in found]

    assert statuses() == [200, 200]
    # It is still good after a restart, and on another server with the same tokens.
    assert pages_with(tokens(), cookie) == [200]
    for line, expected in (
        (f"{TOKEN} read", [403, 200]),
        (f"{TOKEN} write other/", [403, 403]),
        (READER, [401, 401]),
    ):
        file.write_text(line)
        known.refresh(anyway=True)
        assert statuses() == expected


def test_a_wrong_token() -> None:
    missing, wrong, odd, empty, address, cookie = answers(
        tokens(),
        ("GET", "/ui", {}, {}),
        log_in("wrong-token-0123456789"),
        log_in("wröng-\x00token"),
        log_in(""),
        ("GET", "/ui/login", {"token": TOKEN.upper()}, {}),
        ("GET", "/ui", {}, {"cookie": "limpet-7420=wrong-token-0123456789"}),
    )
    for answer in (missing, wrong, odd, empty, address, cookie):
        assert answer.status == 401
        assert "set-cookie" not in answer.headers
        assert b'name="token"' in answer.body
        assert b"wrong-token" not in answer.body
        assert b"memory:" not in answer.body
    assert b"not known here" not in missing.body
    # All of them look the same.
    assert wrong.body == odd.body == empty.body == address.body
    assert b"not known here" in wrong.body
    assert answers(tokens(), ("POST", "/ui/login", {}, log_in("x")[3]))[0].status == 400


def test_a_cookie_goes_over_tls_only_where_there_is_tls() -> None:
    behind = {"host": "store.example", "x_forwarded_proto": "https"}
    by_form, by_address, refused = answers(
        tokens(),
        log_in(TOKEN, **behind, origin="https://store.example"),
        ("GET", "/ui/login", {"token": TOKEN}, behind),
        log_in(TOKEN, host="store.example", origin="https://store.example"),
    )
    for answer in (by_form, by_address):
        cookie, *about = answer.headers["set-cookie"].split("; ")
        assert cookie.startswith("__Host-limpet=")
        assert about == ["Path=/", "HttpOnly", "SameSite=Strict", "Secure"]
        with_tls, without = answers(
            tokens(),
            ("GET", "/ui", {}, {"cookie": cookie, **behind}),
            ("GET", "/ui", {}, {"cookie": cookie, "host": "store.example"}),
        )
        assert [with_tls.status, without.status] == [200, 401]
    assert refused.status == 403
    assert b"X-Forwarded-Proto" in refused.body


def test_log_out() -> None:
    cookie = page_cookie(tokens(), TOKEN)
    headers = {"content_type": FORM, "origin": f"http://{HOST}", "cookie": cookie}
    page, out = answers(tokens(), ("GET", "/ui", {}, headers), ("POST", "/ui/logout", {}, headers))
    assert b'action="/ui/logout"' in page.body
    assert out.status == 303
    assert out.headers["set-cookie"].startswith("limpet-7420=;")
    assert out.headers["set-cookie"].endswith("; Max-Age=0")
    (page,) = answers(Access(), ("GET", "/ui", {}, headers))
    assert b"/ui/logout" not in page.body


def test_where_a_log_in_leads() -> None:
    for referer, expected in [
        (f"http://{HOST}/ui/session?session_id=a%2Fb", "/ui/session?session_id=a%2Fb"),
        (f"http://{HOST}/ui", "/ui"),
        ("http://evil.example/ui/session", "/ui"),
        ("http://evil.example", "/ui"),
        (f"http://{HOST}@evil.example/ui/x", "/ui"),
        (f"http://{HOST}//evil.example/ui/", "/ui"),
        (f"http://{HOST}/uix/../evil", "/ui"),
        (f"http://{HOST}/v1/sessions", "/ui"),
        (f"http://{HOST}/ui/login?token=x", "/ui"),
        (f"http://{HOST}/ui/logout", "/ui"),
        ("//evil.example/ui/x", "/ui"),
        ("javascript:alert(1)//ui/", "/ui"),
        ("http://[", "/ui"),
        ("", "/ui"),
    ]:
        (answer,) = answers(tokens(), log_in(TOKEN, referer=referer))
        assert (answer.status, answer.headers["location"]) == (303, expected), (referer, expected)


def test_forms_of_other_origins() -> None:
    for origin in [
        "http://evil.example",
        "null",
        "",
        f"http://{HOST}.evil.example",
        "http://localhost",
        f"https://{HOST}",
    ]:
        for access in (
            Access(),
            tokens(),
            Access(tokens().tokens, origins=["http://evil.example"]),
        ):
            (answer,) = answers(access, log_in(TOKEN, origin=origin))
            assert answer.status == 403, origin
            assert "set-cookie" not in answer.headers, origin
        without = log_in(TOKEN)
        del without[3]["origin"]
        assert answers(tokens(), without)[0].status == 403, origin
        api = {"content_type": "application/json", "origin": f"http://{HOST}"}
        assert answers(tokens(), ("POST", "/ui/login", {"token": TOKEN}, api))[0].status == 415, (
            origin
        )


def test_names_that_a_page_of_others_may_have() -> None:
    hosts = ("evil.example", "evil.example:7420", "127.0.0.1.evil.example", "")
    for path in ("/", "/ui", "/ui/search", "/ui/login", "/ui/static/base.js", "/ui/nothing"):
        found = answers(Access(), *(("GET", path, {}, {"host": host}) for host in hosts))
        assert [each.status for each in found] == [403] * len(hosts)
        assert all(b"S3CRET" not in each.body for each in found)


def test_headers_of_every_page() -> None:
    paths = ("/", "/ui", "/ui/search", "/ui/login", "/ui/nothing", "/ui/fork")
    found = answers(Access(), *(("GET", path, {}, {}) for path in paths))
    found += answers(tokens(), *(("GET", path, {}, {}) for path in paths))
    for answer in found:
        assert answer.headers["content-type"].startswith("text/html")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"


def test_only_the_current_version_of_a_file_is_kept() -> None:
    path, _, version = asset("base.js").partition("?v=")
    asked: tuple[dict[str, str], ...] = ({"v": version}, {"v": "older"}, {})
    found = answers(Access(), *(("GET", path, query, {}) for query in asked))
    kept = [each.headers["cache-control"] for each in found]
    assert kept == ["max-age=31536000, immutable", "no-cache", "no-cache"]


async def test_without_pages_there_are_none() -> None:
    async with limpet.open_async("memory:") as store:
        for path in ("/", "/ui", "/ui/search"):
            answer = await ask(App(store, Access()), "GET", path)
            assert (answer.status, answer.json["status"]) == (404, 404)


def test_what_is_not_there_is_a_page() -> None:
    missing, method, api = answers(
        Access(),
        ("GET", "/ui/nothing", {}, {}),
        ("POST", "/ui/search", {}, {"content_type": FORM, "origin": f"http://{HOST}"}),
        ("GET", "/v1/nothing", {}, {}),
    )
    assert (missing.status, method.status, api.status) == (404, 405, 404)
    assert b"There is no such page" in missing.body
    assert method.headers["allow"] == "GET"
    assert json.loads(api.body)["status"] == 404


def test_the_name_of_the_cookie() -> None:
    for origin, name in [
        ("http://localhost:7420", "limpet-7420"),
        ("https://localhost:7420", "__Host-limpet-7420"),
        ("https://store.example", "__Host-limpet"),
        ("http://[::1]", "limpet"),
        ("http://a;b=c", "limpet"),
        ("http://", "limpet"),
    ]:
        assert cookie_name(origin) == name, (origin, name)
