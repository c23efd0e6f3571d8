// What a call has beside its forms: a running one is looked at again until it has ended, but
// not while somebody fills in what its server asks; and items of lists are added and removed
// in place.
import { swap } from "./swap.js";

const look = async () => {
  const run = document.getElementById("run");
  if (!run || run.querySelector(".ended")) return;
  if (!document.hidden && !run.querySelector(".ask")) await swap(location.href, "run");
  setTimeout(look, 700);
};
setTimeout(look, 500);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("form[data-edits] button[name=do]");
  if (!button || !/^(add|remove):/.test(button.value)) return;
  event.preventDefault();
  const form = button.form;
  const answer = await fetch(form.action, {
    method: "POST",
    headers: { "Toolfinch-Swap": form.id },
    body: new URLSearchParams([...new FormData(form), ["do", button.value]]),
    credentials: "same-origin",
  }).catch(() => null);
  if (!answer?.ok) return form.requestSubmit(button);
  const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(form.id);
  if (!next) return;
  form.replaceChildren(...next.childNodes);
  form.querySelector("[autofocus]")?.focus();
});
