// The page of a session: rows come as one scrolls, a click shows a snapshot, new ones come by themselves.

const { PLACE, fetched, isLive, mark, onKey, showLive } = globalThis.limpet;
const root = document.getElementById("session");
const pane = document.getElementById("pane");
const list = document.getElementById("rows");
const detail = document.getElementById("detail");
const live = document.getElementById("live");
const session = new URL(location.href).searchParams.get("session_id");
const size = Number(list.dataset.chunk);

// Rows

let total = 0;
let version = "";
let rowHeight = 0;
const chunks = []; // one element for each, empty while it is far away
const loading = new Map();

const rowOf = (number) => list.querySelector(`a[data-row="${number}"]`);
const selected = () => list.querySelector("a[aria-current]");
const numberOf = (row) => Number(row.dataset.row);
const linkTo = (path, params) => `${path}?${new URLSearchParams(params)}`;

/** Return the parameters that name the snapshot of an address. */
function placeOf(address) {
  const given = new URL(address, location.href).searchParams;
  return Object.fromEntries(PLACE.filter((name) => given.has(name)).map((name) => [name, given.get(name)]));
}

const keyOf = (place) => JSON.stringify([place.scope_id, place.kind, place.id]);
const isSame = (place, other) => place && other && keyOf(place) === keyOf(other)
  && place.session_id === other.session_id;

// A server that does not answer: what is missing is fetched when it is next in view, or changes.
const quietly = (promise) => promise.catch(() => {});

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) quietly(load(chunks.indexOf(entry.target)));
}, { root: pane, rootMargin: "800px 0px" });

const far = new IntersectionObserver((entries) => {
  for (const entry of entries) if (!entry.isIntersecting) empty(chunks.indexOf(entry.target));
}, { root: pane, rootMargin: "5000px 0px" });

const rowsOf = (number) => Math.max(0, Math.min(size, total - number * size));

function empty(number) {
  const chunk = chunks[number];
  if (!chunk || chunk.contains(document.activeElement)) return;
  chunk.replaceChildren();
  chunk.style.height = `${rowsOf(number) * rowHeight}px`;
}

function addChunk(number) {
  const chunk = document.createElement("ol");
  chunk.className = "chunk";
  chunk.start = number * size + 1;
  chunks[number] = chunk;
  empty(number);
  return chunk;
}

/** Take the rows of a chunk into the page, in place of those it had. */
function fill(number, given) {
  const chunk = chunks[number];
  const focused = chunk.contains(document.activeElement) && placeOf(document.activeElement.href);
  chunk.replaceChildren(...given.children);
  chunk.style.height = "";
  dress(chunk);
  if (focused) [...chunk.querySelectorAll("a")].find((row) => isSame(placeOf(row.href), focused))?.focus({ preventScroll: true });
  readMessagesSoon();
}

/** Show in rows which one is selected, and which is marked. */
function dress(where) {
  const marked = mark.get();
  for (const row of where.querySelectorAll("a[data-row]")) {
    const place = placeOf(row.href);
    row.toggleAttribute("aria-current", false);
    if (isSame(place, current)) {
      row.setAttribute("aria-current", "true");
      currentRow = numberOf(row);
    }
    row.parentElement.classList.toggle("marked-row", Boolean(isSame(place, marked)));
  }
}

/** Load the rows of a chunk, unless it has them. */
async function load(number, again = false) {
  const chunk = chunks[number];
  if (!chunk || (chunk.children.length && !again)) return;
  const asked = version;
  const key = `${asked} ${number}`;
  if (!loading.has(key)) {
    const address = linkTo("/ui/rows", { session_id: session, at: number * size, version });
    loading.set(key, fetched(address).finally(() => loading.delete(key)));
  }
  const given = (await loading.get(key)).querySelector(".chunk");
  if (asked !== version) await load(number, again); // the graph changed meanwhile
  else if (given.dataset.version !== version) await renew(given);
  else if (chunks[number] && given.children.length) fill(number, given);
}

/** Go over to another version of the graph, of which one chunk is given. */
async function renew(given) {
  const before = total;
  if (!before) { location.reload(); return; } // the first snapshot: there is a title now, and more
  const loaded = chunks.flatMap((chunk, number) => (chunk.children.length ? [number] : []));
  version = given.dataset.version;
  total = Number(given.dataset.total);
  const count = Math.max(1, Math.ceil(total / size));
  for (const chunk of chunks.splice(count)) chunk.remove();
  while (chunks.length < count) list.append(watch(addChunk(chunks.length)));
  chunks.forEach((chunk, number) => { if (!chunk.children.length) empty(number); });
  const number = Math.floor(Number(given.dataset.at) / size);
  if (chunks[number]) fill(number, given);
  if (currentRow !== null && !selected()) currentRow += total - before;
  if (pane.scrollTop > rowHeight) pane.scrollTop += (total - before) * rowHeight;
  await Promise.all(loaded.filter((each) => each !== number).map((each) => load(each, true)));
}

function watch(chunk) {
  near.observe(chunk);
  far.observe(chunk);
  return chunk;
}

/** Bring a row into the page and into view. */
async function reach(number) {
  if (number < 0 || number >= total) return null;
  await load(Math.floor(number / size));
  const row = rowOf(number);
  if (row) intoView(row);
  return row;
}

function intoView(row) {
  // Not scrollIntoView alone, which would move the page rather than the pane.
  const box = row.getBoundingClientRect();
  const frame = pane.getBoundingClientRect();
  const top = Math.max(0, frame.top) + rowHeight;
  const bottom = Math.min(innerHeight, frame.bottom) - rowHeight;
  if (box.top < top) pane.scrollTop -= top - box.top;
  else if (box.bottom > bottom) pane.scrollTop += box.bottom - bottom;
  row.scrollIntoView({ block: "nearest" }); // if the pane was already at its end
}

// What was said: it costs a state for each row, so it is read for those in view

let timer = 0;
function readMessagesSoon() {
  clearTimeout(timer);
  timer = setTimeout(() => quietly(readMessages()), 180);
}

async function readMessages() {
  const frame = pane.getBoundingClientRect();
  const unread = [...list.querySelectorAll(".said:not([data-read])")].filter((said) => {
    const box = said.getBoundingClientRect();
    return box.bottom > frame.top - rowHeight && box.top < frame.bottom + rowHeight;
  });
  if (!unread.length) return;
  const first = numberOf(unread[0].closest("a"));
  const rows = numberOf(unread[unread.length - 1].closest("a")) - first + 1;
  const asked = version;
  const found = await fetched(linkTo("/ui/said", { session_id: session, at: first, rows, version }));
  if (asked !== version || found.firstElementChild.dataset.version !== version) return;
  for (const each of found.querySelectorAll("li")) {
    const said = rowOf(each.dataset.row)?.querySelector(".said");
    if (!said) continue;
    said.dataset.read = each.textContent ? "text" : "";
    if (each.textContent) said.replaceChildren(...each.childNodes);
  }
  readMessagesSoon(); // the answer is shorter than asked for if states are large
}

// The snapshot next to the rows

let current = null;
let currentRow = null; // its number; the row itself may be far away and not loaded
let shownQuery = location.search;
let aborter = new AbortController();

/** Show the snapshot of an address of this page; `how` is push, replace or nothing. */
async function show(address, how = "push") {
  const given = new URL(address, location.href).searchParams;
  given.delete("at");
  if (how) history[`${how}State`](null, "", linkTo("/ui/session", given));
  shownQuery = location.search;
  current = placeOf(address);
  currentRow = null;
  dress(list);
  aborter.abort();
  aborter = new AbortController();
  const { signal } = aborter;
  detail.classList.add("waiting");
  try {
    const found = await fetched(linkTo("/ui/snapshot", given), { signal });
    if (signal.aborted) return;
    detail.replaceChildren(...found.childNodes);
    document.dispatchEvent(new CustomEvent("limpet-snapshot", { detail }));
  } catch (error) {
    if (signal.aborted) return;
    const told = document.createElement("p");
    told.className = "bad";
    told.textContent = error.message;
    detail.replaceChildren(told);
  }
  detail.classList.remove("waiting");
  if (detail.getBoundingClientRect().top < 0) detail.scrollIntoView({ block: "start" });
}

/** Return the address of a row, seen as the present one is. */
function addressOf(row) {
  const params = placeOf(row.href);
  const now = new URL(location.href).searchParams;
  const view = now.get("view");
  if (view) params.view = view;
  if (view === "changes") {
    for (const name of PLACE) if (now.has(`base_${name}`)) params[`base_${name}`] = now.get(`base_${name}`);
  }
  return linkTo("/ui/session", params);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const isRow = list.contains(link);
  const there = new URL(link.href);
  const isPage = there.origin === location.origin && there.pathname === "/ui/session";
  const isHere = isPage && there.searchParams.get("session_id") === session;
  if (!isRow && !(isHere && detail.contains(link) && there.searchParams.has("id"))) return;
  event.preventDefault();
  if (isRow) showLive(false);
  if (isRow && event.target.closest(".lanes")) chooseDot(placeOf(link.href));
  else show(isRow ? addressOf(link) : link.href);
});

/** Mark the snapshot of the first dot; compare that of the second one with it. */
function chooseDot(place) {
  const marked = mark.get();
  if (marked && !isSame(marked, place)) {
    show(linkTo("/ui/session", comparing(place, marked)));
    mark.set(null);
  } else {
    mark.set(marked ? null : place);
  }
  showMark();
}

const comparing = (place, base) => ({
  ...place, view: "changes", ...Object.fromEntries(PLACE.map((name) => [`base_${name}`, base[name]])),
});

addEventListener("popstate", () => {
  if (location.search === shownQuery) return; // a link inside the page
  const place = placeOf(location.href);
  if (place.id) show(location.href, ""); else location.reload();
});

// Keys

let stepping = 0;

async function go(number) {
  const row = await reach(number);
  if (!row) return;
  showLive(false);
  row.focus({ preventScroll: true });
  current = placeOf(row.href);
  dress(list);
  clearTimeout(stepping); // who holds the key down is on the way to another one
  stepping = setTimeout(() => show(addressOf(row), "replace"), 150);
}

const step = (by) => go(currentRow === null ? 0 : currentRow + by);

async function along(name) {
  const row = currentRow === null ? null : await reach(currentRow);
  if (row && name in row.dataset) go(Number(row.dataset[name]));
}

function showMark() {
  const note = document.getElementById("marked");
  const id = mark.get()?.id;
  note.hidden = !id;
  if (id) note.textContent = `marked ${id.length < 14 ? id : `${id.slice(0, 8)}…${id.slice(-4)}`}`;
  dress(list);
}

onKey("j", () => step(1));
onKey("k", () => step(-1));
onKey("h", () => along("parent"));
onKey("l", () => along("child"));
onKey("m", () => {
  if (!current) return;
  mark.set(isSame(mark.get(), current) ? null : current);
  showMark();
});
onKey("d", () => {
  if (!current) return;
  const marked = mark.get();
  const isOther = marked && !isSame(marked, current);
  show(linkTo("/ui/session", isOther ? comparing(current, marked) : { ...current, view: "changes" }));
});
if ("writes" in root.dataset) {
  onKey("f", () => { if (current) location.assign(linkTo("/ui/fork", current)); });
}

// What is new

let asking = false;
let askAgain = false;

/** Fetch the first rows again, one request at a time; return whether something is new. */
async function update() {
  const given = (await fetched(linkTo("/ui/rows", { session_id: session }))).querySelector(".chunk");
  if (given.dataset.version === version) return false;
  const rows = () => [...chunks[0].querySelectorAll("a")];
  const known = new Set(rows().map((row) => keyOf(placeOf(row.href))));
  await renew(given);
  const count = document.getElementById("count");
  if (!count.textContent.endsWith("+")) count.textContent = total.toLocaleString("en");
  document.getElementById("changed").textContent = "now";
  for (const row of known.size ? rows() : []) {
    row.parentElement.classList.toggle("fresh", !known.has(keyOf(placeOf(row.href))));
  }
  return true;
}

let newest = null; // as the last event named it

async function catchUp() {
  askAgain = asking;
  if (asking) return;
  asking = true;
  const began = performance.now();
  try {
    if (await update() && isLive()) await showNewest();
  } finally {
    // A long history takes the server a while: it is asked a third of the time at most.
    const pause = Math.max(300, 2 * (performance.now() - began));
    setTimeout(() => { asking = false; if (askAgain) quietly(catchUp()); }, pause);
  }
}

async function showNewest() {
  if (!newest) return;
  const view = new URL(location.href).searchParams.get("view");
  await show(linkTo("/ui/session", view ? { ...newest, view } : newest), "replace");
  const row = selected();
  if (row) intoView(row); else pane.scrollTop = 0;
}

function listen() {
  const events = new EventSource(linkTo("/ui/events", { session_id: session }));
  let moment = Date.parse(root.dataset.newest);
  let began = performance.now();
  events.addEventListener("change", (event) => {
    const info = JSON.parse(event.data);
    const changed = Date.parse(info.updated_at);
    if (!newest || changed >= moment) newest = Object.fromEntries(PLACE.map((name) => [name, info[name]]));
    // At first comes every head that there is, most of which are in the page.
    if (changed <= moment && performance.now() - began < 2000) return;
    moment = Math.max(moment || 0, changed);
    quietly(catchUp());
  });
  events.addEventListener("end", () => { events.close(); live.hidden = true; });
  events.addEventListener("open", () => { began = performance.now(); showLive(isLive()); });
  events.addEventListener("error", () => showLive(isLive(), true)); // it connects again by itself
}

function start() {
  const given = [...list.querySelectorAll(".chunk")];
  total = Number(given[0].dataset.total);
  version = given[0].dataset.version;
  rowHeight = list.querySelector(".row")?.getBoundingClientRect().height ?? 0;
  for (const each of given) chunks[Number(each.dataset.at) / size] = each;
  for (let number = 0; number < Math.max(1, Math.ceil(total / size)); number += 1) {
    if (!chunks[number]) addChunk(number);
  }
  list.replaceChildren(...chunks);
  for (const each of pane.querySelectorAll(".paging")) each.remove();
  const row = selected();
  if (row) {
    current = placeOf(row.href);
    currentRow = numberOf(row);
    pane.scrollTop = row.offsetTop - pane.clientHeight / 3;
  }
  chunks.forEach(watch);
  pane.addEventListener("scroll", readMessagesSoon, { passive: true });
  live.addEventListener("click", () => { showLive(!isLive()); if (isLive()) showNewest(); });
  live.hidden = false;
  showLive(!placeOf(location.href).id);
  showMark();
  readMessagesSoon();
  listen();
}

start();
