// Charts of series and of result tables, to be read point by point and enlarged, in the place of the pictures that need no script.

import { colour, loaded } from "./pages.js";

const HEIGHT = 220;
const MOST = 2000; // rows of a table that are drawn
const CHARTS = 6; // columns of a table that are drawn
const COLOURS = ["link", "accent", "waiting", "bad", "good"];

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const utc = (seconds) => new Date(seconds * 1000).toISOString();

/** Say each mark of a time axis by its day, or by its time of day, in UTC. */
const times = (_, marks) => marks.map((mark) => {
  const text = utc(mark);
  return text.slice(11, 16) === "00:00" ? text.slice(5, 10) : text.slice(11, text.slice(17, 19) === "00" ? 16 : 19);
});

function axes(unit, x) {
  const lines = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
  return [{ ...lines, values: x }, { ...lines, size: 64, label: unit === "1" ? undefined : unit, labelSize: 20, values: (_, marks) => marks.map((mark) => (mark === null ? "" : compact.format(mark))) }];
}

const moment = { value: (_, seconds) => (seconds === null ? "" : `${utc(seconds).slice(0, 16).replace("T", " ")}Z`) };
const amount = (_, value) => (value === null || value === undefined ? "" : String(Number(value.toPrecision(6))));

/** Draw with uPlot below `before`, as wide as there is room; drawn anew when the width or the theme changes. */
async function draw(before, make) {
  const { default: UPlot } = await import("./charts.vendored.js");
  if (!document.querySelector("link[data-charts]")) {
    const style = document.createElement("link");
    Object.assign(style, { rel: "stylesheet", href: new URL("./charts.vendored.css", import.meta.url) });
    style.dataset.charts = "";
    await new Promise((done) => { style.onload = style.onerror = done; document.head.append(style); });
  }
  const place = document.createElement("div");
  place.className = "plot";
  place.setAttribute("aria-hidden", "true"); // what it shows is said by the picture's text and by the table
  before.after(place);
  let drawn;
  const again = () => {
    if (!place.isConnected) return watch.disconnect();
    const width = place.clientWidth;
    if (!width || (drawn && drawn.width === width && drawn.theme === colour("text"))) return undefined;
    drawn?.plot.destroy();
    const { options, data } = make(UPlot);
    drawn = { width, theme: colour("text"), plot: new UPlot({ width, height: HEIGHT, ...options }, data, place) };
    return undefined;
  };
  const watch = new ResizeObserver(again);
  watch.observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  new MutationObserver(again).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  again();
  return place;
}

/** Replace the picture of a series by a chart. */
async function series(figure) {
  const { unit, at, y, predicted, low, high } = JSON.parse(figure.dataset.plot);
  const { time, measured, predicted: ahead, low: least, high: most } = figure.dataset;
  const there = (values) => values.some((each) => each !== null);
  await draw(figure.querySelector("svg"), () => {
    const lines = [[y, { label: measured, value: amount, stroke: colour("link"), width: 1.5, points: { show: false } }]];
    if (there(predicted)) lines.push([predicted, { label: ahead, value: amount, stroke: colour("accent"), width: 1.5, dash: [6, 4], points: { show: false } }]);
    const banded = there(low) && there(high);
    if (banded) for (const [values, label] of [[low, least], [high, most]]) lines.push([values, { label, value: amount, stroke: colour("band"), points: { show: false } }]);
    return {
      data: [at, ...lines.map(([values]) => values)],
      options: {
        axes: axes(unit, times),
        bands: banded ? [{ series: [lines.length, lines.length - 1], fill: colour("band") }] : [],
        series: [{ label: time, ...moment }, ...lines.map(([, options]) => options)],
      },
    };
  });
  figure.querySelector("svg").classList.add("hidden"); // it still says in words what the chart shows
}

/** Return how to draw each numeric column of a result over its first other column: a line over times, else bars over names. */
function tableCharts(table) {
  const rows = [...table.tBodies[0].rows].slice(0, MOST);
  const heads = [...table.tHead.rows[0].cells];
  const numeric = heads.flatMap((cell, column) => (cell.classList.contains("number") ? [column] : [])).slice(0, CHARTS);
  const over = heads.findIndex((cell) => !cell.classList.contains("number"));
  const names = rows.map((row) => (over < 0 ? "" : row.cells[over].textContent.trim()));
  const stamps = names.map((each) => (/^\d{4}-\d\d-\d\d/.test(each) ? Date.parse(each.replace(" ", "T")) / 1000 : NaN));
  const timed = stamps.length > 1 && stamps.every(Number.isFinite);
  const order = rows.map((_, place) => place);
  if (timed) order.sort((a, b) => stamps[a] - stamps[b]);
  const label = over < 0 ? "" : heads[over].textContent.trim();
  const named = (_, marks) => marks.map((mark) => (Number.isInteger(mark) ? (names[mark] ?? "").slice(0, 14) : ""));
  return numeric.map((column, number) => (UPlot) => {
    const own = colour(COLOURS[number % COLOURS.length]);
    const values = order.map((place) => {
      const text = rows[place].cells[column].textContent.trim();
      return text === "" || !Number.isFinite(Number(text)) ? null : Number(text);
    });
    const bars = { fill: own, points: { show: false }, paths: UPlot.paths.bars({ size: [0.6, 60] }) };
    return {
      data: [order.map((place) => (timed ? stamps[place] : place)), values],
      options: {
        scales: timed ? {} : { x: { time: false, range: [-0.5, order.length - 0.5] }, y: { range: (_, least, most) => UPlot.rangeNum(Math.min(0, least ?? 0), Math.max(0, most ?? 0), 0.05, true) } },
        axes: axes("", timed ? times : named),
        series: [
          timed ? { label, ...moment } : { label, value: (_, place) => names[place] ?? "" },
          { label: heads[column].textContent.trim(), value: amount, stroke: own, ...(timed ? {} : bars) },
        ],
      },
    };
  });
}

loaded((root) => {
  for (const figure of root.querySelectorAll("figure[data-plot]")) series(figure);
  for (const button of root.querySelectorAll("button[data-chart]")) {
    const table = document.getElementById(button.dataset.chart);
    const place = document.createElement("div");
    button.parentElement.after(place);
    button.addEventListener("click", async () => {
      const shown = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!shown));
      place.replaceChildren();
      if (!shown) for (const make of tableCharts(table)) await draw(place.appendChild(document.createElement("p")), make);
    });
  }
});
