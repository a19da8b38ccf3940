"use strict";
// One page about one profile, and another profile beside it if there is one. Everything shown is set as text, never as HTML.
// Of several programs, the address says which is shown: `page.html?program=2`.
const PROGRAMS = [JSON.parse(document.getElementById("profile").textContent)].flat();
const DATA = PROGRAMS[new URLSearchParams(location.search).get("program") - 1] ?? PROGRAMS[0];
const BEFORE = JSON.parse(document.getElementById("before").textContent);
const PHASES = ["compute", "exchange", "sync"], CATEGORIES = ["constants", "variables", "exchanged"];
const $ = id => document.getElementById(id);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const count = n => Math.round(n).toLocaleString("en-US");
const percent = x => (100 * x).toFixed(x < 0.0995 ? 1 : 0) + " %";
const bytes = n => n < 1024 ? `${count(n)} B` : n < 1048576 ? `${(n / 1024).toFixed(1)} KiB` : n < 1073741824 ? `${(n / 1048576).toFixed(1)} MiB` : `${(n / 1073741824).toFixed(2)} GiB`;
const time = cycles => { const s = cycles / DATA.target.clock_hz; return s < 1e-3 ? `${(s * 1e6).toFixed(1)} µs` : s < 1 ? `${(s * 1e3).toFixed(3)} ms` : `${s.toFixed(3)} s`; };

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter(c => c !== null && c !== undefined));
  return node;
}
const legend = names => el("div", { class: "legend" }, ...names.map(n => el("span", {}, el("i", { style: `background:var(--${n})` }), n)));
function bar(parts, most) {
  return el("span", { class: "bar", role: "img", "aria-label": parts.map(([n, v]) => `${n} ${count(v)}`).join(", ") },
    ...parts.map(([name, value]) => el("i", { style: `width:${100 * value / Math.max(most, 1)}%;background:var(--${name})` })));
}
const phases = entry => PHASES.map(name => [name, (entry[name] - (name === "exchange" ? entry.hidden ?? 0 : 0)) * (entry.count ?? 1)]);

// A table that sorts by its heads. columns: [title, value(row), shown(row) or null, numeric]
function table(columns, rows, { sort = null, limit = 500 } = {}) {
  let by = sort, down = true;
  const body = el("tbody"), note = el("p", { class: "note" });
  const heads = columns.map(([title, , , numeric], i) => el("th", { class: numeric ? "n" : null, scope: "col" },
    title ? el("button", { onclick: () => { down = by === i ? !down : true; by = i; fill(); } }, title) : ""));
  let shownRows = rows;
  function fill() {
    const ordered = by === null ? shownRows : [...shownRows].sort((a, b) => {
      const [x, y] = [columns[by][1](a), columns[by][1](b)];
      return (typeof x === "number" ? x - y : String(x).localeCompare(String(y))) * (down === (typeof x === "number") ? -1 : 1);
    });
    heads.forEach((h, i) => h.setAttribute("aria-sort", i !== by ? "none" : down ? "descending" : "ascending"));
    body.replaceChildren(...ordered.slice(0, limit).map(row => el("tr", {}, ...columns.map(([, value, shown, numeric], i) =>
      el("td", { class: numeric ? "n" : i === 0 ? "name" : null }, shown ? shown(row) : String(value(row)))))));
    note.textContent = ordered.length > limit ? `${count(limit)} of ${count(ordered.length)} rows; a filter finds the others` : "";
  }
  fill();
  const node = el("div", { class: "scroll" }, el("table", {}, columns.some(c => c[0]) ? el("thead", {}, el("tr", {}, ...heads)) : null, body), note);
  node.show = some => { shownRows = some; fill(); };
  return node;
}
function filtered(label, rows, text, show) {
  const input = el("input", { type: "search", placeholder: label, "aria-label": label, class: "filter" });
  input.addEventListener("input", () => { const wanted = input.value.toLowerCase(); show(rows.filter(r => text(r).toLowerCase().includes(wanted))); });
  return input;
}

// Canvas that is drawn again when its size or the colours change, with a tip under the pointer. `tall`: the height, or its function of the width.
function chart(label, tall, draw, { tip = null, click = null, keys = null } = {}) {
  const canvas = el("canvas", { role: "img", "aria-label": label, tabindex: keys ? "0" : null, style: `height:${typeof tall === "function" ? 120 : tall}px` });
  let height = tall;
  const redraw = () => {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
    if (!width) return;
    if (typeof tall === "function") canvas.style.height = `${height = tall(width)}px`;
    canvas.width = width * ratio; canvas.height = height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio); context.font = "11px system-ui";
    draw(context, width, height);
  };
  new ResizeObserver(redraw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  if (tip) {
    canvas.addEventListener("pointermove", e => hint(tip(e.offsetX, e.offsetY, canvas.clientWidth, height), e));
    canvas.addEventListener("pointerleave", () => hint(null));
  }
  if (click) canvas.addEventListener("click", e => click(e.offsetX, e.offsetY, canvas.clientWidth, height));
  if (keys) canvas.addEventListener("keydown", e => { if (keys(e.key)) { e.preventDefault(); e.stopPropagation(); redraw(); } });
  canvas.redraw = redraw;
  return canvas;
}
function hint(text, event) {
  $("tip").hidden = !text;
  if (!text) return;
  $("tip").textContent = text;
  $("tip").style.left = `${Math.min(event.clientX + 14, innerWidth - $("tip").offsetWidth - 8)}px`;
  $("tip").style.top = `${Math.min(event.clientY + 14, innerHeight - $("tip").offsetHeight - 8)}px`;
}
const expand = runs => { const all = []; for (const [value, n] of runs) for (let i = 0; i < n; i++) all.push(value); return all; };
// Round numbers from 0 to `most`, four to eight of them: of bytes, powers of two.
function ticks(most, base = 2) {
  if (base === 2) { let step = 2 ** Math.floor(Math.log2(Math.max(most, 8) / 4)); if (most / step > 8) step *= 2; return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step); }
  const rough = most / 5, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map(f => f * power).find(f => f >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => i * step);
}
const short = n => bytes(n).replace(".0 ", " ");
function axis(context, width, height, most, left, bottom, shown, right = null) {
  context.fillStyle = colour("dim"); context.strokeStyle = colour("line"); context.lineWidth = 1;
  for (const tick of ticks(most)) {
    const y = rise(height, tick / most);
    context.beginPath(); context.moveTo(left, y); context.lineTo(width - (right ? RIGHT : 0), y); context.stroke();
    context.fillText(shown(tick), 6, y + 4);
  }
  if (right) for (const tick of ticks(right)) { const y = rise(height, tick / right); context.fillText(shown(tick), width - RIGHT + 6, y + 4); }
}

// "3 to 9", "3 to 9 and 11 times more"
function spans(v) {
  const [[first, last], ...more] = v.spans;
  return `${first} to ${last}${more.length ? ` and ${more.length} times more` : ""}`;
}

// ---- views: each gives the nodes of its panel when it is first looked at
const LEFT = 72, RIGHT = 64, BOTTOM = 18, TOP = 12;
const rise = (height, share) => height - BOTTOM - share * (height - BOTTOM - TOP);

function summaryView() {
  const s = DATA.summary, t = DATA.target, m = DATA.memory, card = (name, value, ...small) => el("div", { class: "card" }, el("span", {}, name), el("b", {}, value), ...small.map(x => el("small", {}, x)));
  const kept = t.tile_bytes > m.limit ? ` (${bytes(t.tile_bytes)} without ${bytes(t.tile_bytes - m.limit)} for code and stack)` : "";
  const fit = s.fits ? `${percent(m.peak / m.limit)} of ${bytes(m.limit)}${kept} on tile ${m.tile}, at ${m.label}` : el("span", { class: "bad" }, `does not fit: ${bytes(m.peak - m.limit)} too much`);
  const shares = PHASES.map(name => [name, s[name + "_cycles"]]);
  return [
    el("div", { class: "cards" },
      card("estimated time", time(s.cycles), `${count(s.cycles)} cycles at ${(t.clock_hz / 1e9).toFixed(3)} GHz`),
      card("matrix units", percent(s.utilisation), `${count(s.flops)} operations, of the peak of ${t.name} for their types`, ...Object.keys(s).filter(k => k.endsWith("_utilisation")).map(k => `${k.slice(0, -12)} ${percent(s[k])}`)),
      card("fullest tile", bytes(m.peak), fit),
      card("exchanged", bytes(s.exchange_bytes), `${count(s.compute_sets)} compute sets`),
      card("tiles", `${count(s.tiles_used)} of ${count(t.tiles)}`, "that run a vertex at some time"),
      card("program", `${count(s.poplar_ops)} ops`, "at the poplar level"),
      card("host", bytes(s.host_bytes), "in and out of the machine in one run"),
      ...(s.collective_cycles ? [card("replicas meet", `${count(s.collective_cycles)} cycles`, `${count(s.collective_waits)} of them wait, if links work while tiles compute`)] : [])),
    ...meetings(), ...insights(),
    el("h2", {}, "Where the cycles go"), el("div", { class: "wide" }, bar(shares, s.cycles)),
    el("div", { class: "legend" }, ...shares.map(([name, v]) => el("span", {}, el("i", { style: `background:var(--${name})` }), `${name} ${percent(v / Math.max(s.cycles, 1))}`))),
    ...boundsTable(s),
    el("h2", {}, "The dearest ops"), opsTable(DATA.ops.slice(0, 12)),
    el("p", { class: "note" }, "Cycles are estimates of the machine model; nothing was measured. Keys: 1 to 9 choose a view, / goes to its filter, arrows move in tabs and charts."),
  ];
}
function meetings() {
  const found = DATA.steps.filter(s => s.kind === "collective" && s.cycles);
  if (!found.length) return [];
  return [el("h2", {}, "Where replicas meet"), table([["collective", s => s.label], ["op of the model", s => s.place], ["cycles", s => s.cycles, s => count(s.cycles), true], ["can overlap", s => s.cycles - s.waits, s => count(s.cycles - s.waits), true], ["waits", s => s.waits, s => count(s.waits), true]], found)];
}
const BOUNDS = ["matrix", "vector", "load", "exchange", "outside", "sync", "imbalance"];
function boundsTable(s) {
  const rows = BOUNDS.filter(name => name !== "outside" || s.at_outside_bound_cycles).map(name => { const own = DATA.steps.filter(x => x.bound === name); return { name, steps: own.length, cycles: own.reduce((sum, x) => sum + x.cycles * x.count, 0), alone: name === "imbalance" ? s.cycles - s.imbalance_cycles : s[`at_${name}_bound_cycles`] }; });
  if (s.imbalance_cycles === undefined) return [];
  return [el("h2", {}, "What bounds the steps"), table([["bound by", r => r.name], ["steps", r => r.steps, null, true], ["their cycles", r => r.cycles, r => count(r.cycles), true], ["the program if all else took no time", r => r.alone, r => `${count(r.alone)} cycles`, true]], rows),
    el("p", { class: "note" }, "Matrix: products at the matrix units' rate. Vector: other operations at the vector units' rate. Load: what vertices read. Outside: bytes to and from DRAM at the rate of all tiles. Imbalance: what the fullest tile computes beyond the mean; its last column is the program with all tiles alike.")];
}
function opsTable(rows) {
  const most = Math.max(...DATA.ops.map(o => o.cycles), 1), all = Math.max(DATA.summary.cycles, 1);
  return table([
    ["op of the model", o => o.name, opName],
    ["kind", kindOf, null],
    ["steps", o => o.steps.length, null, true],
    ["cycles", o => o.cycles, o => count(o.cycles), true],
    ["share", o => o.cycles / all, o => percent(o.cycles / all), true],
    ["by phase", o => o.cycles, o => bar(phases(o), most)],
    ["exchanged", o => o.bytes, o => bytes(o.bytes), true],
    ["operations", o => o.flops, o => count(o.flops), true],
  ], rows, { sort: 3 });
}
function kindOf(op) {
  const kinds = op.places.map(p => /\b(?:onnx|popart)\.(\w+)/.exec((DATA.ir[p]?.onnx ?? DATA.ir[p]?.popart ?? [])[0] ?? "")?.[1]?.replace(/_\d+$/, ""));
  return [...new Set(kinds.filter(Boolean))].join(" + ");
}
function opsView() {
  const rows = opsTable(DATA.ops);
  return [el("div", { class: "row" }, filtered("find an op", DATA.ops, o => `${o.name} ${o.places.join(" ")} ${kindOf(o)}`, rows.show), legend(PHASES), csvButton("ops", DATA.ops, ["name", "places", "cycles", "compute", "exchange", "sync", "bytes", "host_bytes", "flops", "vertices"])), rows];
}
function memoryView() {
  const m = DATA.memory, parts = CATEGORIES.map(c => expand(m.tiles[c] ?? [])), highest = expand(m.tiles.highest), tiles = highest.length;
  const top = Math.max(m.limit <= 8 * m.peak ? m.limit : 0, m.peak, 1);
  const limit = (context, width, height) => {
    context.fillStyle = colour("bad");
    if (m.limit > top) { context.fillText(`limit ${bytes(m.limit)}, far above`, width - 150, 10); return; }
    const y = rise(height, m.limit / top);
    context.strokeStyle = colour("bad"); context.setLineDash([5, 4]); context.beginPath(); context.moveTo(LEFT, y); context.lineTo(width, y); context.stroke(); context.setLineDash([]);
    context.fillText(`limit ${bytes(m.limit)}`, width - 110, y + 12);
  };
  const tileOf = (x, width) => Math.max(0, Math.min(tiles - 1, Math.floor((x - LEFT) / (width - LEFT) * tiles)));
  const perTile = chart("bytes on each tile at the peak", 220, (context, width, height) => {
    axis(context, width, height, top, LEFT, BOTTOM, short);
    const w = (width - LEFT) / tiles;
    for (let x = 0; x < width - LEFT; x++) {
      const first = Math.floor(x / w), end = Math.max(first + 1, Math.min(tiles, Math.ceil((x + 1) / w)));
      let low = 0;
      parts.forEach((part, i) => {
        let most = 0; for (let t = first; t < end; t++) most = Math.max(most, part[t] ?? 0);
        const [y, base] = [rise(height, (low + most) / top), rise(height, low / top)];
        context.fillStyle = colour(CATEGORIES[i]); context.fillRect(LEFT + x, y, 1, base - y); low += most;
      });
      let most = 0; for (let t = first; t < end; t++) most = Math.max(most, highest[t]);
      context.fillStyle = colour("dim"); context.fillRect(LEFT + x, rise(height, most / top) - 1, 1, 1.5);
    }
    limit(context, width, height);
    context.fillStyle = colour("dim"); context.fillText("tile 0", LEFT, height - 4); context.fillText(`tile ${tiles - 1}`, width - 60, height - 4);
  }, { tip: (x, y, width) => { const t = tileOf(x, width); return `tile ${t}\n` + CATEGORIES.map((c, i) => `${c} ${bytes(parts[i][t] ?? 0)}`).join("\n") + `\nhighest of the run ${bytes(highest[t])}`; } });
  const curve = m.curve, whole = Math.max(...curve.map(c => CATEGORIES.reduce((sum, k) => sum + c[k], 0)), 1);
  let chosen = m.step;
  const alive = el("div"), title = el("h2");
  const show = step => {
    chosen = Math.max(0, Math.min(curve.length - 1, step));
    const rows = DATA.variables.filter(v => v.spans.some(([first, last]) => first <= chosen && chosen <= last));
    const label = DATA.steps.find(s => s.live === chosen)?.label ?? "";
    title.textContent = `Alive at step ${chosen} ${label}: ${bytes(curve[chosen].fullest)} on its fullest tile`;
    alive.replaceChildren(variableTable(rows)); live.redraw();
  };
  const draw = (context, width, height) => {
    axis(context, width, height, whole, LEFT, BOTTOM, short, m.peak);
    const w = (width - LEFT - RIGHT) / curve.length;
    curve.forEach((c, i) => { let low = 0; CATEGORIES.forEach(k => { const [y, base] = [rise(height, (low + c[k]) / whole), rise(height, low / whole)]; context.fillStyle = colour(k); context.fillRect(LEFT + i * w, y, Math.max(w, 0.7), base - y); low += c[k]; }); });
    context.strokeStyle = colour("ink"); context.lineWidth = 1.5; context.beginPath();
    curve.forEach((c, i) => { const y = rise(height, c.fullest / Math.max(m.peak, 1)); i ? context.lineTo(LEFT + (i + .5) * w, y) : context.moveTo(LEFT + (i + .5) * w, y); }); context.stroke();
    const at = LEFT + (chosen + .5) * w;
    context.strokeStyle = colour("accent"); context.lineWidth = 1.5; context.strokeRect(LEFT + chosen * w - 1, TOP / 2, Math.max(w, 2) + 2, height - BOTTOM - TOP / 2);
    context.fillStyle = colour("accent"); context.beginPath(); context.moveTo(at - 5, height - BOTTOM + 8); context.lineTo(at + 5, height - BOTTOM + 8); context.lineTo(at, height - BOTTOM + 1); context.fill();
    context.fillStyle = colour("dim"); context.fillText("step 0", LEFT, height - 4); context.fillText(`step ${curve.length - 1}`, width - RIGHT - 50, height - 4);
  };
  const live = chart("bytes alive at each step; arrows choose a step", 220, draw, {
    tip: (x, y, width) => { const i = Math.max(0, Math.min(curve.length - 1, Math.floor((x - LEFT) / (width - LEFT - RIGHT) * curve.length))); return `step ${i} ${DATA.steps.find(s => s.live === i)?.label ?? ""}\nfullest tile ${bytes(curve[i].fullest)}\n` + CATEGORIES.map(k => `${k} ${bytes(curve[i][k])} on all tiles`).join("\n"); },
    click: (x, y, width) => show(Math.floor((x - LEFT) / (width - LEFT - RIGHT) * curve.length)),
    keys: key => { const by = { ArrowRight: 1, ArrowLeft: -1, PageUp: -20, PageDown: 20 }[key]; if (by) show(chosen + by); else if (key === "Home") show(0); else if (key === "End") show(curve.length - 1); else return false; return true; },
  });
  show(m.step);
  return [
    el("h2", {}, `Each tile when the program is at its peak (step ${m.step}, ${m.label})`), legend(CATEGORIES), perTile, el("p", { class: "note" }, "Grey: the most that the tile holds at any step."),
    el("h2", {}, "Step by step"), live, el("p", { class: "note" }, "Areas: bytes on all tiles. Line: bytes on the fullest tile, whose scale is on the right. Click a step, or move with the arrow keys."), title, alive,
  ];
}
function variableTable(rows) {
  return table([
    ["variable", v => v.label, v => v.layout ? el("button", { onclick: () => showTiles(v) }, v.label) : v.label],
    ["what", v => v.category], ["type", v => v.type ?? ""],
    ["most on a tile", v => v.largest, v => bytes(v.largest), true], ["on all tiles", v => v.bytes, v => bytes(v.bytes), true],
    ["steps", v => v.spans.reduce((sum, [first, last]) => sum + last - first, 0), spans, true],
  ], rows, { sort: 3, limit: 100 });
}
// "'add_3' + 'mul_4' + 'add_5'.reduce" as "add_3 + 2 more.reduce"
function briefly(label) { return label.replace(/'([^']+)'((?: \+ '[^']+')+)/g, (_, first, rest) => `${first} + ${rest.split(" + ").length - 1} more`).replace(/'([^']+)'/g, "$1"); }
// The text, or its beginning with an ellipsis; nothing where not even six letters fit.
function fitting(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 5 && context.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return length > 5 ? `${text.slice(0, length)}…` : "";
}
const hiding = s => s.hidden ? `; ${count(s.hidden)} of the exchange under the computing` : "";
function timelineView() {
  const steps = DATA.steps, starts = [0];
  for (const s of steps) starts.push(starts[starts.length - 1] + s.cycles * s.count);
  const total = Math.max(starts[starts.length - 1], 1);
  let from = 0, to = total, chosen = 0;
  const detail = el("div"), position = el("span", { class: "note" });
  const at = (x, width) => { const c = from + (x - LEFT) / (width - LEFT) * (to - from); let low = 0, high = steps.length - 1; while (low < high) { const mid = (low + high + 1) >> 1; if (starts[mid] <= c) low = mid; else high = mid - 1; } return low; };
  const draw = (context, width, height) => {
    const scale = (width - LEFT) / (to - from), rows = { compute: 8, exchange: 58, sync: 108 };
    context.fillStyle = colour("dim");
    for (const name of PHASES) context.fillText(name, 6, rows[name] + 21);
    context.save(); context.beginPath(); context.rect(LEFT, 0, width - LEFT, height); context.clip();
    steps.forEach((s, i) => {
      let x = LEFT + (starts[i] - from) * scale;
      const end = LEFT + (starts[i + 1] - from) * scale;
      if (end < LEFT || x > width) return;
      for (const name of ["sync", "exchange", "compute"]) { const w = s[name] * s.count * scale; if (name === "compute") x -= (s.hidden ?? 0) * s.count * scale; if (w > 0) { context.fillStyle = colour(name); context.globalAlpha = i === chosen ? 1 : .75; context.fillRect(x, rows[name], Math.max(w - .3, .5), 34); } x += w; }
      context.globalAlpha = 1;
      if (i === chosen) { context.strokeStyle = colour("accent"); context.lineWidth = 2; context.strokeRect(LEFT + (starts[i] - from) * scale, 4, Math.max(end - (LEFT + (starts[i] - from) * scale), 2), 142); }
    });
    let free = LEFT; // where the label before ends; the chosen step has its label whole
    context.fillStyle = colour("dim");
    steps.forEach((s, i) => {
      const x = LEFT + (starts[i] - from) * scale, end = LEFT + (starts[i + 1] - from) * scale;
      if (i === chosen) { context.fillText(briefly(s.label), x, 164); free = x + context.measureText(briefly(s.label)).width + 8; return; }
      if (end < LEFT || x > width || x < free) return;
      const text = fitting(context, briefly(s.label), end - x - 4);
      if (text) { context.fillText(text, x, 164); free = end; }
    });
    context.restore();
    context.fillStyle = colour("dim"); context.strokeStyle = colour("line"); context.lineWidth = 1;
    const unit = 1 / DATA.target.clock_hz;
    for (const tick of ticks((to - from) * unit, 10)) {
      const first = Math.ceil(from * unit / (ticks((to - from) * unit, 10)[1] ?? 1)) * (ticks((to - from) * unit, 10)[1] ?? 1), x = LEFT + ((first + tick) / unit - from) * scale;
      if (x > width - 20) continue;
      context.beginPath(); context.moveTo(x, height - 21); context.lineTo(x, height - 4); context.stroke(); context.fillText(time((first + tick) / unit), x + 3, height - 4);
    }
    position.textContent = `${time(from)} to ${time(to)} of ${time(total)}`;
  };
  const zoom = (factor, middle) => { const span = Math.min(total, Math.max((to - from) * factor, total / 1e5)); from = Math.max(0, Math.min(total - span, middle - (middle - from) / (to - from) * span)); to = from + span; };
  const show = i => {
    chosen = Math.max(0, Math.min(steps.length - 1, i));
    const s = steps[chosen];
    if (!s) return;
    if (starts[chosen] < from || starts[chosen + 1] > to) { const span = to - from; from = Math.max(0, Math.min(total - span, starts[chosen] - span / 4)); to = from + span; }
    detail.replaceChildren(el("h2", {}, `Step ${chosen}: ${s.label}`), table([["", r => r[0]], ["", r => r[1]]], [
      ["op of the model", s.place], ...(s.call ? [["function", `@${s.call}`]] : []), ["what", s.codelets.join(", ") || s.kind], ["runs", count(s.count) + (s.guessed ? ", guessed" : "")], ["vertices", count(s.vertices)], ["cycles of one run", `${count(s.cycles)}: compute ${count(s.compute)}, exchange ${count(s.exchange)}, sync ${count(s.sync)}${hiding(s)}`],
      ...(s.bound ? [["bound by", `${s.bound}, which alone would take ${count(s.bound_cycles)} cycles: ${percent(s.bound_cycles / Math.max(s.cycles, 1))} of the step`]] : []), ["received from other tiles", bytes(s.bytes)], ["operations", count(s.flops)], ["fullest tile", s.tile_bytes === null ? "" : bytes(s.tile_bytes)]]));
    canvas.redraw();
  };
  const canvas = chart("steps over time; arrows choose a step, plus and minus zoom", 190, draw, {
    tip: (x, y, width) => { const s = steps[at(x, width)]; return s ? `${s.label}\n${s.codelets.join(", ") || s.kind}${s.count > 1 ? `, ${count(s.count)} times${s.guessed ? " (guessed)" : ""}` : ""}\n${count(s.cycles)} cycles: compute ${count(s.compute)}, exchange ${count(s.exchange)}, sync ${count(s.sync)}${hiding(s)}` : null; },
    click: (x, y, width) => show(at(x, width)),
    keys: key => { const middle = (starts[chosen] + starts[chosen + 1]) / 2; if (key === "ArrowRight") show(chosen + 1); else if (key === "ArrowLeft") show(chosen - 1); else if (key === "+" || key === "=") zoom(.6, middle); else if (key === "-") zoom(1 / .6, middle); else if (key === "0") { from = 0; to = total; } else return false; return true; },
  });
  let held = null;
  canvas.addEventListener("pointerdown", e => { held = [e.offsetX, from]; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", e => { if (!held) return; const span = to - from; from = Math.max(0, Math.min(total - span, held[1] - (e.offsetX - held[0]) / (canvas.clientWidth - LEFT) * span)); to = from + span; canvas.redraw(); });
  canvas.addEventListener("wheel", e => { e.preventDefault(); zoom(e.deltaY < 0 ? .8 : 1.25, from + (e.offsetX - LEFT) / (canvas.clientWidth - LEFT) * (to - from)); canvas.redraw(); }, { passive: false });
  const button = (text, label, action) => el("button", { class: "link", "aria-label": label, onclick: () => { action(); canvas.redraw(); } }, text);
  show(steps.reduce((best, s, i) => s.cycles * s.count > steps[best].cycles * steps[best].count ? i : best, 0));
  return [legend(PHASES), canvas, el("div", { class: "row" }, button("zoom in", "zoom in", () => zoom(.5, (from + to) / 2)), button("zoom out", "zoom out", () => zoom(2, (from + to) / 2)), button("all", "show all", () => { from = 0; to = total; }), position, csvButton("steps", DATA.steps, ["label", "place", "kind", "count", "call", "cycles", "compute", "exchange", "sync", "hidden", "bytes", "host_bytes", "flops", "vertices", "tile_bytes"]), traceButton()),
    el("p", { class: "note" }, "A step syncs, exchanges, computes. Where both tracks overlap, data moves under the computing. The wheel, + and - zoom, 0 shows all; drag to move; arrows walk from step to step."), detail];
}
const partBounds = (n, parts, grain) => { const grains = Math.ceil(n / grain), q = Math.floor(grains / parts), r = grains % parts; return j => Math.min((j * q + Math.min(j, r)) * grain, n); };
function owned(layout, tile, tiles) { // [begin, end] of each dimension on a tile, or null
  const number = (tile - layout.start + tiles) % tiles, cells = layout.splits.reduce((product, s) => product * s[1], 1);
  if (number >= cells) return null;
  let rest = number; const part = layout.splits.map(() => 0);
  for (const d of [...layout.order].reverse()) { part[d] = rest % layout.splits[d][1]; rest = Math.floor(rest / layout.splits[d][1]); }
  return layout.splits.map(([n, parts, grain], d) => { const at = partBounds(n, parts, grain); return [at(part[d]), at(part[d] + 1)]; });
}
let tileChoice = null;
function tilesView() {
  const variables = DATA.variables.filter(v => v.layout), tiles = DATA.target.tiles, wide = Math.ceil(Math.sqrt(tiles * 1.9)), high = Math.ceil(tiles / wide);
  let variable = variables.reduce((a, b) => (b.bytes > a.bytes ? b : a), variables[0]), cursor = 0, sizes = [];
  const title = el("h2"), text = el("p", { class: "note" }), reading = el("p", { "aria-live": "polite" });
  const select = el("select", { "aria-label": "variable", onchange: () => choose(variables[Number(select.value)]) });
  const fill = some => select.replaceChildren(...some.slice(0, 2000).map(v => el("option", { value: variables.indexOf(v) }, `${v.label}  (${v.category}, ${v.type})`)));
  const size = () => Math.max(3, Math.min(22, Math.floor(((grid.clientWidth || 900) - 10) / wide)));
  const describe = tile => { const box = owned(variable.layout, tile, tiles); return `tile ${tile}: ` + (box && sizes[tile] ? `${bytes(sizes[tile])}, elements [${box.map(([a, b]) => b - a === 1 ? `${a}` : `${a}:${b}`).join(", ")}]` : "nothing of it"); };
  const grid = chart("which tile has how much of the variable; arrows move from tile to tile", () => high * Math.min(size(), 14) + 10, (context, width) => {
    const s = size(), most = Math.max(...sizes, 1);
    for (let t = 0; t < tiles; t++) {
      const [x, y] = [5 + (t % wide) * s, 5 + Math.floor(t / wide) * Math.min(s, 14)];
      context.globalAlpha = 1; context.fillStyle = colour("line"); context.fillRect(x, y, s - 1, Math.min(s, 14) - 1);
      if (sizes[t]) { context.globalAlpha = .25 + .75 * sizes[t] / most; context.fillStyle = colour(variable.category); context.fillRect(x, y, s - 1, Math.min(s, 14) - 1); }
      if (t === cursor) { context.globalAlpha = 1; context.strokeStyle = colour("ink"); context.lineWidth = 1.5; context.strokeRect(x - .5, y - .5, s, Math.min(s, 14)); }
    }
    context.globalAlpha = 1;
  }, {
    tip: (x, y) => { const s = size(), column = Math.floor((x - 5) / s), t = Math.floor((y - 5) / Math.min(s, 14)) * wide + column; return column >= 0 && column < wide && t >= 0 && t < tiles ? describe(t) : null; },
    keys: key => { const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide }[key]; if (!by) return false; cursor = Math.max(0, Math.min(tiles - 1, cursor + by)); reading.textContent = describe(cursor); return true; },
  });
  function choose(v) {
    variable = v;
    const cells = v.layout.splits.reduce((product, s) => product * s[1], 1);
    sizes = Array.from({ length: tiles }, (_, t) => { const number = (t - v.layout.start + tiles) % tiles; if (number >= cells) return 0; return owned(v.layout, t, tiles).reduce((product, [a, b]) => product * (b - a), 1) * v.layout.element_bytes; });
    cursor = v.layout.start % tiles;
    title.textContent = `${v.label}: ${v.type}`;
    text.textContent = `${v.layout.text}; ${bytes(v.bytes)} on ${count(sizes.filter(Boolean).length)} tiles, ${bytes(v.largest)} on the fullest; ${v.address === null ? "" : `at address ${count(v.address)}; `}alive from step ${spans(v)}; ${v.place}`;
    reading.textContent = describe(cursor);
    select.value = String(variables.indexOf(v));
    grid.redraw();
  }
  if (!variable) return [el("p", {}, "The program has no variables.")];
  fill(variables); choose(variable); tileChoice = choose;
  return [el("div", { class: "row" }, filtered("find a variable", variables, v => `${v.label} ${v.category} ${v.type}`, some => { fill(some); if (some.length) choose(some[0]); }), select), title, text, grid, reading];
}
function programView() {
  const most = Math.max(...DATA.steps.map(s => s.cycles * s.count), 1);
  const leaf = i => { const s = DATA.steps[i]; return el("div", { class: "leaf" }, el("span", { class: "n" }, count(s.cycles)), bar(phases(s), most), el("span", { title: s.label }, `${s.codelets.join(", ") || s.kind}  ${briefly(s.label)}`)); };
  const node = n => n.step !== undefined ? leaf(n.step) : el("details", { open: true }, el("summary", {}, `${n.op}${n.label && n.label !== n.op ? ` ${n.label}` : ""}`), ...n.blocks.flat().map(node));
  return [legend(PHASES), ...DATA.tree.map(node)];
}
let irChoice = null;
function irView() {
  const names = Object.keys(DATA.ir), columns = el("div", { class: "columns" }), title = el("h2"), costs = el("p", { class: "note" });
  const select = el("select", { "aria-label": "op of the model", onchange: () => choose(select.value) });
  const fill = some => select.replaceChildren(...some.slice(0, 3000).map(n => el("option", { value: n }, n)));
  function choose(name) {
    let like = name; // whose ops stand for it in a function
    for (const seen = new Set(); DATA.shared?.[like]?.like !== undefined && !seen.has(like); like = DATA.shared[like].like) seen.add(like);
    const levels = { ...DATA.ir[like], ...DATA.ir[name] }, functions = DATA.shared?.[name]?.functions ?? [], mine = DATA.ops.filter(o => o.places.includes(name));
    title.textContent = name; select.value = name;
    costs.textContent = mine.map(o => `${o.name}: ${count(o.cycles)} cycles in ${o.steps.length} steps`).join("; ") || "no step of its own";
    if (functions.length) costs.textContent += `. In ${functions.map(f => `@${f}`).join(", ")}` + (like === name ? "" : `, whose ops have the names of its first call: ${like}`);
    columns.replaceChildren(...Object.entries(levels).map(([level, texts]) => el("section", {}, el("h3", {}, `${level}: ${texts.length} op${texts.length === 1 ? "" : "s"}`), ...texts.map(t => el("pre", {}, t)))));
  }
  if (!names.length) return [el("p", {}, "No op of the program knows which op of a model it came from.")];
  fill(names); irChoice = choose; choose(DATA.ops.flatMap(o => o.places)[0] ?? names[0]);
  return [el("div", { class: "row" }, filtered("find an op", names, n => n, some => { fill(some); if (some.length) choose(some[0]); }), select), title, costs, columns];
}
const NEUTRAL = ["tiles_used", "flops", "host_bytes"];
// Fusion joins ops: those of both profiles that have an op of the model in common are one row.
function matched(before, now) {
  const leader = new Map(), find = x => { while (leader.get(x) !== x) x = leader.get(x); return x; };
  const keys = op => op.places.length ? op.places : [op.name];
  for (const op of [...before, ...now]) { for (const k of keys(op)) if (!leader.has(k)) leader.set(k, k); for (const k of keys(op)) leader.set(find(k), find(keys(op)[0])); }
  const rows = new Map();
  const add = (op, cycles, moved) => {
    const at = find(keys(op)[0]), row = rows.get(at) ?? { names: new Set(), a: 0, b: 0, x: 0, y: 0 };
    keys(op).forEach(k => row.names.add(k)); row[cycles] += op.cycles; row[moved] += op.bytes; rows.set(at, row);
  };
  before.forEach(op => add(op, "a", "x")); now.forEach(op => add(op, "b", "y"));
  return [...rows.values()].map(row => ({ ...row, name: [...row.names].join(" + ") }));
}
function differenceView() {
  const change = (a, b) => b === a ? "" : a ? `${b > a ? "+" : ""}${(100 * (b - a) / a).toFixed(1)} %` : "new";
  const shown = (a, b, key) => el("span", { class: a === b || NEUTRAL.includes(key) ? null : (b < a) === (key !== "utilisation") ? "less" : "more" }, change(a, b));
  const keys = Object.keys(DATA.summary).filter(k => typeof DATA.summary[k] === "number" && typeof BEFORE.summary[k] === "number");
  const number = x => Number.isInteger(x) ? count(x) : x.toPrecision(4);
  const rows = matched(BEFORE.ops, DATA.ops).filter(r => r.a !== r.b || r.x !== r.y);
  const ops = table([["op of the model", r => r.name], ["cycles before", r => r.a, r => count(r.a), true], ["now", r => r.b, r => count(r.b), true], ["difference", r => Math.abs(r.b - r.a), r => count(r.b - r.a), true], ["change", r => r.b / Math.max(r.a, 1), r => shown(r.a, r.b), true], ["exchanged before", r => r.x, r => bytes(r.x), true], ["now", r => r.y, r => bytes(r.y), true]], rows, { sort: 3 });
  return [el("h2", {}, `${BEFORE.title} on ${BEFORE.target.name}, ${count(BEFORE.target.tiles)} tiles; now ${DATA.title} on ${DATA.target.name}, ${count(DATA.target.tiles)} tiles`),
    table([["total", k => k], ["before", k => BEFORE.summary[k], k => number(BEFORE.summary[k]), true], ["now", k => DATA.summary[k], k => number(DATA.summary[k]), true], ["change", k => DATA.summary[k] - BEFORE.summary[k], k => shown(BEFORE.summary[k], DATA.summary[k], k), true]], keys),
    el("h2", {}, "Ops whose cycles or bytes differ"), el("div", { class: "row" }, filtered("find an op", rows, r => r.name, ops.show)), ops];
}
function showIr(name) { select("ir"); if (name !== undefined) irChoice?.(name); }
function showTiles(variable) { select("tiles"); tileChoice?.(variable); }

// ---- tabs
const VIEWS = [["summary", "Summary", summaryView], ["ops", "Ops", opsView], ["memory", "Memory", memoryView], ["timeline", "Timeline", timelineView], ["tiles", "Tiles", tilesView], ["program", "Program", programView], ["ir", "IR by level", irView], ["balance", "Balance", balanceView], ...(BEFORE ? [["difference", "Difference", differenceView]] : [])];
const made = new Set();
function select(id, focus = false) {
  for (const [name, , make] of VIEWS) {
    const tab = $("tab-" + name), panel = $("panel-" + name), chosen = name === id;
    tab.setAttribute("aria-selected", chosen); tab.tabIndex = chosen ? 0 : -1; panel.hidden = !chosen;
    if (chosen && !made.has(name)) { made.add(name); panel.replaceChildren(...make()); }
    if (chosen && focus) tab.focus();
  }
  hint(null);
  history.replaceState(null, "", "#" + id);
}
document.body.append(
  el("header", {}, el("h1", {}, DATA.title), el("p", {}, `${DATA.target.name}: ${count(DATA.target.tiles)} tiles of ${bytes(DATA.target.tile_bytes)}; ${DATA.pipeline.length} passes`),
    el("p", { title: `SHA-256 of the model: ${DATA.model_hash}` }, [DATA.made_by, DATA.model_hash ? `model ${DATA.model_hash.slice(0, 12)}` : null].filter(Boolean).join("; ")),
    el("details", {}, el("summary", {}, "the pipeline"), el("pre", {}, DATA.pipeline.join("\n"))),
    PROGRAMS.length > 1 ? el("nav", { "aria-label": "programs" }, ...PROGRAMS.map((p, i) => el("a", { href: `?program=${i + 1}`, "aria-current": p === DATA ? "page" : null }, p.title, ` (${count(p.summary.cycles)} cycles)`))) : null),
  el("nav", { "aria-label": "views" }, el("div", { role: "tablist", "aria-label": "views" }, ...VIEWS.map(([id, title], i) => el("button", { role: "tab", id: "tab-" + id, "aria-controls": "panel-" + id, onclick: () => select(id) }, title, el("kbd", { "aria-hidden": "true" }, String(i + 1)))))),
  el("main", {}, ...VIEWS.map(([id]) => el("div", { role: "tabpanel", id: "panel-" + id, "aria-labelledby": "tab-" + id, tabindex: "0", hidden: true }))),
  el("div", { id: "tip", role: "tooltip", hidden: true }));
document.addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
  const ids = VIEWS.map(v => v[0]), now = ids.indexOf(location.hash.slice(1));
  if (/^[1-9]$/.test(e.key) && ids[e.key - 1]) select(ids[e.key - 1], true);
  else if (e.key === "/") { const input = document.querySelector("[role=tabpanel]:not([hidden]) .filter"); if (!input) return; input.focus(); }
  else if (e.target.getAttribute?.("role") === "tab" && (e.key === "ArrowRight" || e.key === "ArrowLeft")) select(ids[(now + (e.key === "ArrowRight" ? 1 : ids.length - 1)) % ids.length], true);
  else return;
  e.preventDefault();
});
select(VIEWS.some(v => v[0] === location.hash.slice(1)) ? location.hash.slice(1) : "summary");
