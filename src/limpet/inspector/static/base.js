// What every page has: light or dark, copying, keys; and what other scripts use.

const root = document.documentElement;

document.getElementById("theme").addEventListener("click", () => {
  const isDark = getComputedStyle(root).colorScheme.trim() === "dark"
    || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("limpet-theme", root.dataset.theme);
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-copy-link]");
  if (!button) return;
  const here = new URL(location.href); // without an id it shows whatever is the newest
  const link = here.searchParams.has("id") ? here : new URL(button.dataset.copyLink ?? "", here);
  await navigator.clipboard.writeText(button.dataset.copy ?? link.href);
  const text = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = text; }, 1200);
});

/** Show moments as they are here; the title has them in UTC. */
function localize(where) {
  for (const each of where.querySelectorAll("time[data-shows=moment]")) {
    each.textContent = new Date(each.dateTime).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
  }
}

localize(document);
document.addEventListener("limpet-snapshot", ({ detail }) => localize(detail));

const help = document.getElementById("help");
document.getElementById("help-open").addEventListener("click", () => help.showModal());

const keys = new Map();

/** Run a function when a key is pressed outside of a field. */
const onKey = (key, run) => keys.set(key, run);

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select, dialog[open]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const run = keys.get(event.key);
  if (!run) return;
  event.preventDefault();
  run(event);
});

onKey("?", () => help.showModal());
onKey("/", () => {
  const field = document.querySelector("input[type=search]");
  if (field) field.focus(); else location.assign("/ui/search");
});

/** Go to another one of the links that the page lists. */
function step(by) {
  const all = [...document.querySelectorAll("a.title, a.hit")];
  const at = all.indexOf(document.activeElement) + by;
  const next = all[Math.max(0, Math.min(all.length - 1, at))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

onKey("j", () => step(1));
onKey("k", () => step(-1));

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-at-once] :is(select, [type=checkbox])")) target.form.requestSubmit();
});

/** Return the body of a page, or of a part of one; its message if it is an error. */
async function fetched(address, options) {
  const answer = await fetch(address, options);
  const { body } = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (answer.ok) return body;
  throw new Error(body.querySelector(".message p:not(.kicker)")?.textContent ?? answer.statusText);
}

const isLive = () => document.getElementById("live").getAttribute("aria-pressed") === "true";

/** Show whether the page follows the store. */
function showLive(on, isLost = false) {
  const button = document.getElementById("live");
  button.setAttribute("aria-pressed", String(on));
  button.classList.toggle("lost", isLost);
  button.textContent = isLost ? "Offline" : on ? "Live" : "Paused";
}

const PLACE = ["session_id", "scope_id", "kind", "id"];
const MARK = "limpet-mark";

/** The snapshot that was marked to compare others with it, by the parameters of its address. */
const mark = {
  get: () => JSON.parse(sessionStorage.getItem(MARK) ?? "null"),
  set: (place) => sessionStorage.setItem(MARK, JSON.stringify(place)),
};

// They run after this one, and cannot import it: its address changes with its content.
globalThis.limpet = { PLACE, fetched, isLive, mark, onKey, showLive };
