// Points beside the designs: real chips as measured, values that a reader types in, and what predictions were off by.

Object.assign(view, {real: false, typing: false, own: []});

// Measured chips that have a value on both axes, of all studies; each once.
function realChips(keys) {
  const all = designs.studies.flatMap(study => study.figures.measured);
  return all.filter((chip, i) => keys.every(key => Number.isFinite(chip.metrics[key])) && all.findIndex(one => one.id === chip.id) === i);
}

function shownPoints(keys) {
  const own = view.own.filter(point => keys.every(key => Number.isFinite(point.metrics[key])));
  return [...(view.real ? realChips(keys) : []), ...own];
}

// Traces of these points over two axes; their rows are none of the designs'.
function pointTraces(axes, traces, rows) {
  const keys = axes.map(axis => axis.column.name);
  const kinds = [
    ["measured chips", view.real ? realChips(keys) : [], "diamond-open", "--warm"],
    ["own values", view.own.filter(point => keys.every(key => Number.isFinite(point.metrics[key]))), "x", "--mark"],
  ];
  for (const [title, points, symbol, colour] of kinds) {
    if (!points.length) continue;
    const at = i => points.map(point => point.metrics[keys[i]] / axes[i].scale);
    const values = point => keys.map(key => `${called(key)} ${quantity(point.metrics[key], columnOf(key).unit)}`);
    traces.push({
      type: "scatter", mode: "markers+text", name: `${title} (${points.length})`, x: at(0), y: at(1),
      text: points.map((point, i) => (points.findIndex(one => one.name === point.name) === i ? plain(point.name) : "")),
      textposition: "top center", textfont: {size: 11, color: ink("--ink")}, cliponaxis: false,
      marker: {size: 10, symbol, color: ink(colour), line: {width: 1.8, color: ink(colour)}},
      hovertext: points.map(point => [point.name, point.text, ...values(point)].filter(Boolean).map(plain).join("<br>")),
      hovertemplate: "%{hovertext}<extra></extra>",
    });
    rows.push([]);
  }
}

// The band of a metric for a design: from what measured rows of its kind were off by; null where there are none.
function bandOf(row, key) {
  const chips = columnOf("chip"),
    chip = chips && !Number.isNaN(chips.values[row]) ? chips.words[chips.values[row]] : null,
    band = studyOf(row).bands.find(one => one.metric === key && one.low !== null && (chip === null || one.chip === chip));
  const value = valueOf(key, row);
  return band ? [value / (1 + band.high), value / (1 + band.low)] : null;
}

// Bars of Plotly around one design.
function bandBars(row, axes) {
  const bars = {};
  ["x", "y"].forEach((name, i) => {
    const {column, scale} = axes[i] ?? {},
      band = column && bandOf(row, column.name);
    if (!band) return;
    const value = column.values[row];
    bars[`error_${name}`] = {
      type: "data", symmetric: false, array: [Math.max(band[1] - value, 0) / scale], arrayminus: [Math.max(value - band[0], 0) / scale],
      color: ink("--ink"), thickness: 1.5, width: 5,
    };
  });
  return bars;
}

function hasBands() {
  return view.open >= 0 && [view.x, view.y].some(key => bandOf(view.open, key));
}

// A number with a unit of the column, or that of its axis where none is typed; null where it is neither.
function typedValue(text, {column, scale}) {
  const [, digits, unit] = /^\s*([-+]?\d[\d,]*(?:\.\d*)?(?:e[-+]?\d+)?)\s*(.*?)\s*$/i.exec(text) ?? [];
  if (!digits) return null;
  const factor = !unit ? scale : [...UNIT.prefixes, [1, ""]].find(([, prefix]) => [prefix + column.unit, pretty(prefix + column.unit)].includes(unit))?.[0];
  return factor === undefined ? null : Number(digits.replaceAll(",", "")) * factor;
}

function pointTools() {
  const keys = [view.x, view.y],
    many = realChips(keys).length;
  const toggle = (key, text, title) =>
    h("button", {type: "button", title, class: view[key] ? "on" : "", "aria-pressed": String(view[key]), onclick: () => {
      view[key] = !view[key];
      refresh();
    }}, text);
  if (view.dims === "3") return [];
  return [
    many > 0 && toggle("real", `Real chips (${many})`, "Draw real chips, as measured with this model"),
    toggle("typing", "Own values", "Draw values of your own beside the designs"),
  ];
}

// Where a reader types values of a chip of their own on the two axes that are shown.
function ownForm() {
  if (!view.typing || view.dims === "3") return null;
  const axes = frontAxes(),
    field = (hint, label) => h("input", {type: "text", placeholder: hint, "aria-label": label, size: 16}),
    title = field("name", "name of the own values"),
    inputs = axes.map(({column, short}) => field(short, called(column.name))),
    problem = h("small", {class: "bad", role: "alert"});
  const addPoint = event => {
    event.preventDefault();
    const values = inputs.map((input, i) => typedValue(input.value, axes[i])),
      wrong = values.indexOf(null);
    if (wrong >= 0) {
      problem.textContent = `${called(axes[wrong].column.name)}: expected a number${axes[wrong].column.unit === "1" ? "" : ` in ${pretty(axes[wrong].column.unit)}`}, got “${inputs[wrong].value}”`;
      return;
    }
    const metrics = Object.fromEntries(axes.map(({column}, i) => [column.name, values[i]]));
    view.own.push({name: title.value || `own ${view.own.length + 1}`, text: "", metrics});
    refresh();
  };
  const drop = point => chip(point.name, () => (view.own = view.own.filter(one => one !== point)));
  return h("form", {class: "own", onsubmit: addPoint}, title, inputs, h("button", {type: "submit"}, "Add"), view.own.map(drop), problem);
}
