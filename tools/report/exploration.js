"use strict";
// One page about one exploration. Everything shown is set as text, never as HTML.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg", PARTS = ["compute", "exchange", "sync", "outside"];
const HUES = ["#2f6fde", "#c8382e", "#2a8f6d", "#b0761a", "#8453c4", "#c2478f", "#3c8ea0", "#7d7f35", "#5d6b86", "#9a5a3c"];
const UNITS = { seconds: "s", ...Object.fromEntries(["", "_least", "_greatest"].flatMap(e => [[`energy${e}`, "J"], [`power${e}`, "W"], [`area${e}`, "mm²"]])), memory: "B", sram: "B", exchange: "B", outside: "B", throughput: "1/s" };
const POINTS = DATA.points.filter(p => p.measures), AXES = DATA.axes.map(a => a.name), NUMBERS = new Map(POINTS.map(p => [p.point, p]));
const COMPARED = POINTS.filter(p => !p.why), FRONT = COMPARED.filter(p => p.front).sort((a, b) => a.measures[DATA.minimise[0]] - b.measures[DATA.minimise[0]]);
let chosen = (FRONT[0] ?? COMPARED[0] ?? POINTS[0])?.point, brushed = null;

function make(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter(c => c !== null && c !== undefined));
  return node;
}
const el = (tag, attributes = {}, ...children) => make(document.createElement(tag), attributes, children);
const shape = (tag, attributes = {}, ...children) => make(document.createElementNS(SVG, tag), attributes, children);
const count = n => Math.round(n).toLocaleString("en-US");
function engineering(v) {
  if (!v) return "0";
  const power = Math.max(-4, Math.min(4, Math.floor(Math.log10(Math.abs(v)) / 3)));
  return `${+(v / 10 ** (3 * power)).toPrecision(4)} ${["p", "n", "µ", "m", "", "k", "M", "G", "T"][power + 4]}`;
}
function shown(name, v) {
  if (UNITS[name] === "B") return v < 1024 ? `${count(v)} B` : v < 1048576 ? `${(v / 1024).toFixed(1)} KiB` : v < 1073741824 ? `${(v / 1048576).toFixed(1)} MiB` : `${(v / 1073741824).toFixed(2)} GiB`;
  if (name === "utilisation") return `${(100 * v).toFixed(1)} %`;
  if (UNITS[name] && UNITS[name] !== "mm²") return engineering(v) + UNITS[name];
  return (Number.isInteger(v) || v >= 1000 ? count(v) : +v.toPrecision(4)) + (UNITS[name] ? ` ${UNITS[name]}` : "");
}
const setting = (name, v) => typeof v !== "number" ? String(v) : name.endsWith("bytes") && v >= 1024 && v % 1024 === 0 ? `${count(v / 1024)} KiB` : count(v) === "0" && v ? String(v) : v.toLocaleString("en-US");
const settings = p => AXES.map(a => `${a} ${setting(a, p.settings[a])}`).join(", ") || DATA.machine;
const value = (p, name) => name in p.measures ? p.measures[name] : p.settings[name];

// ---- scatter
const choice = (label, names, start, change) => {
  const select = el("select", { onchange: () => change(select.value) }, ...names.map(n => el("option", { value: n, selected: n === start }, n)));
  return el("label", {}, label, select);
};
const numeric = DATA.axes.filter(a => a.values.every(v => typeof v === "number")).map(a => a.name);
let across = DATA.minimise[1] ?? "memory", up = DATA.minimise[0], colouring = AXES.find(a => new Set(POINTS.map(p => p.settings[a])).size > 1) ?? "front";
const plot = shape("svg", { role: "application", tabindex: "0", "aria-describedby": "keys" });
function colourOf() {
  if (colouring === "front") return p => p.front ? HUES[0] : HUES[8];
  const values = DATA.axes.find(a => a.name === colouring).values;
  const many = values.length > HUES.length && typeof values[0] === "number";
  return p => { const i = values.indexOf(p.settings[colouring]); return many ? `hsl(${250 - 250 * i / (values.length - 1)} 65% 48%)` : HUES[i % HUES.length]; };
}
function scale(values, from, to, bytes = false) {
  const least = Math.min(...values), most = Math.max(...values), logarithmic = least > 0 && most / least > 8;
  const f = logarithmic ? Math.log : v => v, pad = (f(most) - f(least)) * .05 || Math.abs(f(most)) * .05 || 1, low = f(least) - pad, high = f(most) + pad;
  const to01 = v => from + (f(v) - low) / (high - low) * (to - from);
  const ticks = [];
  if (logarithmic && bytes) for (let t = 2 ** Math.floor(Math.log2(least)); t <= most; t *= 2) ticks.push(t);
  else if (logarithmic) for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power++) for (const k of [1, 2, 5]) ticks.push(k * 10 ** power);
  else { const rough = (most - least) / 4 || Math.abs(most) || 1, base = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map(k => k * base).find(s => s >= rough); for (let t = Math.ceil(least / step) * step; t <= most + 1e-12 * step; t += step) ticks.push(t); }
  return { at: to01, ticks: ticks.filter(t => f(t) >= low && f(t) <= high), back: x => { const v = low + (x - from) / (to - from) * (high - low); return logarithmic ? Math.exp(v) : v; } };
}
let scales = null;
function frame(svg, width, height, xs, ys, xname, yname, left = 74) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  const x = scale(xs, left, width - 16, UNITS[xname] === "B"), y = scale(ys, height - 40, 26, UNITS[yname] === "B");
  let above = 1e9;
  for (const t of y.ticks) if (above - y.at(t) > 14) { above = y.at(t); svg.append(shape("line", { class: "grid", x1: left, x2: width - 16, y1: y.at(t), y2: y.at(t) }), shape("text", { x: left - 6, y: y.at(t) + 4, "text-anchor": "end" }, shown(yname, t))); }
  let last = -1e9;
  for (const t of x.ticks) if (x.at(t) - last > 70) { last = x.at(t); svg.append(shape("line", { class: "grid", x1: x.at(t), x2: x.at(t), y1: 26, y2: height - 40 }), shape("text", { x: x.at(t), y: height - 24, "text-anchor": "middle" }, shown(xname, t))); }
  svg.append(shape("text", { x: (left + width) / 2, y: height - 7, "text-anchor": "middle" }, xname), shape("text", { x: 6, y: 11 }, yname));
  return { x, y };
}
function drawPlot() {
  const width = Math.max(plot.clientWidth, 280), height = width < 600 ? 320 : 440, colour = colourOf();
  if (!POINTS.length) return;
  scales = frame(plot, width, height, POINTS.map(p => value(p, across)), POINTS.map(p => value(p, up)), across, up);
  const at = p => [scales.x.at(value(p, across)), scales.y.at(value(p, up))];
  if (DATA.less.includes(across) && DATA.less.includes(up)) { // the front of these two measures, as stairs
    const stairs = [];
    for (const p of [...COMPARED].sort((a, b) => value(a, across) - value(b, across) || value(a, up) - value(b, up)))
      if (!stairs.length || value(p, up) < value(stairs[stairs.length - 1], up)) stairs.push(p);
    plot.append(shape("path", { class: "front", d: stairs.map((p, i) => `${i ? `H${at(p)[0]}V` : `M${at(p)[0]} `}${at(p)[1]}`).join("") }));
  }
  for (const p of POINTS) {
    const [cx, cy] = at(p), out = p.why || (brushed && !brushed.has(p.point));
    plot.append(shape("circle", { class: `dot${p.front ? " on" : ""}${out ? " out" : ""}${p.point === chosen ? " chosen" : ""}`, cx, cy, r: p.front ? 6 : 4.5, fill: colour(p), "data-point": p.point }, shape("title", {}, `point ${p.point}: ${settings(p)}\n${up} ${shown(up, value(p, up))}, ${across} ${shown(across, value(p, across))}${p.why ? `\n${p.why}` : ""}`)));
  }
  const c = NUMBERS.get(chosen);
  plot.setAttribute("aria-label", `${up} over ${across} of ${POINTS.length} points. Chosen: point ${chosen}, ${settings(c)}, ${up} ${shown(up, value(c, up))}, ${across} ${shown(across, value(c, across))}`);
  const axis = DATA.axes.find(a => a.name === colouring), used = axis ? axis.values.filter(v => POINTS.some(p => p.settings[colouring] === v)) : [];
  legend.replaceChildren(...(axis ? used.slice(0, 14).map(v => el("span", {}, el("i", { style: `background:${colour({ settings: { [colouring]: v } })}` }), setting(colouring, v))) : []), el("span", {}, "ringed: on the front; pale: not compared, or not selected"));
}
let begun = null, box = null;
const place = e => { const r = plot.getBoundingClientRect(), view = plot.viewBox.baseVal; return [(e.clientX - r.left) / r.width * view.width, (e.clientY - r.top) / r.height * view.height]; };
plot.addEventListener("pointerdown", e => { if (e.button === 0 && e.pointerType !== "touch") { begun = place(e); plot.setPointerCapture(e.pointerId); } });
plot.addEventListener("pointermove", e => {
  if (!begun) return;
  const [x, y] = place(e);
  if (!box) plot.append(box = shape("rect", { class: "brush" }));
  for (const [k, v] of Object.entries({ x: Math.min(x, begun[0]), y: Math.min(y, begun[1]), width: Math.abs(x - begun[0]), height: Math.abs(y - begun[1]) })) box.setAttribute(k, v);
});
plot.addEventListener("pointerup", e => {
  if (!begun) return;
  const [x, y] = place(e), [x0, y0] = begun;
  begun = null; box?.remove(); box = null;
  if (Math.hypot(x - x0, y - y0) < 6) return; // a click
  const inside = (v, a, b) => v >= Math.min(a, b) && v <= Math.max(a, b);
  brushed = new Set(POINTS.filter(p => inside(scales.x.at(value(p, across)), x, x0) && inside(scales.y.at(value(p, up)), y, y0)).map(p => p.point));
  drawPlot(); fillTable();
});
plot.addEventListener("click", e => { const [x, y] = place(e); let best = null, distance = 18; for (const p of POINTS) { const d = Math.hypot(scales.x.at(value(p, across)) - x, scales.y.at(value(p, up)) - y); if (d < distance) [best, distance] = [p, d]; } if (best) choose(best.point); });
plot.addEventListener("keydown", e => {
  const along = FRONT.length ? FRONT : POINTS, i = along.findIndex(p => p.point === chosen), step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
  if (e.key === "Escape") { brushed = null; drawPlot(); fillTable(); }
  if (!step) return;
  e.preventDefault();
  choose(along[(i + step + along.length) % along.length].point);
});
const legend = el("div", { class: "legend" });

// ---- table
let by = DATA.minimise[0], down = false, all = false;
const body = el("tbody"), note = el("p", { class: "note", "aria-live": "polite" });
const columns = ["point", ...AXES, ...new Set([...DATA.minimise, "seconds", "memory", "energy", "area", "utilisation"])];
const heads = columns.map(name => el("th", { class: "n", scope: "col" }, el("button", { onclick: () => { down = by === name ? !down : false; by = name; fillTable(); } }, name)));
const cell = (p, name) => name === "point" ? p.point : value(p, name);
function fillTable() {
  const rows = POINTS.filter(p => brushed ? brushed.has(p.point) : all || p.front).sort((a, b) => { const [x, y] = [cell(a, by), cell(b, by)]; return (typeof x === "number" ? x - y : String(x).localeCompare(String(y))) * (down ? -1 : 1); });
  heads.forEach((h, i) => h.setAttribute("aria-sort", columns[i] !== by ? "none" : down ? "descending" : "ascending"));
  body.replaceChildren(...rows.slice(0, 1000).map(p => el("tr", { class: p.point === chosen ? "chosen" : null }, ...columns.map(name => el("td", { class: "n" },
    name === "point" ? el("button", { onclick: () => choose(p.point), "aria-pressed": p.point === chosen ? "true" : "false" }, `${p.point}${p.front ? " ★" : ""}`) : name in p.measures ? shown(name, p.measures[name]) : setting(name, p.settings[name]))))));
  note.textContent = `${count(rows.length)} points${brushed ? " selected; Escape in the plot shows the front again" : all ? "" : " of the front"}. ★: on the front.`;
}

// ---- one point
let other = null;
const panel = el("section", { "aria-label": "the chosen point" });
const partsBar = (op, most) => el("span", { class: "bar", role: "img", "aria-label": PARTS.map(n => `${n} ${count(op[n])}`).join(", ") }, ...PARTS.map(n => el("i", { class: n, style: `width:${100 * op[n] / Math.max(most, 1)}%;background:var(--${n === "outside" ? "constants" : n})` })));
const partsLegend = () => el("div", { class: "legend" }, ...PARTS.map(n => el("span", {}, el("i", { style: `background:var(--${n === "outside" ? "constants" : n})` }), n === "outside" ? "memory outside" : n)));
const TEXTS = new Set(["reason", "source"]); // columns of sentences, which wrap
const bound = op => PARTS.reduce((a, b) => op[b] > op[a] ? b : a);
const table = (label, titles, rows) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, el("table", {}, el("thead", {}, el("tr", {}, ...titles.map((t, i) => el("th", { scope: "col", class: i && !TEXTS.has(t) ? "n" : null }, t)))), el("tbody", {}, ...rows.map(r => el("tr", {}, ...r.map((c, i) => el("td", { class: !i ? "name" : TEXTS.has(titles[i]) ? "text" : "n" }, c)))))));
function choose(number) { chosen = number; drawPlot(); fillTable(); drawPanel(); }
const delta = (a, b) => !b ? "" : `${a >= b ? "+" : ""}${(100 * (a - b) / b).toFixed(1)} %`;
function drawPanel() {
  const p = NUMBERS.get(chosen), q = other === null ? null : NUMBERS.get(other), detail = DATA.details[chosen], before = q && DATA.details[other];
  const spread = DATA.axes.filter(a => a.kind === "spread"), others = DATA.axes.filter(a => a.kind !== "machine" && a.kind !== "spread");
  const models = DATA.models.map(m => m.name), target = `"${p.target}"`;
  const versus = el("select", { onchange: () => { other = versus.value === "" ? null : +versus.value; drawPanel(); } }, el("option", { value: "" }, "no other point"),
    ...(FRONT.length ? FRONT : POINTS).filter(f => f.point !== chosen).map(f => el("option", { value: f.point, selected: f.point === other }, `${f.point}: ${settings(f)}`)));
  const nodes = [el("h2", {}, `Point ${p.point}${p.front ? ", on the front" : ""}`), el("p", {}, settings(p), p.why ? el("span", { class: "bad" }, `: ${p.why}`) : null),
    el("div", { class: "row" }, el("label", {}, "compare with", versus)),
    table("measures", q ? ["measure", `point ${p.point}`, `point ${q.point}`, "change"] : ["measure", `point ${p.point}`], DATA.measured.map(n => q ? [n, shown(n, p.measures[n]), shown(n, q.measures[n]), delta(p.measures[n], q.measures[n])] : [n, shown(n, p.measures[n])])),
    el("h3", {}, "The same program again"), el("pre", { tabindex: "0" }, (spread.length ? `populus explore ${models.join(" ")} --machine ${target} ${spread.map(a => `--vary ${a.name}=${p.settings[a.name]}`).join(" ")} --html page.html` : models.map(m => `populus profile ${m} --target ${target} --html page.html`).join("\n")) + (others.length ? `\n# with ${others.map(a => `${a.name} = ${p.settings[a.name]}`).join(", ")}` : ""))];
  if (detail) {
    const ops = detail.ops, most = ops[0]?.cycles ?? 1, old = new Map((before?.ops ?? []).map(o => [o.name, o]));
    const total = PARTS.map(n => [n, ops.reduce((s, o) => s + o[n], 0)]), whole = Object.fromEntries(total);
    nodes.push(el("h3", {}, `Bounded by ${bound(whole) === "outside" ? "memory outside" : bound(whole)}`), el("div", { class: "wide" }, partsBar(whole, total.reduce((s, [, v]) => s + v, 0))), partsLegend(),
      el("h3", {}, "Ops of the model"), table("ops", ["op", "cycles", ...(before ? ["change"] : []), "bounded by", "parts"], ops.slice(0, 60).map(o => [o.name, count(o.cycles), ...(before ? [old.has(o.name) ? `${o.cycles >= old.get(o.name).cycles ? "+" : ""}${count(o.cycles - old.get(o.name).cycles)}` : "new"] : []), bound(o) === "outside" ? "memory outside" : bound(o), partsBar(o, most)])),
      el("h3", {}, "Roofline"), roofline(detail), el("p", { class: "note" }, "Each op: operations a second over operations for each byte that tiles receive. Lines: the rate at which all tiles receive, and the matrix units' peak."));
  } else nodes.push(el("p", { class: "note" }, "Ops are here for points of the front; the command above shows those of this point."));
  for (const [name, rows] of Object.entries(DATA.sensitivity ?? {})) if (+name === chosen) {
    const most = Math.max(...rows.map(r => Math.abs(r.elasticity)), 1e-9);
    nodes.push(el("h3", {}, "Change of the time by each field"), table("sensitivity", ["field", "from", "to", "time", "% for 1 %", "beside others"], rows.map(r => [r.field, setting(r.field, r.was), setting(r.field, r.to), delta(r.seconds, r.before) || "0", r.elasticity.toFixed(3), el("span", { class: "bar", role: "img", "aria-label": `${r.elasticity.toFixed(3)}` }, el("i", { style: `width:${100 * Math.abs(r.elasticity) / most}%;background:var(--${r.elasticity < 0 ? "better" : "bad"})` }))])));
  }
  panel.replaceChildren(...nodes);
}
function roofline(detail) {
  const svg = shape("svg", { role: "img", "aria-label": "operations a second over operations for each received byte" });
  const ops = detail.ops.filter(o => o.flops > 0 && o.cycles > 0).map(o => ({ name: o.name, x: o.flops / Math.max(o.bytes, 1), y: o.flops / o.cycles * detail.clock_hz, cycles: o.cycles, bound: bound(o) }));
  if (!ops.length) return el("p", { class: "note" }, "No op computes in floating point.");
  const draw = () => {
    const width = Math.max(svg.clientWidth, 280), ridge = detail.peak / detail.received, cap = 100 * ridge;
    const xs = ops.map(o => Math.min(o.x, cap)), { x, y } = frame(svg, width, 300, [...xs, ridge / 4, ridge * 4], [...ops.map(o => o.y), detail.peak], "operations a byte", "operations/s");
    const left = Math.min(...xs, ridge / 4), right = Math.max(...xs, ridge * 4), low = Math.max(left * detail.received, Math.min(...ops.map(o => o.y)));
    svg.append(shape("path", { class: "roof", d: `M${x.at(low / detail.received)} ${y.at(low)}L${x.at(ridge)} ${y.at(detail.peak)}H${x.at(right)}` }));
    const most = Math.max(...ops.map(o => o.cycles));
    for (const o of ops) svg.append(shape("circle", { class: "dot", cx: x.at(Math.min(o.x, cap)), cy: y.at(o.y), r: 3 + 7 * Math.sqrt(o.cycles / most), style: `fill:var(--${o.bound === "outside" ? "constants" : o.bound})` }, shape("title", {}, `${o.name}: ${engineering(o.y)}op/s, ${engineering(o.x)}op/B, ${count(o.cycles)} cycles`)));
  };
  new ResizeObserver(draw).observe(svg);
  return svg;
}

// ---- the page
UNITS["operations/s"] = "op/s";
const names = [...DATA.measured, ...numeric], redraw = () => drawPlot(), failed = DATA.points.filter(p => !p.measures), left = POINTS.filter(p => p.why);
document.body.append(
  el("header", {}, el("h1", {}, DATA.models.map(m => m.name).join(", ")), el("p", {}, `${count(DATA.points.length)} of ${count(DATA.size)} points from ${DATA.machine}; ${count(FRONT.length)} on the front of ${DATA.minimise.join(", ")}${DATA.complete ? "" : "; interrupted before the end"}`)),
  el("main", {}, el("div", { class: "row" }, choice("across", names, across, v => { across = v; redraw(); }), choice("up", names, up, v => { up = v; redraw(); }), choice("colour", [...AXES, "front"], colouring, v => { colouring = v; redraw(); }),
    el("button", { onclick: () => { brushed = null; all = !all; drawPlot(); fillTable(); } }, "front or all points")),
    plot, legend, el("p", { class: "note", id: "keys" }, "Drag over points to select them; a click or the arrow keys choose one. Cycles, joules and areas are estimates; nothing was measured."),
    el("div", { class: "two" }, el("section", { "aria-label": "points" }, el("h2", {}, "Points"), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table of points" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body)), note,
      ...(left.length ? [el("p", { class: "note" }, `${left.length === 1 ? "1 point does" : `${count(left.length)} points do`} not meet the conditions, such as point ${left[0].point}: ${left[0].why}`)] : []),
      ...(failed.length ? [el("h3", {}, failed.length === 1 ? "1 point that cannot be" : `${count(failed.length)} points that cannot be`), table("points that cannot be", ["point", "reason"], failed.slice(0, 200).map(p => [`${p.point}: ${settings(p)}`, p.why]))] : []),
      el("h3", {}, `Technology: ${DATA.technology.name}`), table("technology", ["row", "value", "estimate", "source"], DATA.technology.rows.map(r => [r.name, `${r.value} ${r.unit}`, r.estimate ? `${r.least} to ${r.greatest}` : "", r.estimate ? `${r.source}; ${r.bounds}` : r.source]))), panel)));
if (POINTS.length) { fillTable(); drawPanel(); new ResizeObserver(drawPlot).observe(plot); }
