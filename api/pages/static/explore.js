// The neighbourhood as a picture to walk through: each entity can be opened, which adds what is around it.
// What is drawn is read from the lists of the pages themselves; a table beside it holds the same, for those who do not see the picture.

import { colour } from "./pages.js";

const section = document.querySelector("[data-explore]");
const COLOURS = { "": "muted", good: "good", bad: "bad", waiting: "waiting" };
const MOST = 60; // new entities that one step adds

/** Read the links of an entity from its page: `{term, outward, href, name, type, state}` each. */
async function around(href) {
  const address = `${href}.html?part=around&fragment=${section.dataset.depth}`;
  const found = await fetch(address, { headers: { Accept: "text/html" } });
  if (!found.ok) throw new Error(`${found.status} ${found.statusText}`);
  const part = new DOMParser().parseFromString(await found.text(), "text/html");
  return [...part.querySelectorAll("ul[data-relation]")].flatMap((list) =>
    [...list.querySelectorAll("li[data-type]")].flatMap((item) => {
      const link = item.querySelector("a[href]");
      if (!link) return [];
      return [{ term: list.dataset.relation, outward: list.dataset.way === "out", href: link.getAttribute("href"), name: link.textContent, type: item.dataset.type, state: item.dataset.state }];
    }),
  );
}

async function explore(button) {
  const { default: cytoscape } = await import("./graph.vendored.js");
  const own = { href: section.dataset.explore, name: section.dataset.name, type: section.dataset.type, state: section.dataset.state };
  const place = Object.assign(document.createElement("div"), { className: "explore __________cytoscape_container" });
  place.setAttribute("aria-hidden", "true");
  const table = section.querySelector("[data-explored]");
  section.querySelector("svg").replaceWith(place);
  section.querySelector("[data-with-explore]").hidden = false;
  button.hidden = true;
  const graph = cytoscape({
    container: place,
    minZoom: 0.2,
    maxZoom: 3,
    style: [
      { selector: "node", style: { label: "data(name)", color: colour("text"), "font-size": 11, width: 16, height: 16, "background-color": "data(colour)", "text-valign": "bottom", "text-margin-y": 3, "text-max-width": 120, "text-wrap": "ellipsis" } },
      { selector: "node.own", style: { width: 26, height: 26, "font-weight": "bold" } },
      { selector: "node.opened", style: { "border-width": 3, "border-color": colour("accent") } },
      { selector: "node.bad", style: { shape: "triangle" } },
      { selector: "node.waiting", style: { shape: "diamond" } },
      { selector: "edge", style: { label: "data(term)", "font-size": 9, color: colour("muted"), width: 1, "line-color": colour("line"), "target-arrow-color": colour("line"), "target-arrow-shape": "triangle", "curve-style": "bezier", "text-rotation": "autorotate" } },
    ],
  });

  function add(each, near) {
    if (graph.getElementById(each.href).nonempty()) return false;
    const node = graph.add({ group: "nodes", classes: each.state, data: { id: each.href, name: each.name, type: each.type, colour: colour(COLOURS[each.state] ?? "muted") }, position: near && { ...near } });
    const row = table.tBodies[0].insertRow();
    const link = Object.assign(document.createElement("a"), { href: each.href, textContent: each.name });
    const opening = Object.assign(document.createElement("button"), { type: "button", textContent: table.dataset.open });
    opening.setAttribute("aria-label", `${table.dataset.open}: ${each.name}`);
    opening.addEventListener("click", () => open(node, opening));
    row.insertCell().append(link);
    row.insertCell().textContent = each.type;
    row.insertCell().dataset.of = each.href;
    row.insertCell().append(opening);
    node.on("tap", () => open(node, opening));
    return true;
  }

  async function open(node, opening) {
    if (node.hasClass("opened")) return;
    node.addClass("opened");
    opening.disabled = true;
    const said = section.querySelector("[data-said]");
    try {
      const found = await around(node.id());
      let added = 0, left = 0;
      for (const each of found) {
        if (graph.getElementById(each.href).empty() && added >= MOST) { left += 1; continue; }
        if (add(each, node.position())) added += 1;
        const [source, target] = each.outward ? [node.id(), each.href] : [each.href, node.id()];
        const id = `${source} ${each.term} ${target}`;
        if (graph.getElementById(id).nonempty()) continue;
        graph.add({ group: "edges", data: { id, source, target, term: each.term } });
        const cell = [...table.querySelectorAll("td[data-of]")].find((one) => one.dataset.of === each.href);
        cell.append(Object.assign(document.createElement("div"), { textContent: each.outward ? `${node.data("name")} → ${each.term}` : `${each.term} → ${node.data("name")}` }));
      }
      said.textContent = section.dataset.added.replace("{count}", added).replace("{left}", left);
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      graph.layout({ name: "cose", animate: still ? false : "end", randomize: false, fit: true, padding: 30, nodeDimensionsIncludeLabels: true, componentSpacing: 60 }).run();
    } catch (error) {
      node.removeClass("opened");
      opening.disabled = false;
      said.textContent = String(error.message ?? error);
    }
  }

  add(own, { x: 0, y: 0 });
  graph.getElementById(own.href).addClass("own");
  await open(graph.getElementById(own.href), table.querySelector("button"));
}

const button = section.querySelector("[data-explore-button]");
button.addEventListener("click", () => explore(button));
