"use strict";
// The rows of all columns as a table, of which only what is seen is in the page.
const mapTable = ({ data, ids, panel, onRow, scopeRows }) => {
  const HIGH = 24, TALLEST = 8e6, PART = 20000; // browsers end elements at some 17 million pixels
  const find = (name) => panel.querySelector(`[data-part=${name}]`);
  const scroll = find("scroll"), space = find("space"), table = find("table"), body = table.tBodies[0], scope = find("scope");
  let rows = null, first = 0, marked = -1, order = null, ordering = null, length = 0, ownScroll = -1, turned = 0;

  const at = (position) => rows ? rows[position] : position;
  const fits = () => Math.max(1, Math.floor(scroll.clientHeight / HIGH) - 1);
  const last = () => Math.max(0, length - fits());
  const cell = (kind, text) => { const one = document.createElement(kind); one.textContent = text; one.title = text; return one; };

  function head() {
    const line = table.tHead.rows[0];
    line.replaceChildren(cell("th", "row"), cell("th", "id"), ...data.columns.map((one) => {
      const name = cell("th", ""); if (one.kind === "number") name.className = "number";
      const button = cell("button", one.name || "(no name)"), sign = ordering && ordering.column === one ? (ordering.down ? " ▼" : " ▲") : "";
      if (one.kind === "text") { name.textContent = one.name; return name; }
      button.type = "button"; button.append(sign); button.title = `Sort by ${one.name}`; button.addEventListener("click", () => sort(one)); name.append(button);
      name.setAttribute("aria-sort", sign ? (ordering.down ? "descending" : "ascending") : "none");
      return name;
    }));
  }
  function draw() {
    const lines = [];
    for (let position = first; position < Math.min(length, first + fits() + 1); position++) {
      const row = at(position), line = document.createElement("tr"), name = document.createElement("td"), link = document.createElement("a");
      link.href = "#id=" + encodeURIComponent(ids[row]); link.textContent = ids[row]; link.title = "Show it on the map";
      link.addEventListener("click", (event) => { event.preventDefault(); onRow(row); });
      name.append(link); line.dataset.row = row; if (row === marked) line.className = "marked";
      line.append(cell("td", row), name, ...data.columns.map((one) => { const value = cell("td", mapColumns.shown(one, row)); if (one.kind === "number") value.className = "number"; return value; }));
      lines.push(line);
    }
    body.replaceChildren(...lines);
  }
  // The scrollbar stands for all rows, however many pixels there are.
  function to(position) {
    first = Math.min(Math.max(Math.round(position), 0), last());
    const room = scroll.scrollHeight - scroll.clientHeight, top = last() ? first / last() * room : 0;
    scroll.scrollTop = top; ownScroll = scroll.scrollTop; draw();
  }
  function refill() {
    rows = scopeRows(scope.value);
    if (order) {
      if (!rows) rows = order;
      else { const inside = new Uint8Array(data.count); for (const row of rows) inside[row] = 1; rows = order.filter((row) => inside[row]); }
      if (ordering.down) rows = Uint32Array.from(rows).reverse();
    }
    length = rows ? rows.length : data.count; space.style.height = Math.min((length + 1) * HIGH, TALLEST) + "px";
    find("count").textContent = `${length.toLocaleString("en")} ${length === 1 ? "row" : "rows"}`;
    find("save").disabled = !length;
  }
  async function sort(column) {
    if (ordering && ordering.column === column) { if (ordering.down) { ordering = order = null; } else ordering.down = true; }
    else { ordering = { column, down: false }; const asked = ordering, sorted = await mapColumns.sorted(column); if (ordering !== asked) return; order = sorted; }
    head(); refill(); to(0);
  }
  async function save() {
    // As tasks/readers/formulas.py does: what a spreadsheet would run stands behind an apostrophe, numbers do not.
    const isFormula = (text) => /^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(text) && !/^[+-]?(\d+\.?\d*|\.\d+|Infinity)(e[+-]?\d+)?$/i.test(text);
    const safe = (text) => isFormula(text) ? `'${text}` : text;
    const quoted = (given) => quotedText(safe(String(given)));
    const quotedText = (text) => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    const parts = [["row", "id", ...data.columns.map((one) => one.name)].map(quoted).join(",") + "\r\n"];
    for (let begin = 0; begin < length; begin += PART) {
      const lines = [];
      for (let position = begin; position < Math.min(length, begin + PART); position++) {
        const row = at(position);
        lines.push([row, quoted(ids[row]), ...data.columns.map((one) => quoted(mapColumns.exact(one, row)))].join(",") + "\r\n");
      }
      parts.push(new Blob([lines.join("")]));
      await new Promise((done) => setTimeout(done));
    }
    const link = document.createElement("a"), address = URL.createObjectURL(new Blob(parts, { type: "text/csv" }));
    link.href = address; link.download = "rows.csv"; link.click(); setTimeout(() => URL.revokeObjectURL(address), 60000);
  }
  function open(choice) { if (choice) scope.value = choice; panel.hidden = false; head(); refill(); to(0); }
  function close() { panel.hidden = true; }

  scroll.addEventListener("scroll", () => {
    if (Math.abs(scroll.scrollTop - ownScroll) < 1) return;
    ownScroll = -1;
    const room = scroll.scrollHeight - scroll.clientHeight; first = Math.round(room > 0 ? scroll.scrollTop / room * last() : 0); draw();
  });
  scroll.addEventListener("wheel", (event) => {
    if (!event.deltaY || event.shiftKey || event.ctrlKey) return;
    event.preventDefault(); turned += event.deltaY * (event.deltaMode ? HIGH : 1);
    const step = Math.trunc(turned / HIGH); turned -= step * HIGH; if (step) to(first + step);
  }, { passive: false });
  scroll.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: fits(), PageUp: -fits(), Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault(); event.stopPropagation(); to(first + step);
  });
  scope.addEventListener("change", () => { refill(); to(0); });
  find("save").addEventListener("click", save); find("close").addEventListener("click", close);
  new ResizeObserver(() => { if (!panel.hidden) to(first); }).observe(scroll);
  return {
    open, close, isOpen: () => !panel.hidden,
    scope: () => scope.value,
    // All rows stay as they are, where the reader has scrolled to.
    refresh(choice) {
      const before = scope.value; if (choice) scope.value = choice;
      if (!panel.hidden && (scope.value !== "all" || scope.value !== before)) { refill(); to(0); }
    },
    mark(row) { marked = row; if (!panel.hidden) draw(); },
    // To the row among all; in the table's middle, so that its neighbours are seen.
    show(row) { marked = row; open("all"); const position = rows ? rows.indexOf(row) : row; to(position - fits() / 2); },
  };
};
