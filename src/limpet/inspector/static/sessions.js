// The list of sessions stays current.

const { fetched, isLive, showLive } = globalThis.limpet;
const list = document.getElementById("list");
const button = document.getElementById("live");
const PAUSE_MS = 1000; // between two reads of the list
let source = null;
let timer = null;
let isReading = false;
let isStale = false;

/** Read the list again, and show it where the old one was. */
async function read() {
  timer = null;
  if (isReading) {
    isStale = true;
    return;
  }
  isReading = true;
  isStale = false;
  try {
    const page = await fetched(location.href);
    const known = new Set([...list.querySelectorAll("[data-revision]")].map(versionOf));
    const focused = document.activeElement?.closest("#list a.title")?.getAttribute("href");
    list.replaceChildren(...page.querySelector("#list").childNodes);
    for (const row of list.querySelectorAll("[data-revision]")) {
      row.classList.toggle("fresh", !known.has(versionOf(row)));
    }
    if (focused) list.querySelector(`a.title[href="${CSS.escape(focused)}"]`)?.focus();
  } catch {
    // A server that does not answer: the next change reads the list.
  } finally {
    isReading = false;
    if (isStale) schedule();
  }
}

function versionOf(row) {
  return row.querySelector("a.title").getAttribute("href") + row.dataset.revision;
}

function schedule() {
  timer ??= setTimeout(read, PAUSE_MS);
}

function listen() {
  const wanted = isLive() && !document.hidden;
  if (wanted && !source) {
    source = new EventSource(button.dataset.events);
    source.addEventListener("change", schedule);
    source.addEventListener("open", () => showLive(isLive()));
    source.addEventListener("error", () => showLive(isLive(), true)); // it connects again by itself
  } else if (!wanted && source) {
    source.close();
    source = null;
  }
}

function follow(on) {
  showLive(on);
  listen();
}

const typed = document.querySelector("form.filters input[type=search]");
typed.addEventListener("input", () => {
  const address = new URL(location.href);
  if (typed.value) address.searchParams.set("text", typed.value); else address.searchParams.delete("text");
  address.searchParams.delete("after");
  history.replaceState(null, "", address);
  clearTimeout(timer);
  timer = setTimeout(read, 200);
});

button.addEventListener("click", () => follow(!isLive()));
document.addEventListener("visibilitychange", listen);
button.hidden = false;
follow(isLive());
