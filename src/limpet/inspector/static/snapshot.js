// One snapshot: branches of the tree are fetched when they open, a hit is scrolled to.

const { PLACE, fetched, mark } = globalThis.limpet;

/** Replace what is in a branch by its members; each branch is fetched once. */
async function fill(branch) {
  const address = branch.dataset.part;
  delete branch.dataset.part;
  const below = branch.querySelector(".below");
  try {
    below.replaceChildren(...(await fetched(address)).childNodes);
  } catch (error) {
    branch.dataset.part = address;
    below.textContent = `This could not be read: ${error.message}`;
  }
}

// It does not bubble.
document.addEventListener("toggle", ({ target }) => {
  if (target.open && target.dataset.part) fill(target);
}, true);

/** Scroll to a message; unfold it if what is looked for may be inside. */
function reveal(id, unfold) {
  const target = document.getElementById(id);
  const turn = target?.closest(".turn");
  if (!turn) return;
  // The result of a tool has an anchor in the turn of its call.
  const inside = target.matches(".anchor") ? "details.call, details.call details" : "details";
  if (unfold) turn.querySelectorAll(inside).forEach((each) => { each.open = true; });
  document.querySelectorAll(".turn.reached").forEach((each) => each.classList.remove("reached"));
  turn.classList.add("reached");
  turn.scrollIntoView({ block: "center", behavior: "instant" });
}

const isWide = matchMedia("(min-width: 48rem)");

function revealWanted() {
  const turns = new URL(location.href).searchParams.get("turns");
  if (/^#m-?\d+$/.test(location.hash)) reveal(location.hash.slice(1), true);
  else if (turns) reveal(`m${turns}`, false);
  else if (isWide.matches) { // next to the history, which stays where it is
    const last = [...document.querySelectorAll(".chat .turn")].pop();
    if (last?.getBoundingClientRect().bottom > 2 * innerHeight) last.scrollIntoView({ block: "end", behavior: "instant" });
  }
}

// Before others see the click: this link stays on the page.
document.addEventListener("click", (event) => {
  const number = event.target.closest("a.number");
  if (!number || event.button || event.metaKey || event.ctrlKey) return;
  event.preventDefault();
  history.replaceState(history.state, "", number.hash);
  reveal(number.hash.slice(1), false);
}, true);

/** Offer to compare with the snapshot that was marked, unless it is this one. */
function offerMarked() {
  const row = document.querySelector("[data-marked]");
  const marked = mark.get();
  if (!row || !marked) return;
  const link = row.querySelector("a");
  const address = new URL(link.href);
  if (PLACE.every((name) => marked[name] === address.searchParams.get(name))) return;
  for (const name of PLACE) if (marked[name]) address.searchParams.set(`base_${name}`, marked[name]);
  link.href = address.href;
  row.hidden = false;
}

function begin() {
  offerMarked();
  revealWanted();
}

// After the page has scrolled to the snapshot.
document.addEventListener("limpet-snapshot", () => requestAnimationFrame(begin));
begin();
