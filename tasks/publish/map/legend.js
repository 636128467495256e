"use strict";
// Colours of points, and the legend that says what they mean and hides what it is told to.
const mapLegend = ({ data, place, title, onFilter }) => {
  const { categories: PALETTE, numbers: GRADIENT } = data.colors, OWN_COLORS = PALETTE.length, SHADES = 32;
  let column = null, hidden = new Set(), range = {};

  const shades = Array.from({ length: SHADES }, (_, i) => {
    const at = i / (SHADES - 1) * (GRADIENT.length - 1), left = Math.min(Math.floor(at), GRADIENT.length - 2);
    const part = (color, k) => parseInt(color.slice(1 + 2 * k, 3 + 2 * k), 16);
    return "#" + [0, 1, 2].map((k) => Math.round(part(GRADIENT[left], k) + (at - left) * (part(GRADIENT[left + 1], k) - part(GRADIENT[left], k))).toString(16).padStart(2, "0")).join("");
  });
  // Look 0 is grey: a missing value, or a category beyond the commonest.
  const colors = (theme) => [data.colors.other[theme], ...(column && column.kind !== "category" ? shades : PALETTE)];
  function looks() {
    const codes = new Uint8Array(data.count);
    if (!column) return codes.fill(1);
    const values = column.values, low = column.low / 2, span = column.high / 2 - low;
    for (let row = 0; row < data.count; row++) {
      const value = values[row];
      if (column.kind === "category") codes[row] = value > OWN_COLORS ? 0 : value;
      else if (!Number.isNaN(value)) codes[row] = 1 + Math.floor(Math.min(Math.max(span > 0 ? (value / 2 - low) / span : 0.5, 0), 0.999999) * SHADES);
    }
    return codes;
  }
  function visible() {
    const shown = new Uint8Array(data.count).fill(1);
    if (!column) return shown;
    const values = column.values;
    if (column.kind === "category") {
      if (!hidden.size) return shown;
      const open = Uint8Array.from(column.labels, (_, code) => hidden.has(code) ? 0 : 1);
      for (let row = 0; row < data.count; row++) shown[row] = open[values[row]];
    } else if (range.least !== undefined || range.most !== undefined) {
      const least = range.least ?? -Infinity, most = range.most ?? Infinity;
      for (let row = 0; row < data.count; row++) shown[row] = values[row] >= least && values[row] <= most ? 1 : 0;
    }
    return shown;
  }

  const span = (name, text) => Object.assign(document.createElement("span"), { className: name, textContent: text });
  function row(look, name, count, keys) {
    const label = document.createElement("label"), box = Object.assign(document.createElement("input"), { type: "checkbox", checked: true }), swatch = span("swatch", "");
    // Grey depends on the theme: the style sheet knows it.
    if (look) swatch.style.background = PALETTE[look - 1];
    box.addEventListener("change", () => { for (const key of keys) box.checked ? hidden.delete(key) : hidden.add(key); onFilter(); });
    label.append(box, swatch, span("name", name), span("count", count.toLocaleString("en")));
    label.title = "Double-click: this alone, or all again";
    label.addEventListener("dblclick", (event) => {
      event.preventDefault();
      const alone = !keys.some((key) => hidden.has(key)) && hidden.size >= column.labels.length - keys.length - (column.counts[0] ? 0 : 1);
      hidden = new Set(alone ? [] : column.labels.map((_, code) => code).filter((code) => !keys.includes(code) && (code || column.counts[0])));
      for (const other of place.querySelectorAll("input[type=checkbox]")) other.checked = alone || other === box;
      onFilter();
    });
    return label;
  }
  function limit(name, key) {
    const label = document.createElement("label"), input = document.createElement("input");
    input.type = "text"; input.dataset.limit = key; label.append(span("end", name), input);
    input.addEventListener("change", () => {
      const text = input.value.trim(), zoned = /[zZ]$|[+-]\d\d:?\d\d$/.test(text) && text.includes(":");
      const value = column.kind === "time" ? Date.parse(zoned ? text : text.replace(" ", "T") + (text.includes(":") ? "Z" : "")) / 1000 : Number(text);
      const bad = text !== "" && Number.isNaN(value);
      input.setCustomValidity(bad ? (column.kind === "time" ? "a date: 2024-01-31 or 2024-01-31 12:00" : "a number") : "");
      if (bad) { input.reportValidity(); return; }
      range = { ...range, [key]: text === "" ? undefined : value }; onFilter();
    });
    return label;
  }
  function draw() {
    place.replaceChildren(); title.textContent = column ? column.name : "";
    if (!column) return;
    if (column.kind === "category") {
      const own = Math.min(column.labels.length, OWN_COLORS + 1), rest = Array.from({ length: column.labels.length - own }, (_, i) => own + i);
      for (let code = 1; code < own; code++) place.append(row(code, column.labels[code], column.counts[code], [code]));
      if (rest.length) place.append(row(0, `${rest.length.toLocaleString("en")} others`, rest.reduce((sum, code) => sum + column.counts[code], 0), rest));
      if (column.counts[0]) place.append(row(0, "missing", column.counts[0], [0]));
      return;
    }
    const bar = document.createElement("div"), ends = document.createElement("div"), text = column.kind === "time" ? mapColumns.time : mapColumns.number;
    bar.className = "bar"; bar.style.background = `linear-gradient(to right, ${GRADIENT.join(",")})`;
    ends.className = "ends"; ends.append(span("", "≤ " + text(column.low)), span("", "≥ " + text(column.high)));
    place.append(bar, ends, limit("from", "least"), limit("to", "most"));
    const missing = column.values.reduce((count, value) => count + (Number.isNaN(value) ? 1 : 0), 0);
    if (missing) {
      const line = Object.assign(document.createElement("div"), { className: "missing" });
      line.append(span("swatch", ""), span("name", "missing"), span("count", missing.toLocaleString("en")));
      place.append(line);
    }
  }
  return {
    colors, looks, visible,
    show(next) { column = next; hidden = new Set(); range = {}; draw(); },
  };
};
