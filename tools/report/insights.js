// What the profile says in words, the balance of tiles, and its tables as files. Only functions: page.js calls them.

// Sentences about the program: the phase, the ops, the imbalance and the memory that decide its cost.
function insights() {
  const s = DATA.summary, all = Math.max(s.cycles, 1), found = [];
  const named = (phase, unit) => {
    const [top, ...others] = [...DATA.ops].sort((a, b) => b[phase] - a[phase]);
    if (!top || !top[phase]) return "";
    return ` The largest part is ${shortName(top)}: ${count(top[phase])} cycles${unit ? `, for ${bytes(top.bytes)} from other tiles` : ""}${others.length && others[0][phase] ? `; then ${shortName(others[0])}` : ""}.`;
  };
  for (const [phase, why] of [["exchange", "tiles wait for elements of others: layouts of neighbours disagree, or a contraction is cut finely"], ["sync", "many steps are short: fuse ops, or use fewer tiles"]]) {
    const share = s[phase + "_cycles"] / all;
    if (share >= .1) found.push(`${percent(share)} of the cycles are ${phase}: ${why}.${named(phase, phase === "exchange")}`);
  }
  const top = DATA.ops.slice(0, 5), share = top.reduce((sum, o) => sum + o.cycles, 0) / all;
  if (DATA.ops.length > 8 && share > .3) found.push(`Five of ${count(DATA.ops.length)} ops take ${percent(share)} of the cycles, first ${shortName(top[0])}.`);
  if (s.guessed_cycles) found.push(`${percent(s.guessed_cycles / all)} of the cycles are in a while without a bound, counted as 16 iterations: a guess.`);
  const load = balanceOf("compute");
  if (load.most && load.mean / load.most < .6) found.push(`The busiest tile computes ${(load.most / Math.max(load.mean, 1)).toFixed(1)} times the mean of all tiles: in an even division, compute would take ${percent(load.mean / load.most)} of its cycles at best.`);
  const m = DATA.memory, category = CATEGORIES.map(c => [c, expand(m.tiles[c] ?? [])[m.tile] ?? 0]).sort((a, b) => b[1] - a[1])[0];
  if (m.peak > .5 * m.limit && category) found.push(`The fullest tile has ${percent(m.peak / m.limit)} of its memory in use, most of it ${category[0]} (${bytes(category[1])}), at ${m.label}.`);
  if (s.utilisation !== undefined && s.utilisation < .02 && s.flops) found.push(`The matrix units are at ${percent(s.utilisation)} of their peak: the program is small for ${count(DATA.target.tiles)} tiles, or it is no product.`);
  return found.length ? [el("h2", {}, "In words"), el("ul", {}, ...found.map(text => el("li", {}, text)))] : [];
}
function shortName(op) { return op.places.length > 1 ? `${op.places[0]} + ${op.places.length - 1} more` : op.places[0] ?? op.name; }
// The short name leads to the IR; the dots show the full name.
function opName(op) {
  const full = el("span", { hidden: true }, op.places.join(" + "));
  const more = op.places.length > 1 ? el("button", { class: "dots", "aria-label": `all names of ${shortName(op)}`, "aria-expanded": "false", onclick: () => { full.hidden = !full.hidden; more.setAttribute("aria-expanded", String(!full.hidden)); } }, "...") : null;
  return el("span", {}, el("button", { title: op.places.join(" + "), onclick: () => showIr(op.places[0]) }, shortName(op)), more, full);
}

// ---- files
function download(name, text, type) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
function csvOf(rows, fields) {
  const cell = v => { const t = Array.isArray(v) ? v.join("; ") : String(v ?? ""); return /[",\n]/.test(t) ? `"${t.replaceAll('"', '""')}"` : t; };
  return [fields, ...rows.map(r => fields.map(f => r[f]))].map(row => row.map(cell).join(",")).join("\n") + "\n";
}
function csvButton(what, rows, fields) {
  return el("button", { class: "link", onclick: () => download(`${DATA.title}-${what}.csv`, csvOf(rows, fields), "text/csv") }, `${what} as CSV`);
}
// Events as Chrome and Perfetto read them: a thread for each phase, microseconds of the machine's clock.
function traceOf() {
  const events = PHASES.map((name, i) => ({ ph: "M", pid: 1, tid: i + 1, name: "thread_name", args: { name } })), us = 1e6 / DATA.target.clock_hz;
  let at = 0;
  for (const step of DATA.steps) for (const phase of ["sync", "exchange", "compute"]) {
    const cycles = step[phase] * step.count;
    if (cycles) events.push({ ph: "X", pid: 1, tid: PHASES.indexOf(phase) + 1, name: step.label, ts: at * us, dur: cycles * us, args: { op: step.place, cycles, runs: step.count, bytes: step.bytes } });
    at += cycles;
  }
  return JSON.stringify({ displayTimeUnit: "ns", traceEvents: events });
}
function traceButton() { return el("button", { class: "link", onclick: () => download(`${DATA.title}-trace.json`, traceOf(), "application/json") }, "trace for Perfetto"); }

// ---- the balance of tiles
function balanceOf(kind) {
  const values = expand(DATA.balance?.[kind] ?? []), most = values.reduce((a, b) => Math.max(a, b), 0);
  return { values, most, mean: values.reduce((a, b) => a + b, 0) / Math.max(values.length, 1) };
}
function balanceView() {
  const tiles = DATA.target.tiles, wide = Math.ceil(Math.sqrt(tiles * 1.9)), high = Math.ceil(tiles / wide);
  const map = (kind, what, shown) => {
    const { values, most, mean } = balanceOf(kind), size = width => Math.max(3, Math.min(22, Math.floor((width - 10) / wide)));
    let cursor = 0;
    const reading = el("p", { "aria-live": "polite", class: "note" }), describe = t => `tile ${t}: ${shown(values[t] ?? 0)} ${what}`;
    const canvas = chart(`${what} of each tile; arrows move from tile to tile`, width => high * Math.min(size(width), 14) + 10, (context, width) => {
      const s = size(width), h = Math.min(s, 14);
      for (let t = 0; t < tiles; t++) {
        const [x, y] = [5 + (t % wide) * s, 5 + Math.floor(t / wide) * h];
        context.globalAlpha = 1; context.fillStyle = colour("line"); context.fillRect(x, y, s - 1, h - 1);
        if (values[t]) { context.globalAlpha = .1 + .9 * values[t] / Math.max(most, 1); context.fillStyle = colour(kind === "compute" ? "compute" : "exchange"); context.fillRect(x, y, s - 1, h - 1); }
        if (t === cursor) { context.globalAlpha = 1; context.strokeStyle = colour("ink"); context.strokeRect(x - .5, y - .5, s, h); }
      }
      context.globalAlpha = 1;
    }, {
      tip: (x, y, width) => { const s = size(width), column = Math.floor((x - 5) / s), t = Math.floor((y - 5) / Math.min(s, 14)) * wide + column; return column >= 0 && column < wide && t >= 0 && t < tiles ? describe(t) : null; },
      keys: key => { const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide }[key]; if (!by) return false; cursor = Math.max(0, Math.min(tiles - 1, cursor + by)); reading.textContent = describe(cursor); return true; },
    });
    const idle = values.filter(v => !v).length;
    return [el("h2", {}, `${what[0].toUpperCase()}${what.slice(1)}`), el("p", {}, `most ${shown(most)}, mean ${shown(mean)} (${percent(most ? mean / most : 0)} of the most); ${count(idle)} of ${count(tiles)} tiles have none`), canvas, reading];
  };
  return [...map("compute", "cycles that its vertices take", n => count(n)), ...map("received", "bytes exchanged", bytes)];
}
