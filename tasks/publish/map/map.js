"use strict";
// Text from the data enters the page as textContent only. A point is named by its row, 0 to count - 1.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (id) => document.getElementById(id);
  const OWN_COLORS = 20, SHADES = 32, MAX_LINES = 20000, LISTED = 50;
  const PALETTE = ["#2f7ed8", "#e8743b", "#2ca86b", "#d64571", "#8a63d2", "#c79a1e", "#17a2b8", "#a0522d", "#e377c2", "#6b8e23",
    "#4059ad", "#ff9f80", "#7fd1ae", "#99306f", "#b5a1e6", "#7a6a00", "#7cc4e8", "#d62728", "#b0b060", "#3d7a7a"];
  const GRADIENT = ["#46307e", "#3f5b8c", "#2b8a8c", "#3cb371", "#a5d43d", "#fde047"];
  const THEMES = { light: { paper: "#ffffff", other: "#b4bcc4", line: "#1b1f24" }, dark: { paper: "#14181d", other: "#4b5560", line: "#e6eaee" } };
  const TYPES = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array, float64: Float64Array };
  let plot, x, y, ids, edges, column, codes, shown, selected = [], theme, hovered = -1;
  let hidden = new Set(), range = null;

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  }
  // All first bytes of the numbers come first, then all second.
  async function unpackArray(text, type) {
    const planes = new Uint8Array(await unpack(text)), width = TYPES[type].BYTES_PER_ELEMENT, count = planes.length / width;
    const bytes = new Uint8Array(planes.length);
    for (let k = 0; k < width; k++) for (let i = 0; i < count; i++) bytes[i * width + k] = planes[k * count + i];
    return new TYPES[type](bytes.buffer);
  }
  async function unpackColumn(one) {
    if (one.kind === "text") return unpackTexts(one.data);
    const values = await unpackArray(one.data, one.type);
    if (!one.different) return values;
    const different = await unpackArray(one.different, "float64");
    return Float64Array.from(values, (code) => different[code]);
  }
  const unpackTexts = async (text) => JSON.parse(new TextDecoder().decode(await unpack(text)));
  const number = (value) => Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(6)).toString();

  function shownValue(of, row) {
    const value = of.values[row];
    if (of.kind === "category") return value ? of.labels[value] : "missing";
    if (of.kind === "text") return value;
    if (Number.isNaN(value)) return "missing";
    return of.kind === "time" ? timeText(value) : number(value);
  }
  function timeText(seconds) {
    const moment = new Date(seconds * 1000);
    return Number.isNaN(moment.getTime()) ? number(seconds) : moment.toISOString().replace("T", " ").replace(/(\.000)?Z$/, "").replace(" 00:00:00", "");
  }

  // ---- colours and the legend
  function shades() {
    return Array.from({ length: SHADES }, (_, i) => {
      const at = i / (SHADES - 1) * (GRADIENT.length - 1), left = Math.min(Math.floor(at), GRADIENT.length - 2);
      const part = (color, k) => parseInt(color.slice(1 + 2 * k, 3 + 2 * k), 16);
      const mixed = [0, 1, 2].map((k) => part(GRADIENT[left], k) + (at - left) * (part(GRADIENT[left + 1], k) - part(GRADIENT[left], k)));
      return "#" + mixed.map((v) => Math.round(v).toString(16).padStart(2, "0")).join("");
    });
  }
  // Code 0 is grey: a missing value, or a category beyond the commonest.
  function colorCodes() {
    codes = new Float32Array(data.count);
    if (!column) return codes.fill(1);
    for (let row = 0; row < data.count; row++) {
      const value = column.values[row];
      if (column.kind === "category") codes[row] = value > OWN_COLORS ? 0 : value;
      else if (!Number.isNaN(value)) {
        const part = column.high > column.low ? (value / 2 - column.low / 2) / (column.high / 2 - column.low / 2) : 0.5;
        codes[row] = 1 + Math.floor(Math.min(Math.max(part, 0), 0.999999) * SHADES);
      }
    }
    return codes;
  }
  const colors = () => [THEMES[theme].other, ...(column && column.kind !== "category" ? shades() : PALETTE)];

  function legendRow(color, name, count, keys) {
    const label = document.createElement("label"), box = document.createElement("input"), swatch = document.createElement("span");
    box.type = "checkbox"; box.checked = true; swatch.className = "swatch"; swatch.style.background = color;
    box.addEventListener("change", () => { for (const key of keys) box.checked ? hidden.delete(key) : hidden.add(key); filter(); });
    label.append(box, swatch, textSpan("name", name), textSpan("count", count.toLocaleString("en")));
    return label;
  }
  function textSpan(name, text) { const span = document.createElement("span"); span.className = name; span.textContent = text; return span; }
  function legend() {
    const place = element("legend");
    place.replaceChildren(); element("legend-title").textContent = column ? column.name : "";
    if (!column) return;
    if (column.kind === "category") {
      const own = Math.min(column.labels.length, OWN_COLORS + 1), rest = Array.from({ length: column.labels.length - own }, (_, i) => own + i);
      for (let code = 1; code < own; code++) place.append(legendRow(PALETTE[code - 1], column.labels[code], column.counts[code], [code]));
      if (rest.length) place.append(legendRow(THEMES[theme].other, `${rest.length.toLocaleString("en")} others`, rest.reduce((sum, code) => sum + column.counts[code], 0), rest));
      if (column.counts[0]) place.append(legendRow(THEMES[theme].other, "missing", column.counts[0], [0]));
      return;
    }
    const bar = document.createElement("div"), ends = document.createElement("div"), text = (value) => column.kind === "time" ? timeText(value) : number(value);
    bar.className = "bar"; bar.style.background = `linear-gradient(to right, ${GRADIENT.join(",")})`;
    ends.className = "ends"; ends.append(textSpan("", "≤ " + text(column.low)), textSpan("", "≥ " + text(column.high)));
    place.append(bar, ends, limit("from", "least"), limit("to", "most"));
  }
  function limit(name, key) {
    const label = document.createElement("label"), input = document.createElement("input");
    label.textContent = name + " "; input.type = "text"; input.dataset.limit = key; label.append(input);
    input.addEventListener("change", () => {
      const text = input.value.trim(), value = column.kind === "time" ? Date.parse(/[zZ]|[+-]\d\d:?\d\d$/.test(text) ? text : text.replace(" ", "T") + (text.includes(":") ? "Z" : "")) / 1000 : Number(text);
      const bad = text !== "" && Number.isNaN(value);
      input.setCustomValidity(bad ? (column.kind === "time" ? "a date: 2024-01-31 or 2024-01-31 12:00" : "a number") : "");
      if (bad) { input.reportValidity(); return; }
      range = { ...(range || {}), [key]: text === "" ? undefined : value }; filter();
    });
    return label;
  }
  function passes(row) {
    if (!column) return true;
    const value = column.values[row];
    if (column.kind === "category") return !hidden.has(value);
    if (!range) return true;
    if (range.least === undefined && range.most === undefined) return true;
    return value >= (range.least ?? -Infinity) && value <= (range.most ?? Infinity);
  }
  async function filter() {
    const rows = [];
    for (let row = 0; row < data.count; row++) if (passes(row)) rows.push(row);
    shown = rows.length;
    if (shown === data.count) await plot.unfilter(); else await plot.filter(rows);
    status(); lines();
  }
  const status = () => { element("status").textContent = (shown === data.count ? "" : shown.toLocaleString("en") + " of ") + data.count.toLocaleString("en") + " points"; };

  // ---- drawing
  const size = () => data.count < 5000 ? 6 : data.count < 50000 ? 4 : data.count < 300000 ? 2.5 : 1.5;
  function restyle() {
    const look = THEMES[theme];
    plot.set({ backgroundColor: look.paper, pointColor: colors(), pointColorActive: look.line, pointColorHover: look.line, lassoColor: look.line });
  }
  async function recolor(name, first = false) {
    document.body.dataset.state = "drawing";
    column = data.columns.find((one) => one.name === name && one.kind !== "text") || null;
    hidden = new Set(); range = null; shown = data.count;
    restyle();
    const spatialIndex = plot.get("spatialIndex"), chosen = selected;
    await plot.draw({ x, y, z: colorCodes() }, { zDataType: "categorical", ...(spatialIndex ? { spatialIndex } : {}) });
    if (first) await showAll();
    if (chosen.length) plot.select(chosen);
    legend(); status(); lines();
    document.body.dataset.color = column ? column.name : ""; document.body.dataset.state = "ready";
  }
  function setTheme(name) {
    theme = name; document.documentElement.dataset.theme = name;
    if (plot) { restyle(); legend(); filterAgain(); lines(); }
  }
  // The legend is made anew, with all of its boxes checked.
  function filterAgain() { hidden = new Set(); range = null; if (shown !== data.count) filter(); }

  function lines() {
    const canvas = element("lines"), scale = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    canvas.width = canvas.clientWidth * scale; canvas.height = canvas.clientHeight * scale;
    if (shown !== undefined) status();
    if (!edges || !element("edges").checked || !selected.length) { canvas.dataset.lines = 0; return; }
    const chosen = new Uint8Array(data.count);
    for (const row of selected) chosen[row] = 1;
    pen.scale(scale, scale); pen.strokeStyle = THEMES[theme].line; pen.lineWidth = 1; pen.beginPath();
    let drawn = 0;
    for (let row = 0, edge = 0; row < data.count && drawn < MAX_LINES; row++) {
      for (const end = edge + edges.starts[row]; edge < end; edge++) {
        const other = edges.ends[edge];
        if (!(chosen[row] || chosen[other]) || drawn >= MAX_LINES || !passes(row) || !passes(other)) continue;
        const from = plot.getScreenPosition(row), to = plot.getScreenPosition(other);
        pen.moveTo(from[0], from[1]); pen.lineTo(to[0], to[1]); drawn++;
      }
    }
    pen.globalAlpha = drawn < 200 ? 0.5 : drawn < 2000 ? 0.25 : 0.1;
    pen.stroke(); canvas.dataset.lines = drawn;
    if (drawn >= MAX_LINES) element("status").textContent = `the first ${MAX_LINES.toLocaleString("en")} edges are drawn`;
  }
  let asked = false;
  function linesSoon() { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; lines(); }); } }

  // ---- a point's card, search, selection
  function details(row) {
    const list = document.createElement("dl");
    const pairs = [["id", ids[row]], ...data.columns.map((one) => [one.name, shownValue(one, row)]), ["row", String(row)]];
    for (const [name, value] of pairs) {
      const term = document.createElement("dt"), text = document.createElement("dd");
      term.textContent = name; text.textContent = value; list.append(term, text);
    }
    return list;
  }
  function hover(row) {
    hovered = row;
    const card = element("card"), at = plot.getScreenPosition(row), stage = element("stage");
    card.replaceChildren(details(row)); card.hidden = false;
    card.style.left = Math.max(0, Math.min(at[0] + 12, stage.clientWidth - card.offsetWidth - 4)) + "px";
    card.style.top = Math.max(0, Math.min(at[1] + 12, stage.clientHeight - card.offsetHeight - 4)) + "px";
  }
  const leave = () => { hovered = -1; element("card").hidden = true; };
  function rowLink(row) {
    if (!data.row_link) return null;
    const address = data.row_link.replaceAll("{id}", encodeURIComponent(ids[row])).replaceAll("{row}", row);
    const link = document.createElement("a");
    link.href = address; link.textContent = "open its row of the table"; link.rel = "noreferrer";
    return ["http:", "https:", "file:"].includes(link.protocol) ? link : null;
  }
  function choose(rows) {
    selected = Array.from(rows);
    element("chosen").hidden = !selected.length;
    element("chosen-count").textContent = selected.length.toLocaleString("en") + " chosen";
    element("row").replaceChildren(...(selected.length === 1 ? [details(selected[0]), rowLink(selected[0])].filter(Boolean) : []));
    element("chosen-ids").replaceChildren(...(selected.length > 1 ? selected.slice(0, LISTED).map(idButton) : []));
    if (selected.length > LISTED) element("chosen-ids").append(`and ${(selected.length - LISTED).toLocaleString("en")} more`);
    lines();
  }
  function idButton(row) {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button"; button.textContent = ids[row]; button.addEventListener("click", () => go(row)); item.append(button);
    return item;
  }
  async function go(row) {
    plot.select([row]);
    await plot.zoomToLocation([x[row], y[row]], Math.min(plot.get("cameraDistance"), 0.3));
  }
  function search(text) {
    const exact = [], begins = [], holds = [], asked = text.toLowerCase();
    if (asked) for (let row = 0; row < data.count && begins.length < 20; row++) {
      const at = ids[row].toLowerCase().indexOf(asked);
      if (at < 0) continue;
      if (ids[row].length === text.length) exact.push(row); else if (at === 0) begins.push(row); else if (holds.length < 20) holds.push(row);
    }
    // An exact match may lie behind the first twenty that only begin so.
    if (asked && !exact.length) { const row = ids.indexOf(text); if (row >= 0) exact.push(row); }
    const found = [...exact, ...begins, ...holds].slice(0, 20);
    element("found").replaceChildren(...found.map(idButton));
    if (asked && !found.length) element("found").append("no id holds this");
    return found;
  }
  function move(dx, dy, zoom) {
    const [cx, cy] = plot.get("cameraTarget"), distance = plot.get("cameraDistance");
    plot.zoomToLocation([cx + dx * distance * 0.2, cy + dy * distance * 0.2], Math.max(distance * zoom, 1e-4));
  }
  // The camera's distance is by height: on a stage higher than wide, points at the sides would be cut off.
  function showAll() {
    const stage = element("stage");
    return plot.zoomToLocation([0, 0], Math.max(1, stage.clientHeight / Math.max(stage.clientWidth, 1)));
  }
  const lassoOn = (on) => { element("lasso").setAttribute("aria-pressed", on); plot.set({ mouseMode: on ? "lasso" : "panZoom" }); };
  const KEYS = {
    ArrowLeft: () => move(-1, 0, 1), ArrowRight: () => move(1, 0, 1), ArrowUp: () => move(0, 1, 1), ArrowDown: () => move(0, -1, 1),
    "+": () => move(0, 0, 0.7), "=": () => move(0, 0, 0.7), "-": () => move(0, 0, 1 / 0.7), 0: showAll,
    "/": () => element("search").focus(), l: () => element("lasso").click(), t: () => element("theme").click(),
    e: () => { if (edges) element("edges").click(); },
    Escape: () => { plot.deselect(); leave(); lassoOn(false); element("search").value = ""; search(""); element("stage").focus(); },
  };
  function listen() {
    plot.subscribe("pointOver", hover); plot.subscribe("pointOut", leave);
    plot.subscribe("select", ({ points }) => choose(points)); plot.subscribe("deselect", () => choose([]));
    plot.subscribe("lassoEnd", () => lassoOn(false));
    plot.subscribe("view", () => { if (hovered >= 0) hover(hovered); linesSoon(); });
    element("search").addEventListener("input", (event) => search(event.target.value));
    element("search").addEventListener("keydown", (event) => { if (event.key === "Enter") { const found = search(event.target.value); if (found.length) go(found[0]); } });
    element("color").addEventListener("change", (event) => recolor(event.target.value));
    element("lasso").addEventListener("click", () => lassoOn(element("lasso").getAttribute("aria-pressed") !== "true"));
    element("edges").addEventListener("change", lines); element("reset").addEventListener("click", showAll);
    element("theme").addEventListener("click", () => setTheme(theme === "dark" ? "light" : "dark"));
    element("clear").addEventListener("click", () => plot.deselect());
    element("copy").addEventListener("click", () => copy(selected.map((row) => ids[row]).join("\n")));
    window.addEventListener("resize", linesSoon);
    document.addEventListener("keydown", (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
      if (event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape")) return;
      const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (act) { event.preventDefault(); act(); }
    });
  }
  // The clipboard of navigator is not there on every page from disk.
  function copy(text) {
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
  }

  async function start() {
    setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    const [xs, ys] = await Promise.all([unpackArray(data.x, "uint16"), unpackArray(data.y, "uint16")]);
    // In the middle of -1..1, the longer axis filling it.
    const centered = (steps) => { const half = steps.reduce((most, one) => Math.max(most, one), 0) / 2; return Float32Array.from(steps, (one) => (one - half) / 32767.5 * 0.95); };
    x = centered(xs); y = centered(ys); ids = await unpackTexts(data.ids);
    for (const one of data.columns) one.values = await unpackColumn(one);
    if (data.edges) { edges = { starts: await unpackArray(data.edges.starts, "uint32"), ends: await unpackArray(data.edges.ends, "uint32") }; element("edges-label").hidden = false; }
    for (const one of data.columns) if (one.kind !== "text") element("color").append(new Option(one.name, one.name, false, one.name === data.color));
    if (!element("color").options.length) element("color").parentElement.hidden = true;
    plot = scatterplotLibrary.default({ canvas: element("points"), width: "auto", height: "auto", pointSize: size(), colorBy: "valueA",
      opacity: data.count < 5000 ? 0.85 : data.count < 100000 ? 0.6 : 0.35, lassoInitiator: false });
    window.graphmillMap = { plot, ids, go };
    listen(); await recolor(data.color, true);
  }
  start().catch((error) => { document.body.dataset.state = "failed"; element("status").textContent = "This map cannot be drawn: " + error.message; throw error; });
})();
