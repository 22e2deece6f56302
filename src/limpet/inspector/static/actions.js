// The command for a terminal follows what is typed.

const field = document.querySelector("[data-words]");
const twin = document.querySelector(".twin");

/** Quote a word for a shell, as Python's shlex does. */
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

field.addEventListener("input", () => {
  const words = JSON.parse(field.dataset.words).map((word) => quoted(word ?? field.value));
  const text = words.join(" ");
  twin.querySelector("code").textContent = text;
  twin.querySelector("[data-copy]").dataset.copy = text;
  document.querySelector("[data-name]").textContent = field.value;
});
