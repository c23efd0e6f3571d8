// What every screen has beside its HTML, none of which needs it: parts that are fetched
// again, forms that answer while one types, keys, copying.
import { swap } from "./swap.js";

// data-refresh="SECONDS" on an element with an id: it is fetched again while it is looked at,
// for as long as what comes has that, too.
const watched = new Set();
const watch = (part) => {
  if (!part.dataset.refresh || watched.has(part)) return;
  watched.add(part);
  setTimeout(async () => {
    if (!document.hidden) await swap(location.href, part.id, true);
    watched.delete(part);
    watch(part);
  }, 1000 * part.dataset.refresh);
};
document.querySelectorAll("[data-refresh][id]").forEach(watch);
addEventListener("swapped", (event) => watch(event.detail));
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) for (const part of watched) swap(location.href, part.id, true);
});

// data-swap="ID" on a form with GET: what it answers takes the place of that element, as one
// types and when one sends it.
for (const form of document.querySelectorAll("form[data-swap]")) {
  let waits;
  const send = (remember) => {
    clearTimeout(waits);
    const url = new URL(form.getAttribute("action") || location.pathname, location.href);
    url.search = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    swap(url, form.dataset.swap).then((done) => done && remember && history.replaceState(null, "", url));
  };
  form.addEventListener("input", () => {
    clearTimeout(waits);
    waits = setTimeout(send, 120, true);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(true);
  });
}

// data-told="TEXT" on what is fetched again: screen readers say it, if it is something else.
addEventListener("swapped", (event) => {
  const told = document.getElementById("told"), text = event.detail.dataset.told ?? "";
  if (told && told.textContent !== text) told.textContent = text;
});

// data-copy="ID" on a button: it copies the text of that element.
const ready = (root) => {
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
};
ready(document);
addEventListener("swapped", (event) => ready(event.detail));
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 1500);
});

// Keys: / goes to the search, g and a letter to a screen, arrows through lists of links
// (.rows, and the first link of each row of table.list), Escape out of a field.
// There is no hurry between g and the letter: some people press keys slowly.
let going = false;
addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "Escape" && typing) return typing.blur();
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") return move(event, typing);
  if (typing) return;
  if (event.key === "/") {
    const search = document.querySelector("[data-search], main input[type=search]");
    if (search) search.focus(), search.select(), event.preventDefault();
    return;
  }
  if (going) document.querySelector(`[data-key="${CSS.escape(event.key)}"]`)?.click();
  going = !going && event.key === "g";
});

function move(event, typing) {
  if (typing && typing.type !== "search") return;
  const links = [...document.querySelectorAll(".rows a.row, table.list td:first-child a")].filter((link) => link.offsetParent);
  const at = links.indexOf(document.activeElement);
  if (!links.length || (at < 0 && !typing && document.activeElement !== document.body && !document.activeElement.matches("main"))) return;
  const to = at < 0 ? (event.key === "ArrowDown" ? 0 : -1) : at + (event.key === "ArrowDown" ? 1 : -1);
  event.preventDefault();
  if (to >= 0) links[Math.min(to, links.length - 1)].focus();
  else document.querySelector("[data-search], main input[type=search]")?.focus();
}
