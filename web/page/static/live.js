// The screen Live as it happens: rows come as events and are put on top of the table. What
// came while it was paused waits, up to a bound.
const kept = 200;
const byId = (id) => document.getElementById(id);
const pause = byId("pause"), state = byId("live-state"), again = byId("again"), lost = byId("lost");
let source, paused = false, waiting = [], dropped = 0, at = "";
let runs; // what ran last, while it was paused

const rowsOf = (html) => {
  const template = document.createElement("template");
  template.innerHTML = html; // of toolfinch itself, with everything of others escaped
  return [...template.content.querySelectorAll("tr")];
};

function tell(word, kind) {
  state.textContent = word;
  state.dataset.state = kind;
  state.hidden = false;
}

function tellPause() {
  pause.textContent = paused ? (waiting.length ? `Go on (${waiting.length} wait)` : "Go on") : "Pause";
  pause.setAttribute("aria-pressed", paused);
}

function lose(n) {
  dropped += n;
  lost.textContent = `${dropped} ${dropped === 1 ? "call was" : "calls were"} dropped from this list: they came faster than it follows.`;
  lost.hidden = !dropped;
}

function add(rows) {
  const done = byId("done");
  for (const row of rows) {
    if (byId(row.id)?.parentElement === done) continue; // a new stream begins with the last ones
    byId(row.id)?.remove(); // it ran
    done.prepend(row);
  }
  while (done.children.length > kept) done.lastElementChild.remove();
  empty();
}

function empty() {
  byId("none").hidden = byId("done").children.length + byId("running").children.length > 0;
}

function running(rows) {
  const body = byId("running"), focused = body.contains(document.activeElement) && document.activeElement.getAttribute("href");
  body.replaceChildren(...rows.filter((row) => !row.id || byId(row.id)?.parentElement !== byId("done")));
  if (focused) body.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
  empty();
}

function open() {
  source?.close();
  source = undefined;
  const table = document.querySelector("[data-stream]");
  pause.hidden = state.hidden = !table;
  again.hidden = !!table;
  if (!table) return; // an older part of the list
  at = table.dataset.stream;
  source = new EventSource(at);
  tell("connecting", "pending");
  source.onopen = () => tell(paused ? "paused" : "following", paused ? "pending" : "connected");
  source.addEventListener("calls", (event) => {
    const rows = rowsOf(event.data);
    if (!paused) return add(rows);
    waiting.push(...rows.filter((row) => byId(row.id)?.parentElement?.id !== "done" && !waiting.some((other) => other.id === row.id)));
    if (waiting.length > kept) lose(waiting.splice(0, waiting.length - kept).length);
    tellPause();
  });
  source.addEventListener("running", (event) => {
    if (paused) runs = event.data;
    else running(rowsOf(event.data));
  });
  source.addEventListener("dropped", (event) => lose(+event.data));
  source.onerror = async () => {
    if (source.readyState !== EventSource.CLOSED) return tell("connecting", "pending"); // it tries by itself
    const answer = await fetch(at, { method: "HEAD" }).catch(() => undefined);
    if (answer?.status === 403) return location.reload(); // the session has ended: the login page comes
    if (answer?.status === 429) return tell("too many tabs follow", "failed"), (again.hidden = false);
    tell("connecting", "pending");
    setTimeout(open, 3000);
  };
}

pause?.addEventListener("click", () => {
  paused = !paused;
  if (!paused) {
    add(waiting.splice(0));
    if (runs !== undefined) running(rowsOf(runs));
    runs = undefined;
  }
  if (source?.readyState === EventSource.OPEN) source.onopen();
  tellPause();
});

// Another filter: the part with the table was replaced, and names another stream.
addEventListener("swapped", (event) => {
  if (event.detail.id !== "calls") return;
  waiting = [];
  runs = undefined;
  tellPause();
  open();
});

// Who does not look has no stream: browsers have few connections for all tabs together.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return pause && open();
  source?.close();
  source = undefined;
});
if (byId("calls")) open();
