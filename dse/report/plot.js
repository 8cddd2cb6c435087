// Plotly in the page's own look, drawn again when the theme changes; and the tip that stands at the pointer.

const SERIES = ["--s1", "--s2", "--s3", "--s4", "--s5", "--s6", "--s7", "--s8"];
const SCALE = [
  [0, "--scale-low"],
  [0.5, "--scale-middle"],
  [1, "--scale-high"],
];

const inks = new Map(); // colours by scheme and variable: each look at the style lays out the page again

function ink(variable) {
  const key = `${document.documentElement.dataset.scheme} ${variable}`;
  if (!inks.has(key)) inks.set(key, getComputedStyle(document.documentElement).getPropertyValue(variable).trim());
  return inks.get(key);
}

function series(index) {
  return ink(SERIES[index % SERIES.length]);
}

// Values with names of variables replaced by the theme's colours.
function inked(value) {
  if (typeof value === "string") return value.startsWith("--") ? ink(value) : value;
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map(inked);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, inked(part)]));
  return value;
}

// The colours of numbers, from low to high, in the page's theme.
function spectrum() {
  return SCALE.map(([at, variable]) => [at, ink(variable)]);
}

function axisStyle(title) {
  return {
    title: {text: plain(title).replaceAll("\n", "<br>"), font: {size: 12, color: ink("--soft")}, standoff: 8},
    automargin: true,
    zeroline: false,
    gridcolor: ink("--line"),
    linecolor: ink("--line"),
    tickfont: {size: 11, color: ink("--soft")},
  };
}

function engineOf(plot) {
  return plot.engine ?? Plotly;
}

function draw(element, traces, layout) {
  const look = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    template: {},
    font: {family: ink("--sans"), size: 12, color: ink("--ink")},
    margin: {l: 56, r: 12, t: 28, b: 44},
    hovermode: "closest",
    showlegend: true,
    legend: {orientation: "h", x: 0, y: 1.01, yanchor: "bottom", font: {size: 12, color: ink("--soft")}},
  };
  return engineOf(element).react(element, traces, {...look, ...layout}, {displayModeBar: false, responsive: true, doubleClick: "reset"});
}

function tip(event, ...children) {
  const element = document.getElementById("tip");
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  element.hidden = false;
  const {width, height} = element.getBoundingClientRect(),
    gap = 14;
  const left = event.clientX + gap + width > innerWidth ? event.clientX - gap - width : event.clientX + gap;
  const top = Math.min(Math.max(event.clientY - height / 2, 8), innerHeight - height - 8);
  element.style.transform = `translate(${Math.max(left, 8)}px, ${top}px)`;
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}

function designTip(event, row) {
  const line = column => h("tr", {}, h("th", {}, called(column.name)), h("td", {}, textOf(column, row)));
  const others = [view.x, view.y, view.z]
    .filter(Boolean)
    .map(columnOf)
    .filter(c => c && c.kind === "metric" && !designs.objectives.includes(c));
  tip(
    event,
    h("b", {}, label(row), isFront(row) ? " on the front" : ""),
    h(
      "table",
      {},
      [...designs.objectives, ...others].map(line),
      verifiedLines(row),
      designs.knobs.filter(k => !Number.isNaN(k.values[row])).map(line),
    ),
  );
}

function verifiedLines(row) {
  const place = verifiedPlace(row);
  if (place < 0) return [];
  const {metrics, high} = studyOf(row).verified;
  const known = Object.keys(studyOf(row).objectives).filter(key => metrics[key] && metrics[key][place] !== null);
  return known.map(key =>
    h("tr", {}, h("th", {}, `${called(key)}, ${high}`), h("td", {}, quantity(metrics[key][place], columnOf(key).unit))),
  );
}

function select(title, options, chosen, onchange) {
  const menu = h(
    "select",
    {"aria-label": title, onchange: () => onchange(menu.value)},
    options.map(([value, text]) => h("option", {value, title: value, selected: value === chosen}, text)),
  );
  return h("label", {class: "pick"}, h("span", {}, title), menu);
}

function segments(title, options, chosen, onchange) {
  return h(
    "div",
    {class: "segments", role: "group", "aria-label": title},
    options.map(([value, text, hint]) =>
      h(
        "button",
        {
          type: "button",
          title: hint,
          "aria-pressed": String(value === chosen),
          "data-value": value,
          onclick: () => onchange(value),
        },
        text,
      ),
    ),
  );
}

function heading(title, caption, ...tools) {
  return h(
    "div",
    {class: "heading"},
    h("div", {}, h("h2", {}, title), caption && h("p", {}, caption)),
    h("div", {class: "tools"}, tools),
  );
}

function empty(title, text) {
  return h("div", {class: "empty"}, h("b", {}, title), h("span", {}, text));
}
