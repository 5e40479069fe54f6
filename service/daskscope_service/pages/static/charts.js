// Draws a cluster's charts with uPlot in place of the SVGs in the page, and refreshes them. The address
// says which period they show. The service computes the numbers, links and texts.
"use strict";

(() => {
  const HEIGHT = 202;
  // Up to FEW marks of one kind are lines from top to bottom. More would hide the chart, so they are
  // SHORT pixels high.
  const FEW = 20;
  const SHORT = 14;
  const SIGNS = { computation: "▬", failure: "▲", loss: "◆" };
  // The hint must fit into one line, on a phone into two.
  const HINT = matchMedia("(pointer: coarse)").matches
    ? "Touch a chart to read it."
    : matchMedia("(max-width: 60rem)").matches
      ? "Drag over a chart to zoom, double-click to go back."
      : "Drag over a chart to zoom, double-click to go back. In the charts: ← → to read, + − to zoom, Esc to go back.";
  const SECTIONS = { computation: "h-computations", failure: "h-failures", loss: "h-losses" };
  // The least distance of ticks in seconds, their text, and what is added where a year or day begins.
  const CLOCK = [
    [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  ];
  // Ticks of bytes at powers of two, so that they read 2 GiB and not 1.86 GiB.
  const BINARY = [...Array(60).keys()].map((power) => 2 ** power);
  const TENS = [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power));

  const section = document.getElementById("over-time");
  const box = document.getElementById("charts");
  const plots = new Map();
  let shown = null; // the newest answer
  let pointed = null; // the plot under the pointer, whose cursor the other plots follow
  let cursor = null; // the time at the cursor, in seconds since the Unix epoch
  let timer = 0;
  let turn = 0;

  const find = (id) => document.getElementById(id);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function make(tag, attributes = {}, ...children) {
    const element = tag === "svg" || tag === "rect" || tag === "path" ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  function words(unit, value) {
    if (value == null) return "–";
    if (unit === "share") return `${Math.round(100 * value)}\u00a0%`;
    if (unit === "count") return value.toLocaleString("en", { maximumFractionDigits: 1 });
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = 0;
    while (Math.abs(value) >= 1024 && power < units.length - 1) {
      value /= 1024;
      power += 1;
    }
    return `${Number(value.toPrecision(3))} ${units[power]}${unit.slice("bytes".length)}`;
  }
  const clock = (seconds) => `${new Date(1000 * seconds).toISOString().slice(0, 19).replace("T", " ")} UTC`;

  // --- data from the service ---------------------------------------------------------------------

  async function load() {
    clearTimeout(timer);
    turn += 1;
    const mine = turn;
    try {
      const answer = await fetch(`${location.pathname}/charts${location.search}`);
      if (answer.redirected) return location.reload(); // the session has ended: show the sign-in page
      if (!answer.ok) throw new Error(`${answer.status}`);
      const found = await answer.json();
      if (mine !== turn) return;
      shown = found;
      show();
    } catch {
      if (mine !== turn) return;
      find("charts-notes").textContent = shown
        ? `The service does not answer: the charts are as of ${clock(shown.until)}.`
        : "The service sends no newer data for the charts.";
    }
    const every = shown ? shown.every : 5;
    if (every !== null) timer = setTimeout(refresh, 1000 * every);
  }

  // Request nothing while the page is hidden.
  function refresh() {
    if (!document.hidden) load();
  }
  document.addEventListener("visibilitychange", () => {
    if (shown?.every !== null) refresh();
  });

  function show() {
    links(find("spans"), shown.spans);
    links(find("moves"), shown.moves);
    find("marks-key").replaceChildren(
      ...(shown.counted.length
        ? shown.counted.map(([kind, text]) =>
            make("a", { class: "quiet", href: `#${SECTIONS[kind]}` }, make("span", { class: `sign-${kind}`, "aria-hidden": "true" }, SIGNS[kind]), ` ${text}`))
        : [make("span", { class: "faint" }, "Nothing was computed, failed or lost in this time.")]),
    );
    find("charts-range").textContent = shown.words;
    find("charts-notes").textContent = shown.notes;
    for (const chart of shown.charts) draw(chart);
    if (!plots.size || !box.dataset.drawn) box.setAttribute("tabindex", "0");
    tell();
    box.dataset.drawn = String(Date.now());
  }

  // Changes the links in place, so that a link keeps the focus.
  function links(nav, wanted) {
    wanted.forEach(({ query, current }, i) => {
      const link = nav.children[i];
      const set = (name, value) => (value === null ? link.removeAttribute(name) : link.setAttribute(name, value));
      set("href", query);
      set("aria-disabled", query === null ? "true" : null);
      set("aria-current", current ? "true" : null);
    });
  }

  // --- one chart ---------------------------------------------------------------------------------

  function figure(chart) {
    const known = find(`chart-${chart.id}`);
    if (known) return known;
    box.append(make("figure", { class: "chart", id: `chart-${chart.id}` }, make("figcaption", {}, chart.title), make("div", { class: "plot" }), make("ul", { class: "legend of-lines" })));
    return find(`chart-${chart.id}`);
  }

  function swatch(line) {
    const shape = line.stacked
      ? make("rect", { fill: line.colour, width: 10, height: 10, rx: 2 })
      : make("path", { class: "beside", stroke: line.colour, d: "M0 5H10" });
    return make("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" }, shape);
  }

  function draw(chart) {
    const here = figure(chart);
    const place = here.querySelector(".plot");
    const old = plots.get(chart.id);
    if (!chart.lines.length) {
      old?.plot.destroy();
      plots.delete(chart.id);
      here.querySelector(".legend").replaceChildren();
      if (!place.querySelector(".empty")) place.replaceChildren(make("p", { class: "empty" }, "No measurements arrived in this time."));
      return;
    }
    const times = chart.times.map((tenths) => shown.since + tenths / 10);
    const columns = [times];
    let below = null;
    for (const line of chart.lines) {
      if (line.stacked) {
        const base = below;
        below = line.values.map((value, i) => (value ?? 0) + (base?.[i] ?? 0));
        columns.push(below.map((value, i) => (line.values[i] === null ? null : value)));
      } else columns.push(line.values);
    }
    const shape = JSON.stringify(chart.lines.map((line) => [line.label, line.stacked, line.colour]));
    if (old?.shape === shape) {
      old.chart = chart;
      old.plot.setData(columns, false);
      old.plot.setScale("x", { min: shown.since, max: shown.until });
      return;
    }
    old?.plot.destroy();
    place.replaceChildren();
    const items = chart.lines.map((line) => make("li", {}, swatch(line), `${line.label} `, make("b")));
    here.querySelector(".legend").replaceChildren(...items);
    const kept = { chart, shape, values: items.map((item) => item.lastElementChild) };
    plots.set(chart.id, kept);
    kept.plot = new uPlot(options(chart, items, place.clientWidth), columns, place);
    kept.plot.over.addEventListener("pointerenter", () => (pointed = kept.plot));
  }

  function options(chart, items, width) {
    const colours = items.map((item) => {
      const shape = getComputedStyle(item.querySelector("rect, path"));
      return shape.fill === "none" ? shape.stroke : shape.fill;
    });
    const stacked = chart.lines.flatMap((line, i) => (line.stacked ? [i + 1] : []));
    const axis = { stroke: css("--faint"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const least = chart.unit === "share" ? 1 : 0;
    return {
      width,
      height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), "Etc/UTC"), // UTC, like all times on the page
      legend: { show: false },
      cursor: {
        y: false,
        points: { show: false },
        sync: { key: "cluster", scales: ["x", null] },
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => go(back()) },
      },
      scales: {
        x: { range: () => [shown.since, shown.until] },
        y: { range: (plot, min, max) => [0, Math.max(1.08 * max, least || (chart.unit === "count" ? 1 : 1024))] },
      },
      axes: [
        { ...axis, space: 60, size: 42, values: CLOCK },
        { ...axis, size: 68, values: (plot, ticks) => ticks.map((tick) => words(chart.unit, tick)), incrs: chart.unit === "share" ? [0.25, 0.5] : chart.unit === "count" ? TENS : BINARY },
      ],
      series: [
        {},
        ...chart.lines.map((line, i) => ({
          stroke: colours[i],
          fill: line.stacked ? colours[i].replace("rgb(", "rgba(").replace(")", ", 0.4)") : undefined,
          width: 1.5,
          dash: line.stacked ? undefined : [6, 4],
          points: { show: false },
        })),
      ],
      // Each stacked line is filled down to the one below it.
      bands: stacked.slice(1).map((series, i) => ({ series: [series, stacked[i]] })),
      hooks: { draw: [mark], setCursor: [follow], setSelect: [select] },
    };
  }

  // --- marks -------------------------------------------------------------------------------------

  function mark(plot) {
    const { left, top, width, height } = plot.bbox;
    const draw = plot.ctx;
    const dot = devicePixelRatio;
    const colours = { computation: css("--mark-computation"), failure: css("--bad"), loss: css("--warn") };
    draw.save();
    draw.beginPath();
    draw.rect(left, top - 2 * dot, width, height + 4 * dot);
    draw.clip();
    draw.font = `${12 * dot}px system-ui`;
    draw.textAlign = "center";
    // One path for all computations, so that bands that overlap do not get darker.
    const bands = new Path2D();
    const bars = new Path2D();
    const number = {};
    for (const [kind, since, until] of shown.marks) {
      number[kind] = (number[kind] ?? 0) + 1;
      if (kind !== "computation") continue;
      const x = plot.valToPos(since, "x", true);
      const wide = Math.max(plot.valToPos(until ?? shown.until, "x", true) - x, 1.5 * dot);
      bands.rect(x, top, wide, height);
      bars.rect(x, top, wide, 5 * dot);
    }
    draw.fillStyle = colours.computation;
    draw.globalAlpha = 0.1;
    draw.fill(bands);
    draw.globalAlpha = 1;
    draw.fill(bars);
    for (const [kind, since] of shown.marks) {
      if (kind === "computation") continue;
      const x = plot.valToPos(since, "x", true);
      draw.fillStyle = draw.strokeStyle = colours[kind];
      draw.setLineDash(kind === "failure" ? [5 * dot, 3 * dot] : [dot, 3 * dot]);
      draw.beginPath();
      draw.moveTo(x, number[kind] > FEW ? top + height - SHORT * dot : top);
      draw.lineTo(x, top + height);
      draw.stroke();
      draw.fillText(SIGNS[kind], x, top + height);
    }
    draw.restore();
  }

  // --- the cursor --------------------------------------------------------------------------------

  function follow(plot) {
    if (plot !== pointed) return;
    cursor = plot.cursor.left >= 0 ? plot.posToVal(plot.cursor.left, "x") : null;
    tell();
  }

  // Show the values at the cursor in the legends, or the last values if there is no cursor. The line
  // above the charts shows the cursor's time.
  function tell() {
    for (const { chart, plot, values } of plots.values()) {
      const at = cursor === null ? null : plot.valToIdx(cursor);
      chart.lines.forEach((line, i) => {
        values[i].textContent = words(chart.unit, at === null ? (line.last ?? line.values.findLast((value) => value !== null)) : line.values[at]);
      });
    }
    find("charts-at").textContent = cursor === null ? HINT : [clock(cursor), ...near(cursor)].join(" · ");
  }

  function near(at) {
    const reach = (shown.until - shown.since) / 100;
    const found = shown.marks.filter(([kind, since, until]) => (kind === "computation" ? since <= at && at <= (until ?? shown.until) : Math.abs(since - at) < reach));
    return [...new Set(found.map(([kind, , , text]) => `${SIGNS[kind]} ${text}`))].slice(-4);
  }

  function point(at) {
    cursor = Math.min(Math.max(at, shown.since), shown.until);
    for (const { plot } of plots.values()) plot.setCursor({ left: plot.valToPos(cursor, "x"), top: 0 }, false);
    tell();
  }

  // --- the time shown ----------------------------------------------------------------------------

  function go(query) {
    if (query === null || query === location.search) return;
    cursor = null;
    history.pushState(null, "", query || location.pathname);
    load();
  }

  // Return the query of the period that was shown before the user zoomed.
  function back() {
    const query = new URLSearchParams(location.search);
    query.delete("from");
    query.delete("to");
    return query.size ? `?${query}` : "";
  }

  function select(plot) {
    const { left, width } = plot.select;
    if (width < 1) return;
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (plot !== pointed || width < 5) return;
    const iso = (seconds) => new Date(1000 * seconds).toISOString().slice(0, 19) + "Z";
    const since = Math.floor(plot.posToVal(left, "x"));
    const until = Math.max(Math.ceil(plot.posToVal(left + width, "x")), since + 10);
    const query = new URLSearchParams(location.search);
    query.set("from", iso(since));
    query.set("to", iso(until));
    go(`?${query}`.replaceAll("%3A", ":"));
  }

  section.addEventListener("click", (event) => {
    const link = event.target.closest("#spans a, #moves a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });

  const KEYS = { "+": 0, "=": 0, "-": 1, PageUp: 2, PageDown: 3 };
  box.addEventListener("keydown", (event) => {
    if (!shown || event.ctrlKey || event.metaKey || event.altKey) return;
    const { key } = event;
    if (key in KEYS) go(shown.moves[KEYS[key]].query);
    else if (key === "Escape") go(back());
    else if (key === "ArrowLeft" || key === "ArrowRight") point((cursor ?? (key === "ArrowLeft" ? shown.until : shown.since)) + ((key === "ArrowLeft" ? -1 : 1) * (shown.until - shown.since)) / 100);
    else return;
    event.preventDefault();
  });

  window.addEventListener("popstate", () => {
    cursor = null;
    load();
  });

  new ResizeObserver(() => {
    for (const [id, { plot }] of plots) {
      const width = find(`chart-${id}`).querySelector(".plot").clientWidth;
      if (width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
  }).observe(box);

  function redraw() {
    for (const { plot } of plots.values()) plot.destroy();
    plots.clear();
    if (shown) show();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // Print on a light background, also if the screen is dark: redraw the canvases before printing.
  for (const [event, paper] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(event, () => {
      document.documentElement.toggleAttribute("data-paper", paper);
      redraw();
    });
  }

  load();
})();
