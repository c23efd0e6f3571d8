// What every screen has beside its HTML, none of which needs it: parts that are fetched
// again, forms that answer while one types, copying.
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
