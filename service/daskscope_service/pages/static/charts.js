// Draws a cluster's charts with uPlot, from /api/v1/series, and draws them anew while it runs.
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const skew = data.until * 1000 - Date.now(); // the service's clock against this one, roughly
  const REFRESH_MS = 5000;
  const HEIGHT = 190;
  // By the least distance of ticks in seconds: their text, and what is added where a year or day begins.
  const CLOCK = [
    [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  ];
  const plots = new Map();

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (label, place) => css(`--series-${label}`) || css(`--series-${(place % 6) + 1}`);

  function bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < units.length - 1) {
      value /= 1024;
      unit += 1;
    }
    return `${Number(value.toPrecision(3))} ${units[unit]}`;
  }
  const count = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });
  const words = (unit) => (value) => (value == null ? "–" : unit === "bytes" ? bytes(value) : count(value));

  // Axis ticks of bytes at powers of two, so that they read 2 GiB and not 1.86 GiB.
  const binarySteps = [...Array(60).keys()].map((power) => 2 ** power);

  function range() {
    if (!data.live) return [data.since, data.until];
    const now = (Date.now() + skew) / 1000;
    return [data.span === null ? data.started_at : Math.max(data.started_at, now - data.span), now];
  }

  async function lines(source, [since, until]) {
    const query = new URLSearchParams({ cluster: data.cluster, metric: source.metric, since, until });
    const answer = await fetch(`/api/v1/series?${query}`);
    if (!answer.ok) throw new Error(`${answer.status} for ${source.metric}`);
    return (await answer.json()).items.map((line) => {
      const label = source.split === null ? source.label : line.attributes[source.split];
      const stacked = source.stacked && !source.beside.includes(label);
      return { label, stacked, points: new Map(line.times.map((time, i) => [time / 1000, line.values[i]])) };
    });
  }

  // One row of times for all lines; a null where nothing was measured for long, so that no line
  // is drawn through it.
  function table(all) {
    const times = [...new Set(all.flatMap((line) => [...line.points.keys()]))].sort((a, b) => a - b);
    const steps = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
    const longest = 4 * (steps[Math.floor(steps.length / 2)] ?? 1);
    const rows = times.flatMap((time, i) => (i && time - times[i - 1] > longest ? [times[i - 1] + longest / 4, time] : [time]));
    const known = new Set(times);
    let below = null;
    const columns = all.map((line) => {
      const values = rows.map((time) => (known.has(time) ? line.points.get(time) ?? null : null));
      if (!line.stacked) return values;
      const base = below;
      below = rows.map((time, i) => (known.has(time) ? (values[i] ?? 0) + (base?.[i] ?? 0) : null));
      return below;
    });
    return [rows, ...columns];
  }

  function options(chart, all, width) {
    const say = words(chart.unit);
    const stacked = all.flatMap((line, i) => (line.stacked ? [i + 1] : []));
    const axis = { stroke: css("--faint"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    return {
      width,
      height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"), // as all times on the page
      cursor: { sync: { key: "cluster" }, drag: { x: false, y: false } },
      legend: { live: true },
      scales: { y: { range: (plot, min, max) => [0, Math.max(max * 1.08, 1)] } },
      axes: [
        { ...axis, space: 60, values: CLOCK },
        { ...axis, size: 64, values: (plot, ticks) => ticks.map(say), incrs: chart.unit === "bytes" ? binarySteps : [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7] },
      ],
      series: [
        { label: "UTC", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" },
        ...all.map((line, i) => ({
          label: line.label,
          stroke: colour(line.label, i),
          fill: line.stacked ? colour(line.label, i) + "55" : undefined,
          width: 1.5,
          dash: line.stacked ? undefined : [6, 4],
          points: { show: false },
          spanGaps: false,
          // What the line itself is, not how high it stands on the others.
          value: (plot, value, series, row) => (row == null ? "" : say(line.points.get(plot.data[0][row]))),
        })),
      ],
      // Each stacked line is filled down to the one below it.
      bands: stacked.slice(1).map((series, i) => ({ series: [series, stacked[i]] })),
    };
  }

  async function draw(chart, when) {
    const found = (await Promise.all(chart.sources.map((source) => lines(source, when)))).flat();
    // States that no task or worker was in would only fill the legend.
    const seen = found.filter((line) => [...line.points.values()].some((value) => value > 0));
    const all = seen.length ? seen : found;
    const box = document.querySelector(`#chart-${chart.id} .plot`);
    if (!all.length || !box) return;
    const columns = table(all);
    const shape = all.map((line) => line.label).join();
    const old = plots.get(chart.id);
    if (old?.shape === shape) {
      old.plot.setData(columns);
      return;
    }
    old?.plot.destroy();
    box.replaceChildren();
    plots.set(chart.id, { shape, plot: new uPlot(options(chart, all, box.clientWidth), columns, box) });
  }

  async function drawAll() {
    const when = range();
    try {
      await Promise.all(data.charts.map((chart) => draw(chart, when)));
      document.getElementById("charts").dataset.drawn = String(Date.now());
    } catch {
      document.querySelector("#updated .stale")?.removeAttribute("hidden");
    }
  }

  function startAnew() {
    for (const { plot } of plots.values()) plot.destroy();
    plots.clear();
    drawAll();
  }

  new ResizeObserver(() => {
    for (const [id, { plot }] of plots) {
      const width = document.querySelector(`#chart-${id} .plot`).clientWidth;
      if (width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
  }).observe(document.getElementById("charts"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", startAnew);

  drawAll();
  if (data.live) {
    setInterval(() => {
      if (!document.hidden) drawAll();
    }, REFRESH_MS);
  }
})();
