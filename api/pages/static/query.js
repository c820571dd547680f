// The page of queries: an editor in the place of the text field, and queries that run within the page, with a clock and a way to end them.

import { show } from "./pages.js";

const SUGGESTIONS = "12";
const form = document.querySelector("form[data-query]");
const area = form.querySelector("textarea");
const answer = document.getElementById("answer");
const cancel = form.querySelector("[data-cancel]");
const clock = form.querySelector("[data-clock]");
let running;

async function suggest(text) {
  const found = await fetch(`${form.dataset.suggest}?${new URLSearchParams({ q: text, limit: SUGGESTIONS, facet: "type" })}`, {
    headers: { Accept: "application/json" },
  });
  if (!found.ok) return [];
  const { items } = await found.json();
  return items.map((each) => ({ iri: each.iri, name: each.name, detail: [each.type, each.namespace].filter(Boolean).join(" · ") }));
}

/** Run what the form holds; `remember` puts its address into the history of the browser. */
async function run(remember) {
  running?.abort();
  const own = (running = new AbortController());
  const began = performance.now();
  const tick = setInterval(() => { clock.textContent = `${((performance.now() - began) / 1000).toFixed(1)} s`; }, 100);
  const query = new URLSearchParams(new FormData(form));
  cancel.hidden = false;
  answer.setAttribute("aria-busy", "true");
  try {
    const found = await fetch(`${form.dataset.part}?${query}&fragment=0`, { headers: { Accept: "text/html" }, signal: own.signal });
    if (!(found.headers.get("Content-Type") ?? "").startsWith("text/html")) throw new Error(`${found.status} ${found.statusText}`);
    show(answer, await found.text());
    if (remember) history.pushState(null, "", `${form.getAttribute("action")}?${query}`);
  } catch (error) {
    const text = own.signal.aborted ? cancel.dataset.done : String(error.message ?? error);
    if (running === own) answer.replaceChildren(Object.assign(document.createElement("p"), { className: "notice", role: "status", textContent: text }));
  } finally {
    clearInterval(tick);
    if (running === own) {
      running = undefined;
      clock.textContent = "";
      cancel.hidden = true;
      answer.removeAttribute("aria-busy");
    }
  }
}

form.addEventListener("submit", (event) => { event.preventDefault(); run(true); });
cancel.addEventListener("click", () => running?.abort());
addEventListener("popstate", () => location.reload()); // the address says what was asked

const { edit } = await import("./editor.vendored.js");
const all = [...document.querySelectorAll("[data-term]")].map((each) => each.dataset.term);
edit(area, { namespace: form.dataset.namespace, all, suggest, label: area.labels[0].textContent, run: () => run(true) });
