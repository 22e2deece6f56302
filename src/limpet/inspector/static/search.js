// The results are sent as they are found. This runs meanwhile, not at the end of the page.

const find = (css) => document.querySelector(css);
let isStopped = false;

/** Show how far the search is, which its last part says. */
function showLast() {
  const last = [...document.querySelectorAll(".progress")].at(-1);
  if (!last || last.matches(".shown")) return;
  find(".progress.shown")?.classList.remove("shown");
  last.classList.add("shown");
  const { sessions, total } = last.dataset;
  find("#running").hidden = isStopped || sessions === undefined;
  const bar = find("#running progress");
  if (total) Object.assign(bar, { max: total, value: sessions });
}

new MutationObserver(showLast).observe(document, { childList: true, subtree: true });
showLast();

document.addEventListener("click", ({ target }) => {
  if (!target.closest("#running button")) return;
  stop(); // what has come stays
  isStopped = true;
  find("#running").hidden = true;
  find(".progress.shown p:last-child").hidden = false;
});
