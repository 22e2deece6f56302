// j and k go through the hits, Enter opens one.

const hits = () => [...document.querySelectorAll(".hit")];

function move(step) {
  const all = hits();
  const next = all[Math.max(0, Math.min(all.length - 1, all.indexOf(document.activeElement) + step))];
  if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
}

for (const [key, step] of [["j", 1], ["k", -1]]) {
  document.dispatchEvent(new CustomEvent("limpet-key", { detail: { key, run: () => move(step) } }));
}

// The options apply at once.
const form = document.querySelector("form.search");
form.addEventListener("change", (event) => {
  if (event.target.type === "checkbox" && form.elements.q.value) form.requestSubmit();
});
