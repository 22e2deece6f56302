// The list of sessions: it stays current, and is walked with j and k.

const list = document.getElementById("list");
const button = document.getElementById("live");
const PAUSE_MS = 1000; // between two reads of the list
let source = null;
let timer = null;
let isReading = false;
let isStale = false;

function titles() {
  return [...list.querySelectorAll("a.title")];
}

function step(by) {
  const found = titles();
  const at = found.indexOf(document.activeElement);
  const next = found[at < 0 ? 0 : Math.min(found.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

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
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const known = new Set([...list.querySelectorAll("[data-revision]")].map(mark));
    const focused = document.activeElement?.closest("#list a.title")?.getAttribute("href");
    list.replaceChildren(...page.getElementById("list").childNodes);
    for (const row of list.querySelectorAll("[data-revision]")) {
      row.classList.toggle("fresh", !known.has(mark(row)));
    }
    if (focused) titles().find((each) => each.getAttribute("href") === focused)?.focus();
  } finally {
    isReading = false;
    if (isStale) schedule();
  }
}

function mark(row) {
  return row.querySelector("a.title").getAttribute("href") + row.dataset.revision;
}

function schedule() {
  timer ??= setTimeout(read, PAUSE_MS);
}

function listen() {
  const wanted = button.getAttribute("aria-pressed") === "true" && !document.hidden;
  if (wanted && !source) {
    source = new EventSource(button.dataset.events);
    source.addEventListener("change", schedule);
  } else if (!wanted && source) {
    source.close();
    source = null;
  }
  button.querySelector(".live-text").textContent =
    button.getAttribute("aria-pressed") === "true" ? "Live" : "Paused";
}

button.addEventListener("click", () => {
  button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
  listen();
});
document.addEventListener("visibilitychange", listen);
button.hidden = false;
listen();

const form = document.querySelector("form.filters");
form.addEventListener("change", ({ target }) => {
  if (target.matches("select, [type=checkbox]")) form.requestSubmit();
});

for (const [key, by] of [["j", 1], ["k", -1]]) {
  document.dispatchEvent(new CustomEvent("limpet-key", { detail: { key, run: () => step(by) } }));
}
