// Draws a cluster's task stream on a canvas: workers by time. It asks for the runs of the time shown, as
// they are stored, packed; what the time shown has of those it has, it draws without asking. The address
// says which time it shows; the table below is the service's, and follows.
"use strict";

(() => {
  const box = document.getElementById("stream");
  if (!box) return;
  const canvas = box.querySelector("canvas");
  const space = box.querySelector(".stream-space");
  const tip = document.getElementById("stream-tip");
  const notes = document.getElementById("stream-notes");
  // The most entries that are drawn, the newest, and the most lanes of a worker.
  const MOST = 1_000_000;
  const LANES = 64;
  const UNIT = 1e-4;
  // Runs that overlap by fewer seconds share a lane: else a thread often seems to be two.
  const OVERLAP = 0.005;
  // Heights in pixels: of the axis, and the least and greatest of a lane; the gap between two workers.
  const AXIS = 22;
  const LEAST = 3;
  const GREATEST = 16;
  const GAP = 2;
  const SHORTEST = 0.01;
  const LAST = 253402300799; // the end of the year 9999: the service reads no later time
  const OUTCOMES = ["finished", "erred", "run again"];
  const HINT = matchMedia("(pointer: coarse)").matches
    ? "Touch a run to read it; drag sideways to move."
    : "Drag to zoom, double-click to go back, Ctrl and the wheel to zoom at the pointer. Keys: ← → to move, + − to zoom, Esc to go back.";

  const query = new URLSearchParams(location.search);
  const only = { worker: query.get("worker"), prefix: query.get("prefix"), failed: query.has("failed") };
  let shown = { since: Number(box.dataset.since), until: Number(box.dataset.until) };
  const begin = { ...shown };
  let had = null; // the time of the runs that are here
  let runs = null; // their columns
  let lanes = []; // entries of each lane, by start
  let tracks = []; // of each worker: its name, its first lane and number of lanes, and its y
  let scale = 1; // the height of a lane
  // Widths in pixels: of the workers' names, and of the time. To ask the browser for each bar is slow.
  let gutter = 0;
  let wide = 1;
  let chosen = null; // where a drag began and is
  let turn = 0;
  let later = 0;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const words = (seconds) => {
    if (seconds < 0.0005) return `${Math.round(seconds * 1e6)} µs`;
    if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
    if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
    if (seconds < 7200) return `${Number((seconds / 60).toPrecision(3))} min`;
    return `${Number((seconds / 3600).toPrecision(3))} h`;
  };
  const iso = (seconds) => new Date(1000 * seconds).toISOString();
  const clock = (seconds) => `${iso(seconds).slice(0, shown.until - shown.since < 30 ? 23 : 19).replace("T", " ")}`;

  // --- runs from the service ---------------------------------------------------------------------

  // Return the columns of packed text: see pack_columns in daskscope.protocol.
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const data = new Uint8Array(await new Response(stream).arrayBuffer());
    const masks = data.subarray(0, 10);
    let planes = 0;
    for (const mask of masks) for (let place = 0; place < 8; place += 1) planes += (mask >> place) & 1;
    const length = planes ? Math.floor((data.length - 10) / planes) : 0;
    let at = 10;
    return Array.from(masks, (mask) => {
      const column = new Float64Array(length);
      for (let place = 0; place < 8; place += 1) {
        if (!((mask >> place) & 1)) continue;
        const worth = 2 ** (8 * place);
        for (let i = 0; i < length; i += 1) column[i] += worth * data[at + i];
        at += length;
      }
      return column;
    });
  }

  async function load() {
    turn += 1;
    const mine = turn;
    // Somewhat more than is shown, so that a small move needs no answer.
    const extra = (shown.until - shown.since) / 4;
    const wanted = { since: Math.max(shown.since - extra, 0), until: Math.min(shown.until + extra, LAST) };
    const rows = [];
    const workers = new Map();
    const prefixes = new Map();
    let entries = 0;
    let broken = 0;
    let cursor = null;
    let reached = wanted.since;
    notes.textContent = "Reading the runs …";
    try {
      do {
        const asked = new URLSearchParams({ since: wanted.since, until: wanted.until });
        if (cursor) asked.set("cursor", cursor);
        const answer = await fetch(`${location.pathname}.json?${asked}`);
        if (answer.redirected) return location.reload(); // the session has ended: show the sign-in page
        if (!answer.ok) throw new Error(`${answer.status}`);
        const found = await answer.json();
        if (mine !== turn) return;
        const known = (map, name, value) => map.get(name) ?? (map.set(name, { index: map.size, ...value }), map.get(name));
        const ofWorkers = found.workers.map((name) => known(workers, name, {}).index);
        const ofPrefixes = found.prefixes.map(([name, colour]) => known(prefixes, name, { colour }).index);
        for (const row of found.rows) {
          try {
            const columns = await unpack(row.columns);
            if (!columns[0].length) throw new Error("empty");
            entries += columns[0].length;
            rows.push({ at: row.at, columns, workers: row.workers.map((i) => ofWorkers[i]), prefixes: row.prefixes.map((i) => ofPrefixes[i]) });
          } catch {
            broken += 1;
          }
        }
        if (mine !== turn) return;
        cursor = found.next;
        if (cursor && entries >= MOST) {
          reached = rows.reduce((least, row) => Math.min(least, row.at), Infinity);
          break;
        }
      } while (cursor);
    } catch {
      if (mine === turn) notes.textContent = "The service does not answer: not all runs are drawn.";
      return;
    }
    keep(rows, entries, [...workers.keys()], [...prefixes].map(([name, { colour }]) => ({ name, colour })));
    had = { since: reached, until: wanted.until, whole: reached === wanted.since };
    const said = [];
    if (!had.whole) said.push(`Drawn are the newest ${entries.toLocaleString("en")} runs, those since ${clock(reached)} UTC: zoom in to see earlier ones.`);
    if (broken) said.push(`${broken} intervals cannot be read.`);
    notes.textContent = said.join(" ");
    pack();
    draw();
    box.dataset.drawn = String(Date.now());
  }

  // Keep the chosen runs of some rows, in columns and sorted by start.
  function keep(rows, entries, workers, prefixes) {
    const names = ["start", "end", "worker", "prefix", "outcome", "count", "seconds", "longest", "transfer", "disk"];
    const all = Object.fromEntries(names.map((name) => [name, new Float64Array(entries)]));
    let n = 0;
    for (const row of rows.reverse()) {
      const [worker, prefix, outcome, start, length, count, seconds, longest, transfer, disk] = row.columns;
      let at = row.at;
      for (let i = 0; i < worker.length; i += 1) {
        at += start[i] * UNIT;
        const w = row.workers[worker[i]];
        const p = row.prefixes[prefix[i]];
        if (only.worker !== null && workers[w] !== only.worker) continue;
        if (only.prefix !== null && prefixes[p].name !== only.prefix) continue;
        if (only.failed && !outcome[i]) continue;
        all.start[n] = at;
        all.end[n] = at + length[i] * UNIT;
        all.worker[n] = w;
        all.prefix[n] = p;
        all.outcome[n] = outcome[i];
        all.count[n] = count[i];
        all.seconds[n] = (count[i] > 1 ? seconds[i] : length[i]) * UNIT;
        all.longest[n] = (count[i] > 1 ? longest[i] : length[i]) * UNIT;
        all.transfer[n] = transfer[i] * UNIT;
        all.disk[n] = disk[i] * UNIT;
        n += 1;
      }
    }
    // An array, not a typed one: its sort is fast where most is in order.
    const order = Array.from({ length: n }, (_, i) => i).sort((a, b) => all.start[a] - all.start[b]);
    runs = { ...all, order, workers, prefixes };
  }

  // --- lanes -------------------------------------------------------------------------------------

  // Dask's threads are not stored: put each run into the first lane of its worker that is free. Merged
  // runs have lanes of their own, below.
  function pack() {
    const { start, end, worker, count, order, workers } = runs;
    const per = workers.map(() => ({ single: [], merged: [] }));
    for (const i of order) {
      const of = count[i] > 1 ? per[worker[i]].merged : per[worker[i]].single;
      let lane = of.find((one) => {
        const last = end[one[one.length - 1]];
        return last <= start[i] + OVERLAP && last <= end[i];
      });
      if (!lane) {
        if (of.length < LANES) of.push((lane = []));
        else lane = of[LANES - 1];
      }
      lane.push(i);
    }
    const sorted = workers.map((_, i) => i).sort((a, b) => workers[a].localeCompare(workers[b], "en", { numeric: true }));
    lanes = [];
    tracks = [];
    for (const i of sorted) {
      const own = [...per[i].single, ...per[i].merged];
      if (!own.length) continue;
      tracks.push({ name: workers[i] || "several workers", first: lanes.length, lanes: own.length, y: 0 });
      lanes.push(...own);
    }
    measure();
  }

  function measure() {
    const most = Math.max(200, Math.min(0.7 * innerHeight, 900));
    const free = most - AXIS - tracks.length * GAP;
    scale = Math.min(Math.max(Math.floor(free / Math.max(lanes.length, 1)), LEAST), GREATEST);
    let y = 0;
    for (const track of tracks) {
      track.y = y;
      y += track.lanes * scale + GAP;
    }
    space.style.height = `${y + AXIS}px`;
    box.style.height = `${Math.min(y + AXIS, most) + 2}px`;
  }

  // --- drawing -----------------------------------------------------------------------------------

  const x = (at) => gutter + ((at - shown.since) / (shown.until - shown.since)) * wide;
  const timeAt = (left) => shown.since + ((left - gutter) / wide) * (shown.until - shown.since);

  // Return the first of a lane's entries that ends after a time.
  function firstAfter(lane, at) {
    let low = 0;
    let high = lane.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (runs.end[lane[middle]] < at) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function hatching(pen, colour) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const on = tile.getContext("2d");
    on.strokeStyle = colour;
    on.lineWidth = 1.5;
    on.beginPath();
    for (const by of [-6, 0, 6]) {
      on.moveTo(by, 6);
      on.lineTo(by + 6, 0);
    }
    on.stroke();
    return pen.createPattern(tile, "repeat");
  }

  function fillAll(pen, colour, bars) {
    pen.fillStyle = colour;
    for (let i = 0; i < bars.length; i += 4) pen.fillRect(bars[i], bars[i + 1], bars[i + 2], bars[i + 3]);
  }

  function draw() {
    const sharp = devicePixelRatio || 1;
    const [width, height] = [box.clientWidth, box.clientHeight];
    gutter = width > 700 ? 180 : 0;
    wide = Math.max(width - gutter, 1);
    if (canvas.width !== Math.round(width * sharp) || canvas.height !== Math.round(height * sharp)) {
      canvas.width = Math.round(width * sharp);
      canvas.height = Math.round(height * sharp);
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    const colours = { text: css("--text"), faint: css("--faint"), line: css("--line"), panel: css("--panel"), sunken: css("--sunken"), transfer: css("--fill-bad"), disk: css("--fill-active"), erred: css("--text"), accent: css("--accent") };
    const [left, right] = [gutter, width];
    const fills = runs.prefixes.map(({ colour }) => colour.replace(/var\((.*?)\)/, (_, name) => css(name)));
    const hatch = hatching(pen, colours.text);
    const top = box.scrollTop;
    const pixel = (shown.until - shown.since) / wide;
    const { start, end, prefix, outcome, count, transfer, disk } = runs;
    const [single, merged] = [fills.map(() => []), fills.map(() => [])];
    const [transfers, disks, failed, texts] = [[], [], [], []];

    pen.save();
    pen.beginPath();
    pen.rect(left, AXIS, right - left, height - AXIS);
    pen.clip();
    grid(pen, colours.line, AXIS, height);
    tracks.forEach((track, nth) => {
      const y0 = AXIS + track.y - top;
      const tall = track.lanes * scale;
      if (y0 > height || y0 + tall < AXIS) return;
      if (nth % 2) {
        pen.fillStyle = colours.sunken;
        pen.globalAlpha = 0.6;
        pen.fillRect(left, y0 - GAP / 2, right - left, tall + GAP);
        pen.globalAlpha = 1;
      }
      const thick = scale > 5 ? scale - 1 : scale;
      for (let l = 0; l < track.lanes; l += 1) {
        const lane = lanes[track.first + l];
        const y = y0 + l * scale;
        let drawn = -1; // up to where this lane is painted
        for (let k = firstAfter(lane, shown.since); k < lane.length; k += 1) {
          const i = lane[k];
          if (start[i] - transfer[i] - disk[i] > shown.until) break;
          const from = x(start[i]);
          const to = x(end[i]);
          if (outcome[i]) failed.push([i, from, y, Math.max(to - from, 2), thick]);
          if (to < drawn + 0.5 && from >= drawn - 1) continue; // it lies within a pixel that is painted
          const before = (transfer[i] + disk[i]) / pixel;
          if (before >= 0.7 && count[i] === 1) {
            const low = Math.max(2, Math.round(thick / 2));
            transfers.push(from - before, y + thick - low, transfer[i] / pixel, low);
            disks.push(from - disk[i] / pixel, y + thick - low, disk[i] / pixel, low);
          }
          const long = Math.max(to - from - (to - from > 4 && scale > 5 ? 0.7 : 0), 1);
          (count[i] > 1 ? merged : single)[prefix[i]].push(from, y, long, thick);
          if (count[i] > 1 && scale >= 10 && long > 44) texts.push([`× ${count[i].toLocaleString("en")}`, Math.max(from, left) + 4, y + thick / 2 + 0.5, long - 6]);
          drawn = Math.max(drawn, from + long);
        }
      }
    });
    // Colour by colour: to change it for each of many bars takes longer than to draw them.
    fillAll(pen, colours.transfer, transfers);
    fillAll(pen, colours.disk, disks);
    fills.forEach((colour, at) => fillAll(pen, colour, single[at]));
    pen.globalAlpha = 0.4;
    fills.forEach((colour, at) => fillAll(pen, colour, merged[at]));
    pen.globalAlpha = 1;
    for (const [i, ...bar] of failed) {
      pen.fillStyle = outcome[i] === 1 ? colours.erred : hatch;
      pen.globalAlpha = count[i] > 1 ? 0.5 : 1;
      pen.fillRect(...bar);
    }
    pen.globalAlpha = 1;
    pen.fillStyle = colours.text;
    for (const text of texts) pen.fillText(...text);
    if (chosen) {
      pen.fillStyle = colours.accent;
      pen.globalAlpha = 0.2;
      pen.fillRect(Math.min(chosen.from, chosen.to), AXIS, Math.abs(chosen.to - chosen.from), height);
      pen.globalAlpha = 1;
    }
    if (!lanes.length) {
      pen.fillStyle = colours.faint;
      pen.fillText("No task run is like this here.", left + 8, AXIS + 20);
    }
    pen.restore();
    names(pen, colours, height, top);
    axis(pen, colours, width);
  }

  function names(pen, colours, height, top) {
    if (!gutter) return;
    pen.save();
    pen.beginPath();
    pen.rect(0, AXIS, gutter - 6, height - AXIS);
    pen.clip();
    pen.fillStyle = colours.faint;
    let free = -Infinity;
    for (const track of tracks) {
      const y = AXIS + track.y - top + (track.lanes * scale) / 2;
      if (y < AXIS + 6 || y > height || y < free + 12) continue;
      free = y;
      pen.fillText(track.name, 6, y, gutter - 14);
    }
    pen.restore();
  }

  const STEPS = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
  function ticks() {
    const wanted = ((shown.until - shown.since) / wide) * 110;
    const step = STEPS.find((one) => one >= wanted) ?? STEPS[STEPS.length - 1];
    const found = [];
    for (let at = Math.ceil(shown.since / step) * step; at < shown.until && found.length < 50; at += step) found.push(at);
    return { step, found };
  }
  function grid(pen, colour, top, bottom) {
    pen.fillStyle = colour;
    for (const at of ticks().found) pen.fillRect(Math.round(x(at)), top, 1, bottom - top);
  }
  function axis(pen, colours, width) {
    pen.fillStyle = colours.panel;
    pen.fillRect(0, 0, width, AXIS - 1);
    pen.fillStyle = colours.line;
    pen.fillRect(0, AXIS - 1, width, 1);
    pen.fillStyle = colours.faint;
    const { step, found } = ticks();
    for (const at of found) {
      const left = x(at) + 3;
      const text = step >= 86400 ? iso(at).slice(5, 10) : iso(at + 5e-5).slice(11, step >= 60 ? 16 : step >= 1 ? 19 : 23);
      if (left + pen.measureText(text).width < width) pen.fillText(text, left, AXIS / 2);
    }
  }

  let waiting = 0;
  function soon() {
    if (!waiting) {
      waiting = requestAnimationFrame(() => {
        waiting = 0;
        if (runs) draw();
      });
    }
  }

  // --- the run at the pointer --------------------------------------------------------------------

  function runAt(left, down) {
    if (!runs || left < gutter || down < AXIS) return null;
    const y = down - AXIS + box.scrollTop;
    const track = tracks.find((one) => y >= one.y && y < one.y + one.lanes * scale);
    if (!track) return null;
    const lane = lanes[track.first + Math.floor((y - track.y) / scale)];
    const at = timeAt(left);
    const reach = (2 * (shown.until - shown.since)) / wide;
    const k = firstAfter(lane, at - reach);
    let best = null;
    for (const i of lane.slice(k, k + 50)) {
      const away = Math.max(runs.start[i] - at, at - runs.end[i], 0);
      if (away > reach) continue;
      if (best === null || away < best.away) best = { i, away, track };
    }
    return best;
  }

  function tell(left, down) {
    const found = runAt(left, down);
    tip.hidden = !found;
    if (!found) return;
    const { i, track } = found;
    const { start, end, prefix, outcome, count, seconds, longest, transfer, disk, prefixes } = runs;
    const said =
      count[i] > 1
        ? [`${count[i].toLocaleString("en")} runs, merged: ${words(seconds[i])} in all, the longest ${words(longest[i])}`, `${iso(start[i]).slice(11, 23)} to ${iso(end[i]).slice(11, 23)} UTC`]
        : [words(end[i] - start[i]), `began ${iso(start[i]).slice(11, 23)} UTC`];
    said.push(OUTCOMES[outcome[i]]);
    if (transfer[i]) said.push(`transfers ${words(transfer[i])}`);
    if (disk[i]) said.push(`disk ${words(disk[i])}`);
    const strong = document.createElement("b");
    strong.textContent = prefixes[prefix[i]].name;
    tip.replaceChildren(strong, document.createElement("br"), track.name, document.createElement("br"), said.join(" · "));
    const here = box.getBoundingClientRect();
    const width = tip.offsetWidth;
    tip.style.left = `${Math.max(4, Math.min(here.left + left + 14, document.documentElement.clientWidth - width - 8)) + scrollX}px`;
    tip.style.top = `${here.top + down + 18 + scrollY}px`;
  }

  // --- the time shown ----------------------------------------------------------------------------

  function show(since, until) {
    const length = Math.min(Math.max(until - since, SHORTEST), LAST);
    const from = Math.min(Math.max(since, 0), LAST - length);
    shown = { since: from, until: from + length };
    tip.hidden = true;
    document.getElementById("stream-range").textContent = `${clock(shown.since)} to ${clock(shown.until)} UTC`;
    soon();
    clearTimeout(later);
    later = setTimeout(settle, 350);
  }

  // The reader has come to rest: put the time into the address, and ask for what is not here.
  function settle() {
    const asked = new URLSearchParams(location.search);
    if (shown.since === begin.since && shown.until === begin.until) history.pushState(null, "", first);
    else {
      asked.set("since", iso(shown.since).slice(0, 23));
      asked.set("until", iso(shown.until).slice(0, 23));
      history.pushState(null, "", `?${asked}`.replaceAll("%3A", ":"));
    }
    follow();
  }

  const first = location.pathname + location.search;

  async function follow() {
    if (!had || shown.since < had.since || shown.until > had.until || !had.whole) load();
    try {
      const address = location.href;
      const answer = await fetch(address);
      if (answer.redirected || !answer.ok || address !== location.href) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const id of ["stream-table", "stream-sentence", "stream-moves"]) {
        const now = page.getElementById(id);
        if (now) document.getElementById(id).replaceChildren(...now.childNodes);
      }
      for (const name of ["since", "until"]) document.querySelector(`.filters [name=${name}]`).value = new URLSearchParams(location.search).get(name) ?? "";
    } catch {
      notes.textContent = "The service does not answer: the table is of another time.";
    }
  }

  function zoom(by, at) {
    const length = (shown.until - shown.since) * by;
    const share = (at - shown.since) / (shown.until - shown.since);
    show(at - share * length, at + (1 - share) * length);
  }
  const middle = () => (shown.since + shown.until) / 2;
  const move = (by) => show(shown.since + by * (shown.until - shown.since), shown.until + by * (shown.until - shown.since));

  addEventListener("popstate", () => location.reload());

  document.getElementById("stream-moves").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const act = { "zoom in": () => zoom(0.5, middle()), "zoom out": () => zoom(2, middle()), earlier: () => move(-0.5), later: () => move(0.5) }[link.textContent.trim()];
    if (!act) return;
    event.preventDefault();
    act();
  });

  const KEYS = {
    "+": () => zoom(0.5, middle()),
    "=": () => zoom(0.5, middle()),
    "-": () => zoom(2, middle()),
    ArrowLeft: () => move(-0.2),
    ArrowRight: () => move(0.2),
    Escape: () => show(begin.since, begin.until),
  };
  box.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  box.addEventListener(
    "wheel",
    (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoom(1.002 ** event.deltaY, timeAt(event.clientX - box.getBoundingClientRect().left));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        move(event.deltaX / wide);
      }
    },
    { passive: false },
  );

  const place = (event) => {
    const here = box.getBoundingClientRect();
    return [event.clientX - here.left, event.clientY - here.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const [left] = place(event);
    canvas.setPointerCapture(event.pointerId);
    chosen = { from: left, to: left, moves: event.pointerType === "touch" || event.shiftKey, at: { ...shown } };
  });
  canvas.addEventListener("pointermove", (event) => {
    const [left, down] = place(event);
    if (!chosen) return tell(left, down);
    tip.hidden = true;
    if (chosen.moves) {
      const by = ((chosen.from - left) / wide) * (chosen.at.until - chosen.at.since);
      if (Math.abs(chosen.from - left) > 4) show(chosen.at.since + by, chosen.at.until + by);
    } else {
      chosen.to = Math.max(left, gutter);
      soon();
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const drag = chosen;
    chosen = null;
    if (!drag) return;
    const [left, down] = place(event);
    if (!drag.moves && Math.abs(drag.to - drag.from) >= 5) show(timeAt(Math.max(Math.min(drag.from, drag.to), gutter)), timeAt(Math.max(drag.from, drag.to)));
    else if (Math.abs(left - drag.from) < 5) tell(left, down);
    soon();
  });
  canvas.addEventListener("pointercancel", () => {
    chosen = null;
    soon();
  });
  canvas.addEventListener("pointerleave", () => {
    if (!chosen) tip.hidden = true;
  });
  canvas.addEventListener("dblclick", () => show(begin.since, begin.until));
  box.addEventListener("scroll", () => {
    tip.hidden = true;
    soon();
  });

  new ResizeObserver(() => {
    if (!runs) return;
    measure();
    soon();
  }).observe(document.getElementById("content"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
  for (const [event, paper] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      document.documentElement.toggleAttribute("data-paper", paper);
      if (runs) draw();
    });
  }

  box.hidden = false;
  box.setAttribute("tabindex", "0");
  document.getElementById("stream-hint").textContent = HINT;
  load();
})();
