// Fetches an address of the page, and puts the element with an id of what comes in the
// place of the one that is there. What is open, and where one is, stays. It tells whether
// that was done; of several at once the last counts. What waits for another is not begun.
const latest = new Map();
const patience = 30_000; // ms for an answer: one that never comes would keep what waits for it from beginning

export async function swap(url, id, waits = false) {
  if (waits && latest.has(id)) return false;
  const turn = {};
  latest.set(id, turn);
  const html = await fetched(url, id);
  if (latest.get(id) !== turn) return false;
  latest.delete(id);
  return html !== undefined && put(html, id);
}

async function fetched(url, id) {
  try {
    const answer = await fetch(url, { headers: { "Toolfinch-Swap": id }, credentials: "same-origin", signal: AbortSignal.timeout(patience) });
    if (answer.status === 403) location.reload(); // the session has ended: the login page comes
    return answer.ok ? await answer.text() : undefined;
  } catch {
    return undefined; // toolfinch is gone, or the way to it; what was shown stays
  }
}

function put(html, id) {
  const now = document.getElementById(id);
  const next = new DOMParser().parseFromString(html, "text/html").getElementById(id);
  if (!now || !next) return false;
  for (const name of ["refresh", "told"]) {
    if (name in next.dataset) now.dataset[name] = next.dataset[name];
    else delete now.dataset[name];
  }
  if (now.shown === undefined) now.shown = now.innerHTML;
  const shown = next.innerHTML;
  if (now.shown === shown) return true; // what was fetched last: nothing is new
  for (const open of now.querySelectorAll("details[id]")) {
    const same = next.querySelector(`details[id="${CSS.escape(open.id)}"]`);
    if (same) same.open = open.open;
  }
  const focused = now.contains(document.activeElement) && now !== document.activeElement ? placeOf(document.activeElement) : null;
  now.replaceChildren(...next.childNodes);
  now.shown = shown;
  if (focused) at(focused)?.focus({ preventScroll: true });
  dispatchEvent(new CustomEvent("swapped", { detail: now }));
  return true;
}

// placeOf says where an element is, so that at finds the one that comes in its place: below
// the nearest element with an id, of those with its tag and the same link or value.
function placeOf(element) {
  const owner = element.closest("[id]");
  const same = ["href", "name", "value"].filter((name) => element.hasAttribute(name)).map((name) => `[${name}="${CSS.escape(element.getAttribute(name))}"]`);
  const selector = element.localName + same.join("");
  return { id: owner.id, selector: owner === element ? "" : selector, n: [...owner.querySelectorAll(selector)].indexOf(element) };
}

function at({ id, selector, n }) {
  const owner = document.getElementById(id);
  return selector && owner ? owner.querySelectorAll(selector)[n] : owner;
}
