// One snapshot: branches of the tree are fetched when they open, a hit is scrolled to.

const MARK = "limpet-mark";
const PLACE = ["session_id", "scope_id", "kind", "id"];

/** Replace what is in a branch by its members; each branch is fetched once. */
async function fill(branch) {
  const address = branch.dataset.part;
  delete branch.dataset.part;
  const below = branch.querySelector(".below");
  try {
    const answer = await fetch(address);
    const body = new DOMParser().parseFromString(await answer.text(), "text/html").body;
    if (!answer.ok) throw new Error(body.querySelector(".message p:not(.kicker)")?.textContent ?? answer.statusText);
    below.replaceChildren(...body.childNodes);
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
  document.querySelectorAll(".turn.hit").forEach((each) => each.classList.remove("hit"));
  turn.classList.add("hit");
  turn.scrollIntoView({ block: "center", behavior: "instant" });
}

function revealWanted() {
  const turns = new URL(location.href).searchParams.get("turns");
  if (/^#m-?\d+$/.test(location.hash)) reveal(location.hash.slice(1), true);
  else if (turns) reveal(`m${turns}`, false);
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
  const mark = JSON.parse(sessionStorage.getItem(MARK) ?? "null");
  if (!row || !mark) return;
  const link = row.querySelector("a");
  const address = new URL(link.href);
  if (PLACE.every((name) => mark[name] === address.searchParams.get(name))) return;
  for (const name of PLACE) if (mark[name]) address.searchParams.set(`base_${name}`, mark[name]);
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
