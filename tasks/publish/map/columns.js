"use strict";
// What the page carries, unpacked, and values as text.
const mapColumns = (() => {
  const TYPES = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array, float64: Float64Array };

  function bytesOf(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const letters = atob(text), bytes = new Uint8Array(letters.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
    return bytes;
  }
  const unpack = (text) => new Response(new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  // All first bytes of the numbers come first, then all second.
  async function array(text, type) {
    const planes = new Uint8Array(await unpack(text)), width = TYPES[type].BYTES_PER_ELEMENT, count = planes.length / width;
    const bytes = new Uint8Array(planes.length);
    for (let k = 0; k < width; k++) for (let i = 0; i < count; i++) bytes[i * width + k] = planes[k * count + i];
    return new TYPES[type](bytes.buffer);
  }
  async function column(one) {
    if (one.kind === "text") return texts(one.data);
    const values = await array(one.data, one.type);
    if (!one.different) return values;
    const different = await array(one.different, "float64"), numbers = new Float64Array(values.length);
    for (let row = 0; row < values.length; row++) numbers[row] = different[values[row]];
    return numbers;
  }
  const raw = async (text) => new TextDecoder().decode(await unpack(text));
  const texts = async (text) => JSON.parse(await raw(text));

  async function ids(packed) {
    if (packed.texts) return texts(packed.texts);
    return Array.from(await array(packed.numbers, "uint32"), (one) => packed.prefix + String(one).padStart(packed.width, "0"));
  }

  const number = (value) => Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(6)).toString();
  function time(seconds) {
    const moment = new Date(seconds * 1000);
    return Number.isNaN(moment.getTime()) ? number(seconds) : moment.toISOString().replace("T", " ").replace(/(\.000)?Z$/, "").replace(" 00:00:00", "");
  }
  function shown(of, row) {
    const value = of.values[row];
    if (of.kind === "category") return value ? of.labels[value] : "missing";
    if (of.kind === "text") return value;
    if (Number.isNaN(value)) return "missing";
    return of.kind === "time" ? time(value) : number(value);
  }
  // For files: all digits that the page has, nothing for a missing value.
  function exact(of, row) {
    const value = of.values[row];
    if (of.kind === "category") return of.labels[value];
    if (of.kind === "text") return value;
    if (Number.isNaN(value)) return "";
    return of.kind === "time" ? time(value) : String(of.values instanceof Float32Array ? Number(value.toPrecision(7)) : value);
  }
  // Rows from the least value to the most, missing values last; equal ones by row. Whole numbers sort natively.
  async function sorted(of) {
    const values = of.values, count = values.length, pause = () => new Promise((done) => setTimeout(done));
    let ranked = values;
    if (of.kind === "category") {
      const order = of.labels.map((label, code) => code).slice(1).sort((a, b) => of.labels[a] < of.labels[b] ? -1 : 1);
      ranked = new Float64Array(of.labels.length).fill(NaN); order.forEach((code, rank) => { ranked[code] = rank; });
      const byCode = ranked; ranked = new Float64Array(count);
      for (let row = 0; row < count; row++) ranked[row] = byCode[values[row]];
    }
    const least = new Float64Array(ranked).sort(), keys = new BigUint64Array(count), halves = new Uint32Array(keys.buffer);
    await pause();
    for (let row = 0; row < count; row++) {
      if (row % 100000 === 99999) await pause();
      let low = 0, high = count; const value = ranked[row];
      if (Number.isNaN(value)) low = count; else while (low < high) { const middle = (low + high) >> 1; if (least[middle] < value) low = middle + 1; else high = middle; }
      halves[2 * row] = row; halves[2 * row + 1] = low;
    }
    await pause(); keys.sort();
    const rows = new Uint32Array(count);
    for (let i = 0; i < count; i++) rows[i] = halves[2 * i];
    return rows;
  }
  return { array, column, ids, raw, number, time, shown, exact, sorted };
})();
