// Runs before the page is drawn: no flash of the other colours.
const kept = localStorage.getItem("limpet-theme");
if (kept) document.documentElement.dataset.theme = kept;
