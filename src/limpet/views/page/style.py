"""The CSS of a page, which is embedded in it."""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: light-dark(#faf9f6, #15181b); --card: light-dark(#ffffff, #1c2024);
  --ink: light-dark(#22262b, #e4e4df); --quiet: light-dark(#5f6770, #99a2aa);
  --line: light-dark(#e3e1da, #2e343a); --accent: light-dark(#17695e, #6fcabb);
  --user: light-dark(#e3efec, #1d3532); --user-line: light-dark(#cde2dd, #29504a);
  --code: light-dark(#f4f2ec, #14171a); --good: light-dark(#2b713e, #7ccb8f);
  --bad: light-dark(#b3382c, #f08f83); --open: light-dark(#825908, #e0b45c);
  --bad-soft: light-dark(#fbecea, #33201e);
  --l0: light-dark(#17695e, #6fcabb); --l1: light-dark(#6a55a8, #b3a1ec);
  --l2: light-dark(#b0682a, #e5a86f); --l3: light-dark(#2f6fab, #82b8ea);
  --l4: light-dark(#a8457a, #e795c0); --l5: light-dark(#6c7a1f, #bac96a);
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
  --mono: "SF Mono", SFMono-Regular, "Cascadia Mono", Menlo, Consolas, monospace;
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 4rem 2rem 6rem; max-width: 58rem;
  background: var(--paper); color: var(--ink); font: 16px/1.6 var(--sans);
  overflow-wrap: anywhere;
}
h1, h2, h3, h4, p, dl, figure, ul, ol { margin: 0; padding: 0; }
h1 { font-size: 2.25rem; line-height: 1.2; letter-spacing: -0.02em; font-weight: 650; }
h2 { font-size: 1.6rem; line-height: 1.25; letter-spacing: -0.015em; font-weight: 650; }
h3 { margin: 3rem 0 1.1rem; font-size: 1.1rem; font-weight: 650; }
h3 small { margin-left: .4rem; color: var(--quiet); font-size: .85rem; font-weight: 400; }
h4 { margin: 0 0 .4rem; font-size: .9rem; font-weight: 600; }
.label { margin: .9rem 0 .35rem; color: var(--quiet); font-size: .78rem; font-weight: 600; }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: .18em; }
code, pre { font-family: var(--mono); font-size: .85em; }
code { font-variant-ligatures: none; }
pre code { font-size: inherit; }
.quiet { color: var(--quiet); }
.kicker {
  margin-bottom: .35rem; color: var(--accent); font-size: .8rem; font-weight: 650;
  letter-spacing: .09em; text-transform: uppercase;
}
.kicker code { margin-left: .3em; letter-spacing: 0; text-transform: none; }
.facts { display: flex; flex-wrap: wrap; gap: .9rem 2.2rem; margin-top: 1.3rem; }
.facts dt { color: var(--quiet); font-size: .78rem; }
.facts dd { margin: 0; font-size: .93rem; font-variant-numeric: tabular-nums; }
nav { margin-top: 2.5rem; border-block: 1px solid var(--line); padding: .6rem 0; }
nav ul { list-style: none; }
nav li { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: baseline; padding: .3rem 0; }
nav a { flex: 1 1 12rem; font-weight: 600; text-decoration: none; }
nav a:hover { text-decoration: underline; }
nav time { color: var(--quiet); font-size: .85rem; font-variant-numeric: tabular-nums; }
.scope { margin-top: 3.5rem; padding-top: 3rem; border-top: 1px solid var(--line); }
nav + main > .scope:first-child { border-top: 0; padding-top: 0; }
.status {
  display: inline-block; padding: 0 .55em; border: 1px solid currentColor; border-radius: 1em;
  font-size: .8rem; line-height: 1.5; white-space: nowrap; max-width: 100%; overflow: hidden;
  text-overflow: ellipsis; vertical-align: middle;
}
.good { color: var(--good); } .bad { color: var(--bad); } .open { color: var(--open); }

.chat { display: flex; flex-direction: column; gap: 1.5rem; }
.turn {
  display: flex; flex-direction: column; gap: .5rem; align-items: flex-start; max-width: 88%;
  content-visibility: auto; contain-intrinsic-size: auto 7rem;
}
.turn > header { color: var(--quiet); font-size: .78rem; font-weight: 600; padding: 0 .3rem; }
.turn .name { font-weight: 400; }
.turn.user { align-self: flex-end; align-items: flex-end; }
.turn.system { align-self: stretch; max-width: none; }
.bubble {
  max-width: 100%; padding: .8rem 1.1rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 1rem; border-top-left-radius: .3rem;
}
.user .bubble {
  background: var(--user); border-color: var(--user-line);
  border-radius: 1rem; border-top-right-radius: .3rem;
}
.system .bubble {
  width: 100%; background: none; border-style: dashed; border-radius: .6rem;
  color: var(--quiet); font-size: .93rem;
}
.text { white-space: pre-wrap; }
:is(.text, .prose) + :is(p, pre) { margin-top: .7rem; }
.prose > * + *, .prose :is(li, blockquote) > * + * { margin-top: .7rem; }
.prose :is(ul, ol) { padding-inline-start: 1.4rem; }
.prose li + li, .prose li > :is(ul, ol) { margin-top: .25rem; }
.prose .heading { font-weight: 650; }
.prose * + .heading { margin-top: 1.1rem; }
.prose blockquote {
  margin-inline: 0; padding-inline-start: .9rem; border-inline-start: 3px solid var(--line);
  color: var(--quiet);
}
.prose hr { border: 0; border-top: 1px solid var(--line); }
.prose table { border-collapse: collapse; font-size: .93em; font-variant-numeric: tabular-nums; }
.prose :is(th, td) {
  padding: .3rem .7rem; border: 1px solid var(--line); text-align: start; vertical-align: top;
}
.prose th { background: var(--code); font-weight: 600; }
.prose pre[data-language]::before {
  content: attr(data-language); display: block; margin-bottom: .3rem; color: var(--quiet);
  font-size: .85em;
}
.prose .host { color: var(--quiet); font: .85em var(--mono); }
:is(.text, .prose) :not(pre) > code {
  padding: .1em .35em; border-radius: .3em; background: var(--code);
}
.user :is(.text, .prose) :not(pre) > code, .user .prose :is(th, pre) {
  background: color-mix(in srgb, var(--card) 55%, transparent);
}
pre {
  margin: 0; padding: .75rem .95rem; max-width: 100%; overflow-x: auto; white-space: pre-wrap;
  background: var(--code); border-radius: .5rem; line-height: 1.5; tab-size: 4;
}
details > summary {
  cursor: pointer; list-style: none; display: flex; gap: .55rem; align-items: baseline;
}
summary::-webkit-details-marker { display: none; }
summary::before {
  content: ""; flex: none; align-self: center; transition: transform .12s;
  border: .28em solid transparent; border-left: .4em solid var(--quiet); border-right: 0;
}
details[open] > summary::before { transform: rotate(90deg); }
details[open] > summary .brief { visibility: hidden; }
summary > b { flex: none; font-size: .85rem; font-weight: 600; }
summary .brief {
  flex: 1; min-width: 0; color: var(--quiet); font: .8rem/1.6 var(--mono);
  overflow: hidden; white-space: nowrap; text-overflow: ellipsis;
}
summary .mark { flex: none; color: var(--open); font-size: .78rem; }
summary:focus-visible, a:focus-visible {
  outline: 2px solid var(--accent); outline-offset: 3px; border-radius: .2rem;
}
details.bubble[open] > summary, details.long[open] > summary { margin-bottom: .6rem; }
.thinking { border-style: dashed; color: var(--quiet); font-size: .93rem; }
.call {
  width: 100%; min-width: min(100%, 28rem); padding: .55rem .95rem; background: var(--card);
  border: 1px solid var(--line); border-left: 3px solid var(--l3); border-radius: .5rem;
}
.call summary > code { flex: none; max-width: 60%; font-weight: 600; }
.call[open] { padding-bottom: .95rem; }
.call.bad { border-left-color: var(--bad); background: var(--bad-soft); color: inherit; }
.call.bad pre { background: var(--card); }
.call.bad .mark { color: var(--bad); font-weight: 600; }
.call pre + pre, .call .long + pre, .call pre + .long { margin-top: .5rem; }
.media {
  display: inline-block; padding: .35rem .7rem; border: 1px dashed var(--line);
  border-radius: .4rem; color: var(--quiet); font: .8rem/1.5 var(--mono);
}
figure img { display: block; max-width: 100%; max-height: 28rem; border-radius: .5rem; }
figcaption { margin-top: .35rem; color: var(--quiet); font-size: .78rem; }
.value { margin-bottom: 1.3rem; }
.value > pre, .value > .long {
  padding: .75rem .95rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .5rem;
}
.value > .long > pre { padding: 0; background: none; }

.history {
  width: 100%; border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums;
}
.about { max-width: 44rem; margin: .9rem 0 1.6rem; color: var(--quiet); font-size: .93rem; }
.history th {
  padding: 0 .9rem .5rem 0; color: var(--quiet); font-size: .78rem; font-weight: 600;
  text-align: left;
}
.history td { height: 2.6rem; padding: .35rem .9rem .35rem 0; border-top: 1px solid var(--line); }
.history .lines { position: relative; padding: 0; border: 0; }
.history svg {
  position: absolute; top: -1px; left: 2px; height: calc(100% + 2px); overflow: visible;
}
.history time { white-space: nowrap; }
.history .size { white-space: nowrap; color: var(--quiet); text-align: right; padding-right: 0; }
.history th:last-child { text-align: right; padding-right: 0; }
.history a { text-decoration: none; } .history a:hover { text-decoration: underline; }
.history .head .id { font-weight: 700; }
.history tr:target td { background: var(--user); }
.labels { color: var(--quiet); font-size: .8rem; }
line { stroke-width: 2; fill: none; } .draft { fill: var(--paper); stroke-width: 2; }
.ring { fill: none; stroke-width: 1.5; }
.l0 { stroke: var(--l0); --f: var(--l0); } .l1 { stroke: var(--l1); --f: var(--l1); }
.l2 { stroke: var(--l2); --f: var(--l2); } .l3 { stroke: var(--l3); --f: var(--l3); }
.l4 { stroke: var(--l4); --f: var(--l4); } .l5 { stroke: var(--l5); --f: var(--l5); }
.n:not(.draft) { fill: var(--f); stroke: none; }

@media (max-width: 40rem) {
  body { padding: 2.2rem 1.1rem 4rem; }
  h1 { font-size: 1.7rem; } h2 { font-size: 1.35rem; }
  .facts { gap: .7rem 1.6rem; }
  .turn { max-width: 96%; }
  .prose :is(th, td) { padding: .2rem .35rem; }
  .history, .history tbody { display: block; }
  .history thead, .history colgroup, .history .lines { display: none; }
  .history tr {
    display: flex; flex-wrap: wrap; gap: .1rem .9rem; padding: .7rem 0; align-items: baseline;
    border-top: 1px solid var(--line);
  }
  .history td { height: auto; padding: 0; border: 0; }
  .history td:nth-child(3) { flex: 1 0 100%; order: -1; }
  .history td:empty { display: none; }
}
@media print {
  :root { --paper: #fff; --card: #fff; --ink: #000; --quiet: #555; --line: #ccc; --code: #f5f5f5; }
  body { padding: 0; max-width: none; font-size: 10.5pt; }
  .turn { content-visibility: visible; }
  .scope { break-before: auto; }
  h2, h3, h4, .turn > header, summary { break-after: avoid; }
  .history tr, figure { break-inside: avoid; }
  details::details-content { content-visibility: visible; display: block; block-size: auto; }
  summary::before { display: none; }
  a { color: inherit; }
}
"""
