// Fetches an address of the page, and puts the element with an id of what comes in the
// place of the one that is there. What is open, and where one is, stays. It tells whether
// that was done; of several at once the last counts.
const latest = new Map();

export async function swap(url, id) {
  const turn = {};
  latest.set(id, turn);
  let html;
  try {
    const answer = await fetch(url, { headers: { "Toolfinch-Swap": id }, credentials: "same-origin" });
    if (answer.status === 403) location.reload(); // the session has ended: the login page comes
    if (!answer.ok) return false;
    html = await answer.text();
  } catch {
    return false; // toolfinch is gone, or the way to it; what was shown stays
  }
  const now = document.getElementById(id);
  if (latest.get(id) !== turn || !now) return false;
  const next = new DOMParser().parseFromString(html, "text/html").getElementById(id);
  if (!next) return false;
  if (now.shown === undefined) now.shown = now.innerHTML;
  const shown = next.innerHTML;
  if (now.shown === shown) return true; // what was fetched last: nothing is new
  for (const open of now.querySelectorAll("details[id]")) {
    const same = next.querySelector(`details[id="${CSS.escape(open.id)}"]`);
    if (same) same.open = open.open;
  }
  const focused = now.contains(document.activeElement) ? document.activeElement : null;
  const again = focused && (focused.id ? `[id="${CSS.escape(focused.id)}"]` : focused.getAttribute("href") && `[href="${CSS.escape(focused.getAttribute("href"))}"]`);
  now.replaceChildren(...next.childNodes);
  now.shown = shown;
  if (again) now.querySelector(again)?.focus();
  dispatchEvent(new CustomEvent("swapped", { detail: now }));
  return true;
}
