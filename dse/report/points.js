// Points beside the designs: real chips as measured, values that a reader types in, and what predictions were off by.

Object.assign(view, {real: false, bands: false, typing: false, own: []});

const MOST_BANDS = 30; // designs of the front whose bands are drawn; of more, an even choice

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

// The band of a metric for a design: from what measured rows of its kind were off by, else from the rates that chips of its kind
// reach; null where neither is known.
function bandOf(row, key) {
  const chips = columnOf("chip"),
    chip = chips && !Number.isNaN(chips.values[row]) ? chips.words[chips.values[row]] : null,
    band = studyOf(row).bands.find(one => one.metric === key && one.low !== null && (chip === null || one.chip === chip));
  const value = valueOf(key, row);
  return band ? [value / (1 + band.high), value / (1 + band.low)] : rateBand(row, key, chips && chips.words[chips.values[row]]);
}

// A metric with the rates at both ends of the band that rates of whole models have on this kind of chip.
function rateBand(row, key, chip) {
  const {chips, powers} = studyOf(row).rates,
    rates = chip ? chips[chip] : Object.values(chips)[0],
    value = valueOf(key, row);
  if (!rates || !powers[key] || !Number.isFinite(value)) return null;
  return powers[key] > 0 ? [value * rates.low, value * rates.high] : [value / rates.high, value / rates.low];
}

// Traces of the bands of some designs: a line along each axis, from one end to the other.
function bandTraces(of, axes, variable, width) {
  return axes.flatMap(({column, scale}, i) => {
    const ends = of.map(row => bandOf(row, column.name)),
      other = axes[1 - i],
      along = ends.flatMap(band => (band ? [band[0] / scale, band[1] / scale, null] : [])),
      across = of.flatMap((row, at) => (ends[at] ? [other.column.values[row] / other.scale, other.column.values[row] / other.scale, null] : []));
    if (!along.length || column === other.column) return [];
    const [x, y] = i ? [across, along] : [along, across];
    return [{type: "scatter", mode: "lines", x, y, hoverinfo: "skip", showlegend: false, line: {width, color: ink(variable)}}];
  });
}

// Bands of the front where a reader wants them, below the designs.
function frontBandTraces(axes) {
  if (!view.bands) return [];
  const front = reachable().filter(isFront),
    step = Math.ceil(front.length / MOST_BANDS);
  return bandTraces(front.filter((_, i) => i % step === 0), axes, "--ghost", 1.5);
}

function hasBands(row) {
  return row >= 0 && [view.x, view.y].some(key => bandOf(row, key));
}

function bandCaption() {
  if (!hasBands(view.open) && !view.bands) return "";
  const rates = designs.studies.flatMap(study => Object.values(study.rates.chips).map(({source}) => source));
  const known = designs.studies.some(study => study.bands.some(band => [view.x, view.y].includes(band.metric) && band.low !== null));
  const basis = known ? "what measured rows of its kind were off by" : `rates of whole models, measured over predicted (${[...new Set(rates)].join("; ")})`;
  return ` Lines along the axes at ${view.bands ? `designs of the front, at most ${MOST_BANDS} of them` : "the open design"}: where measurements lie, by ${basis}.`;
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
    (view.bands || designs.studies.some(study => hasBands(frontOf(study)[0] ?? -1))) && toggle("bands", "Bands", "Draw where measurements lie for each design of the front"),
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
