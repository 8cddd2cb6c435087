"use strict";
// Numbers and words for people, and the one way elements are made: children are nodes or text, so no string is read as HTML.

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

function put(id, ...children) {
  const element = document.getElementById(id);
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  return element;
}

// Plotly reads a few tags in its texts; as entities they are letters.
function plain(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function number(value, digits = 4) {
  if (!Number.isFinite(value)) return "–";
  const short = Number(value.toPrecision(digits)),
    size = Math.abs(short);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return short.toExponential().replace("e", "·10^").replace("^+", "^");
  return short.toLocaleString("en-US", {maximumFractionDigits: 12});
}

// Names of parts of a breakdown as people read them (dse/terminal/plain_names.py).
const NAMES = {};

function partName(key) {
  return NAMES[key] ?? String(key);
}

const UNIT = {scaled: new Set(), prefixes: []};

function pretty(unit) {
  return unit === "1"
    ? ""
    : unit
        .replace("mm2", "mm²")
        .replace(/^us$/, "µs")
        .replace(/^u(?=[A-Z])/, "µ");
}

// The divisor and the prefixed unit in which values up to `largest` read well, as space.units.display has it.
function scaled(largest, unit) {
  if (!UNIT.scaled.has(unit) || !largest) return [1, pretty(unit)];
  const [scale, prefix] = UNIT.prefixes.find(([s]) => Math.abs(largest) >= s) ?? UNIT.prefixes.at(-1);
  return [scale, pretty(prefix + unit)];
}

function quantity(value, unit, digits = 4) {
  if (!Number.isFinite(value)) return "–";
  const [scale, label] = scaled(value, unit);
  return `${number(value / scale, digits)} ${label}`.trim();
}

// A quantity that dse reads back as the same number: in its prefixed unit where that loses nothing.
function exact(value, unit) {
  if (unit === "1") return String(value);
  if (UNIT.scaled.has(unit) && value) {
    const [scale, prefix] = UNIT.prefixes.find(([s]) => Math.abs(value) >= s) ?? UNIT.prefixes.at(-1);
    if (Number(String(value / scale)) * scale === value) return `${value / scale} ${prefix}${unit}`;
  }
  return `${value} ${unit}`;
}

// Seconds of all work; below zero is what is saved where some of it goes side by side.
function worked(seconds) {
  return seconds.reduce((sum, s) => sum + Math.max(s, 0), 0);
}

function percent(share, digits = 3) {
  return `${number(100 * share, digits)} %`;
}

function difference(value, reference) {
  if (!reference || !Number.isFinite(value / reference)) return "";
  const change = value / reference - 1;
  return Math.abs(change) < 5e-5 ? "same" : `${change > 0 ? "+" : "−"}${number(100 * Math.abs(change), 3)} %`;
}

function count(value, one, many = `${one}s`) {
  return `${value.toLocaleString("en-US")} ${value === 1 ? one : many}`;
}

// A metric or knob in words, anything else by its address.
function called(key) {
  return columnOf(key)?.label ?? String(key);
}

// A name as it is read: of a metric or knob in words, with its address where the pointer rests; others may break after dots and underscores.
function name(text) {
  const words = called(text);
  return words === String(text) ? breakable(text) : [h("span", {class: "metric", title: `${text}: ${columnOf(text).doc}`}, words)];
}

// A name or address that may break after dots and underscores.
function breakable(text) {
  return String(text)
    .split(/(?<=[._])/)
    .flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part]));
}

// A sentence with its metrics and knobs in words.
function spoken(text) {
  return String(text)
    .split(/([a-z][\w.]*\w)/)
    .map(word => (columnOf(word)?.label ? name(word) : word));
}

function shellWord(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

function copied(label, text) {
  const button = h(
    "button",
    {
      class: "copy",
      type: "button",
      title: `Copy ${label}`,
      onclick: async () => {
        await copyText(text);
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = "Copy"), 1200);
      },
    },
    "Copy",
  );
  return h("div", {class: "code"}, h("div", {class: "code-head"}, label, button), h("pre", {}, text));
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // a page from a file may not be allowed to
    const area = h("textarea", {style: "position:fixed;opacity:0"});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
