"use strict";
// Text from the data enters the page as textContent only. A point is named by its row, 0 to count - 1.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (id) => document.getElementById(id);
  const MAX_LINES = 20000, LISTED = 50, FOUND = 20, MAX_RINGS = 200, PART = 100000;
  const THEMES = { light: { paper: data.colors.paper.light, ink: data.colors.ink.light }, dark: { paper: data.colors.paper.dark, ink: data.colors.ink.dark } };
  let view, legend, table, ids, lower, edges, column = null, looks, visible, shown, selected = [], focused = -1, joined = [], theme, hovered = -1, lasso = null;

  // ---- what is drawn
  const size = () => data.count < 5000 ? 7 : data.count < 50000 ? 4.5 : data.count < 300000 ? 2.5 : 1.5;
  const opacity = () => data.count < 5000 ? 0.85 : data.count < 100000 ? 0.6 : 0.35;
  // What is hidden is not drawn; of several chosen points the others step back.
  function relook() {
    const all = looks.slice();
    if (selected.length > 1) {
      const kept = new Uint8Array(data.count);
      for (const row of selected) kept[row] = 1;
      for (let row = 0; row < data.count; row++) if (!kept[row]) all[row] = view.DIM;
    }
    if (shown !== data.count) for (let row = 0; row < data.count; row++) if (!visible[row]) all[row] = view.HIDDEN;
    view.setLooks(all);
  }
  function filter() {
    visible = legend.visible(); shown = 0;
    for (let row = 0; row < data.count; row++) shown += visible[row];
    if (hovered >= 0 && !visible[hovered]) leave();
    relook(); status(); join(); table.refresh();
  }
  const status = () => { element("status").textContent = (shown === data.count ? "" : shown.toLocaleString("en") + " of ") + data.count.toLocaleString("en") + " points"; };
  function recolor(name) {
    column = data.columns.find((one) => one.name === name && one.kind !== "text") || null;
    legend.show(column); looks = legend.looks(); view.setColors(legend.colors(theme), THEMES[theme].paper); filter();
    document.body.dataset.color = column ? column.name : "";
  }
  function setTheme(name) {
    theme = name; document.documentElement.dataset.theme = name;
    if (view) view.setColors(legend.colors(theme), THEMES[theme].paper);
  }

  // ---- rings, edges and the lasso, on a canvas of their own; returns whether there are any
  function paint(pen) {
    if (!joined.length && !selected.length && hovered < 0 && !lasso) return false;
    pen.strokeStyle = THEMES[theme].ink;
    const projection = view.projection();
    if (joined.length) {
      const drawn = joined.length / 2; pen.lineWidth = 1; pen.globalAlpha = drawn < 200 ? 0.5 : drawn < 2000 ? 0.25 : 0.1; pen.beginPath();
      for (let k = 0; k < joined.length; k += 2) {
        const from = view.project(joined[k], projection), to = view.project(joined[k + 1], projection);
        if (from[2] > 0 && to[2] > 0) { pen.moveTo(from[0], from[1]); pen.lineTo(to[0], to[1]); }
      }
      pen.stroke(); pen.globalAlpha = 1;
    }
    const rings = selected.length <= MAX_RINGS ? Array.from(selected).filter((row) => visible[row]) : [];
    for (const row of [...rings, focused, hovered]) {
      if (row < 0) continue;
      const [x, y, depth] = view.project(row, projection);
      if (depth > 0) { pen.lineWidth = 2; pen.beginPath(); pen.arc(x, y, 6, 0, 2 * Math.PI); pen.stroke(); }
    }
    if (lasso) {
      pen.lineWidth = 1.5; pen.beginPath(); lasso.forEach(([x, y], k) => k ? pen.lineTo(x, y) : pen.moveTo(x, y)); pen.closePath(); pen.stroke();
      pen.globalAlpha = 0.08; pen.fillStyle = THEMES[theme].ink; pen.fill(); pen.globalAlpha = 1;
    }
    return true;
  }
  function join() {
    joined = []; let cut = false;
    if (edges && element("edges").checked && selected.length) {
      const chosen = new Uint8Array(data.count);
      for (const row of selected) chosen[row] = 1;
      for (let row = 0, edge = 0; row < data.count && !cut; row++) for (const end = edge + edges.starts[row]; edge < end && !cut; edge++) {
        const other = edges.ends[edge];
        if (!(chosen[row] || chosen[other]) || !visible[row] || !visible[other]) continue;
        joined.push(row, other); cut = joined.length >= 2 * MAX_LINES;
      }
    }
    element("lines").dataset.lines = joined.length / 2;
    if (cut) element("status").textContent = `the first ${MAX_LINES.toLocaleString("en")} edges are drawn`; else if (shown !== undefined) status();
    view.repaint();
  }

  // ---- a point's card, search, selection
  function details(row) {
    const list = document.createElement("dl");
    for (const [name, value] of [["id", ids[row]], ...data.columns.map((one) => [one.name, mapColumns.shown(one, row)]), ["row", String(row)]]) {
      const term = document.createElement("dt"), text = document.createElement("dd");
      term.textContent = name; text.textContent = value; list.append(term, text);
    }
    return list;
  }
  function hover(row) {
    const card = element("card");
    if (row !== hovered) { hovered = row; card.replaceChildren(details(row)); card.hidden = false; view.repaint(); }
    const at = view.project(row), stage = element("stage");
    card.style.left = Math.max(0, Math.min(at[0] + 12, stage.clientWidth - card.offsetWidth - 4)) + "px";
    card.style.top = Math.max(0, at[1] + 14 + card.offsetHeight > stage.clientHeight ? at[1] - card.offsetHeight - 12 : at[1] + 12) + "px";
  }
  function leave() { if (hovered < 0) return; hovered = -1; element("card").hidden = true; view.repaint(); }
  function button(text, act, title = "") {
    const one = Object.assign(document.createElement("button"), { type: "button", textContent: text, title });
    one.addEventListener("click", act);
    return one;
  }
  function choose(rows) {
    const dimmed = selected.length > 1;
    selected = rows; focused = rows.length === 1 ? rows[0] : -1;
    element("chosen").hidden = !selected.length;
    element("chosen-count").textContent = selected.length.toLocaleString("en") + " chosen";
    showFocused();
    element("chosen-ids").replaceChildren(...(selected.length > 1 ? Array.from(selected.slice(0, LISTED), idItem) : []));
    if (selected.length > LISTED) element("chosen-ids").append(`and ${(selected.length - LISTED).toLocaleString("en")} more`);
    if (dimmed || selected.length > 1) relook();
    if (selected.length > 1) table.refresh("chosen"); else table.refresh(table.scope() === "chosen" ? "all" : undefined);
    join(); address();
  }
  function showFocused() {
    element("row").replaceChildren(...(focused >= 0 ? [details(focused), button("Show its row", () => table.show(focused), "In the table of all rows")] : []));
    table.mark(focused);
  }
  // A link with the chosen point's id leads a colleague to it. Some viewers forbid to change the address.
  function address() {
    const wanted = focused >= 0 ? "#id=" + encodeURIComponent(ids[focused]) : "";
    if (wanted === location.hash) return;
    try { history.replaceState(null, "", wanted || location.pathname + location.search); } catch { /* the address stays */ }
  }
  function fromAddress() {
    if (!location.hash.startsWith("#id=")) return;
    let id; try { id = decodeURIComponent(location.hash.slice(4)); } catch { return; }
    const row = ids.indexOf(id);
    if (row >= 0) { if (focused !== row) go(row); } else element("status").textContent = `no point has the id ${id}`;
  }
  function idItem(row) { const item = document.createElement("li"); item.append(button(ids[row], () => go(row))); return item; }
  // One of several chosen points is shown without choosing it alone.
  function go(row) {
    if (selected.length > 1 && selected.includes(row)) { focused = row; showFocused(); address(); } else choose([row]);
    view.go(row);
  }
  // Exact ids first, then those that begin so, then those that hold the text; in parts, so that the page stays awake.
  async function search(text) {
    const exact = [], begins = [], holds = [], asked = text.toLowerCase(), mine = search.latest = {};
    for (let row = 0; asked && row < data.count; row++) {
      if (row % PART === PART - 1) { await new Promise((done) => setTimeout(done)); if (search.latest !== mine) return []; }
      const id = ids[row];
      if (id.length < asked.length) continue;
      lower[row] ??= id.toLowerCase();
      const at = lower[row].indexOf(asked);
      if (at < 0) continue;
      if (id.length === text.length) exact.push(row); else if (at === 0) { if (begins.length < FOUND) begins.push(row); } else if (holds.length < FOUND) holds.push(row);
    }
    const found = [...exact.sort((a, b) => (ids[b] === text) - (ids[a] === text)), ...begins, ...holds].slice(0, FOUND);
    element("found").replaceChildren(...found.map(idItem));
    if (asked && !found.length) element("found").append("no id holds this");
    return found;
  }

  // ---- pointer and keys
  const lassoMode = () => element("lasso").getAttribute("aria-pressed") === "true";
  function lassoOn(on) { element("lasso").setAttribute("aria-pressed", on); element("stage").classList.toggle("lassoing", on); view.controls.enabled = !on; }
  function listenToPointer() {
    const stage = element("stage"), place = (event) => { const box = stage.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    let down = null, dragged = false, moved = null, fingers = 0;
    stage.addEventListener("pointerdown", (event) => {
      if (event.target.closest("#card")) return;
      fingers++; leave(); stage.focus({ preventScroll: true });
      down = event.button === 0 && fingers === 1 ? place(event) : null; dragged = false;
      if (down && (lassoMode() || event.shiftKey)) { lasso = [down]; view.controls.enabled = false; stage.setPointerCapture(event.pointerId); }
    }, true);
    stage.addEventListener("pointermove", (event) => {
      if (down && Math.hypot(place(event)[0] - down[0], place(event)[1] - down[1]) > 5) dragged = true;
      if (lasso) { lasso.push(place(event)); view.repaint(); return; }
      if (event.buttons || event.pointerType === "touch") return;
      // Of many moves between two frames the last one counts.
      if (!moved) requestAnimationFrame(() => { if (!moved) return; const row = view.nearest(...moved, 8, visible); moved = null; if (row >= 0) hover(row); else leave(); });
      moved = place(event);
    });
    stage.addEventListener("pointerleave", () => { moved = null; leave(); });
    const up = (event) => {
      fingers = Math.max(0, fingers - 1);
      const at = place(event), still = down && !dragged, drawn = lasso;
      down = null; lasso = null;
      if (drawn) { lassoOn(false); if (event.type === "pointerup" && !still) { choose(view.inside(drawn, visible)); return; } view.repaint(); }
      if (!still || event.type !== "pointerup") return;
      const row = view.nearest(...at, event.pointerType === "touch" ? 18 : 8, visible);
      choose(row >= 0 ? [row] : []);
    };
    stage.addEventListener("pointerup", up); stage.addEventListener("pointercancel", up);
  }
  const toggleTable = () => { if (table.isOpen()) table.close(); else table.open(selected.length > 1 ? "chosen" : "all"); };
  const arrow = (dx, dy) => (event) => event.shiftKey && view.deep ? view.turn(dx, -dy) : view.move(dx, dy);
  const KEYS = {
    ArrowLeft: arrow(-1, 0), ArrowRight: arrow(1, 0), ArrowUp: arrow(0, 1), ArrowDown: arrow(0, -1),
    "+": () => view.move(0, 0, 1.4), "=": () => view.move(0, 0, 1.4), "-": () => view.move(0, 0, 1 / 1.4), 0: () => view.showAll(),
    "/": () => element("search").focus(), l: () => element("lasso").click(), t: () => element("theme").click(), b: toggleTable,
    e: () => { if (edges) element("edges").click(); },
    Escape: () => { choose([]); leave(); lasso = null; lassoOn(false); element("search").value = ""; search(""); element("stage").focus(); },
  };
  function listen() {
    listenToPointer();
    element("search").addEventListener("input", (event) => search(event.target.value));
    element("search").addEventListener("keydown", async (event) => { if (event.key === "Enter") { const found = await search(event.target.value); if (found.length) go(found[0]); } });
    element("color").addEventListener("change", (event) => recolor(event.target.value));
    element("lasso").addEventListener("click", () => lassoOn(!lassoMode()));
    element("edges").addEventListener("change", join); element("reset").addEventListener("click", () => view.showAll());
    element("theme").addEventListener("click", () => setTheme(theme === "dark" ? "light" : "dark"));
    element("show-table").addEventListener("click", toggleTable);
    element("clear").addEventListener("click", () => choose([]));
    element("copy").addEventListener("click", () => copy(Array.from(selected, (row) => ids[row]).join("\n")));
    window.addEventListener("hashchange", fromAddress);
    document.addEventListener("keydown", (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
      if (event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape")) return;
      const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (act) { event.preventDefault(); act(event); }
    });
  }
  // The clipboard of navigator is not there on every page from disk.
  function copy(text) {
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
  }
  function scopeRows(scope) {
    if (scope === "chosen") return selected;
    if (scope === "all" || shown === data.count) return null;
    const rows = new Uint32Array(shown);
    for (let row = 0, k = 0; row < data.count; row++) if (visible[row]) rows[k++] = row;
    return rows;
  }

  async function start() {
    setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    const library = document.createElement("script");
    library.textContent = await mapColumns.raw(element("library").textContent); document.head.append(library);
    const axes = await Promise.all(data.axes.map((text) => mapColumns.array(text, "uint16")));
    legend = mapLegend({ data, place: element("legend"), title: element("legend-title"), onFilter: filter });
    view = mapView({ stage: element("stage"), canvas: element("points"), overlay: element("lines"), axes, size: size(), opacity: opacity(), onMove: () => { if (hovered >= 0) hover(hovered); } });
    view.setPaint(paint); document.body.dataset.axes = axes.length;
    ids = await mapColumns.ids(data.ids); lower = new Array(data.count);
    for (const one of data.columns) one.values = await mapColumns.column(one);
    if (data.edges) { edges = { starts: await mapColumns.array(data.edges.starts, "uint32"), ends: await mapColumns.array(data.edges.ends, "uint32") }; element("edges-label").hidden = false; }
    for (const one of data.columns) if (one.kind !== "text") element("color").append(new Option(one.name, one.name, false, one.name === data.color));
    if (!element("color").options.length) element("color").parentElement.hidden = true;
    table = mapTable({ data, ids, panel: element("table"), onRow: go, scopeRows });
    window.graphmillMap = { view, ids, go };
    listen(); recolor(data.color); fromAddress(); document.body.dataset.state = "ready";
  }
  start().catch((error) => { document.body.dataset.state = "failed"; element("status").textContent = "This map cannot be drawn: " + error.message; throw error; });
})();
