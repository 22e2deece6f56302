// What every page has: light or dark, copying, the list of keys.

const root = document.documentElement;

document.getElementById("theme").addEventListener("click", () => {
  const isDark = getComputedStyle(root).colorScheme.trim() === "dark"
    || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("limpet-theme", root.dataset.theme);
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  const text = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = text; }, 1200);
});

const help = document.getElementById("help");
document.getElementById("help-open").addEventListener("click", () => help.showModal());

const keys = new Map();

/** Run a function when a key is pressed outside of a field. */
function onKey(key, run) {
  keys.set(key, run);
}

// Other scripts have no address to import this from: it changes with the content.
document.addEventListener("limpet-key", ({ detail }) => onKey(detail.key, detail.run));

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
