// What a page gains from a script: parts fetched when they come into view, copy buttons, live changes, keys, the theme.
// Every page works without it. Nothing is asked of another host. What only some pages need stands in modules of its own.

const TOGETHER = 3; // parts that are fetched at one time

document.documentElement.classList.add("scripted");

// -- theme ---------------------------------------------------------------------------------------------------------------
const THEMES = ["auto", "light", "dark"];
const applied = () => (THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto");
const apply = (theme) => {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
};
apply(applied());
for (const button of document.querySelectorAll("[data-theme-button]")) {
  const said = button.textContent;
  const show = () => { button.textContent = `${said}: ${applied()}`; };
  show();
  button.addEventListener("click", () => {
    localStorage.setItem("theme", THEMES[(THEMES.indexOf(applied()) + 1) % THEMES.length]);
    apply(applied());
    show();
  });
}

/** Return the value of a colour of the style sheet as a canvas takes it. */
export function colour(name) {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// -- what other modules of a page do with each part of it ---------------------------------------------------------------------
const followers = [];

/** Call `follow` with the whole page, and with each part that comes later. */
export function loaded(follow) {
  followers.push(follow);
  follow(document);
}

/** Put a part of a page into its place. It comes from this service, which escapes all that it does not trust; scripts in it do not run. */
export function show(place, text) {
  const part = new DOMParser().parseFromString(text, "text/html");
  place.replaceChildren(...part.body.childNodes);
  ready(place);
  for (const follow of followers) follow(place);
}

// -- parts that are fetched when they come into view ------------------------------------------------------------------------
const waiting = [];
let running = 0;

async function load(place) {
  place.classList.add("loading");
  place.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(place.dataset.src, { headers: { Accept: "text/html" } });
    const type = answer.headers.get("Content-Type") || "";
    if (!type.startsWith("text/html")) throw new Error(`${answer.status} ${answer.statusText}`);
    show(place, await answer.text());
  } catch (error) {
    place.append(Object.assign(document.createElement("p"), { className: "notice bad", textContent: String(error.message || error) }));
  } finally {
    place.classList.remove("loading");
    place.removeAttribute("aria-busy");
  }
}

function next() {
  while (running < TOGETHER && waiting.length) {
    running += 1;
    load(waiting.shift()).finally(() => { running -= 1; next(); });
  }
}

const seen = new IntersectionObserver((entries) => {
  for (const each of entries) {
    if (!each.isIntersecting) continue;
    seen.unobserve(each.target);
    waiting.push(each.target);
  }
  next();
}, { rootMargin: "100px" });

// -- buttons and links within a part ------------------------------------------------------------------------------------------
function ready(root) {
  for (const each of root.querySelectorAll("[data-src]")) seen.observe(each);
  for (const button of root.querySelectorAll("button[data-copy]")) {
    button.addEventListener("click", async () => {
      const said = button.textContent;
      const text = document.getElementById(button.dataset.copy)?.textContent ?? "";
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = button.dataset.done;
      } catch {
        getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
        button.textContent = button.dataset.failed;
      }
      setTimeout(() => { button.textContent = said; }, 2000);
    });
  }
  // A link inside a part that leads to the same part (another window of a series) stays within the page.
  for (const link of root.querySelectorAll("a[data-part]")) {
    link.addEventListener("click", (event) => {
      const place = link.closest("[data-src]");
      if (!place || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      place.dataset.src = link.dataset.part;
      waiting.push(place);
      next();
    });
  }
  for (const form of root.querySelectorAll("form[data-part]")) {
    form.addEventListener("submit", (event) => {
      const place = form.closest("[data-src]");
      if (!place) return;
      event.preventDefault();
      const values = new URLSearchParams(new FormData(form));
      values.set("fragment", form.dataset.part);
      place.dataset.src = `${form.action}?${values}`;
      waiting.push(place);
      next();
    });
  }
  for (const table of root.querySelectorAll("table[data-sortable]")) sortable(table);
}

// -- tables that are sorted by a click on a heading -------------------------------------------------------------------------
function sortable(table) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const up = cell.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[column].textContent.trim();
      const numeric = cell.classList.contains("number");
      const compare = numeric ? (a, b) => Number(a) - Number(b) : (a, b) => a.localeCompare(b, undefined, { numeric: true });
      body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) * compare(value(a), value(b))));
    });
  });
}

// -- live changes: the part is fetched again when the feed says that something is new ------------------------------------------
for (const place of document.querySelectorAll("[data-live]")) {
  const feed = new EventSource(place.dataset.live);
  let due = 0;
  feed.onmessage = () => {
    clearTimeout(due);
    due = setTimeout(() => { if (!document.hidden) { waiting.push(place); next(); } }, 1000);
  };
  addEventListener("pagehide", () => feed.close());
}

// -- suggestions of the search box ---------------------------------------------------------------------------------------------
for (const input of document.querySelectorAll("input[data-suggest]")) {
  const list = document.getElementById(input.getAttribute("list"));
  let asked;
  input.addEventListener("input", () => {
    clearTimeout(asked);
    const text = input.value.trim();
    if (text.length < 2) return;
    asked = setTimeout(async () => {
      const query = new URLSearchParams({ q: text, limit: "8", facet: "type" });
      const answer = await fetch(`${input.dataset.suggest}?${query}`, { headers: { Accept: "application/json" } });
      if (!answer.ok || input.value.trim() !== text) return;
      const found = await answer.json();
      list.replaceChildren(...found.items.map((each) => {
        const option = document.createElement("option");
        option.value = each.name;
        option.label = [each.type, each.namespace, each.phase].filter(Boolean).join(" · ");
        return option;
      }));
    }, 150);
  });
}

// -- keys ----------------------------------------------------------------------------------------------------------------------
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.querySelector("[data-suggest]")?.focus();
  }
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches?.("textarea")) event.target.form?.requestSubmit();
});

ready(document);
if (document.querySelector("form[data-query]")) import("./query.js");
if (document.querySelector("[data-explore]")) import("./explore.js");
if (document.querySelector("figure[data-plot], button[data-chart], [data-src], #answer")) import("./plot.js");
