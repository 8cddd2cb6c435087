// The page of a comparison: a bar a chip for each main metric, where time goes, and all metrics side by side.

const barText = ({value, unit}) => quantity(value, unit);
const barHeight = chips => 130 + 38 * chips.length; // px
const HATCHES = ["", "/", "x", "."]; // of a colour that is used again
const chipAxis = {title: "", autorange: "reversed", automargin: true, type: "category"};

// One card for a metric: a bar a chip, with what measured machines reach where rows tell.
function metricBars(plot, data, name, chips) {
  const known = chips.filter(chip => chip.metrics[name]),
    {unit} = known[0].metrics[name],
    [scale, shown] = scaled(Math.max(...known.map(chip => Math.abs(chip.metrics[name].value))), unit);
  const label = chip => plain(`${chip.chip}  ${barText(chip.metrics[name])}`),
    accuracy = chip => (name === "throughput" && chip.stack_basis?.accuracy) || null;
  const bars = [false, true].map(measured => {
    const own = known.filter(chip => Boolean(accuracy(chip)) === measured),
      values = own.map(chip => chip.metrics[name].value / scale);
    const ends = {
      type: "data", symmetric: false, color: "--ink",
      array: own.map((chip, i) => values[i] * (accuracy(chip)?.high - 1)), arrayminus: own.map((chip, i) => values[i] * (1 - accuracy(chip)?.low)),
    };
    return {
      type: "bar", orientation: "h", showlegend: false, y: own.map(label), x: values, hoverinfo: "none", ...(measured ? {error_x: ends} : {}),
      marker: {color: own.map(chip => SERIES[data.answer.chips.indexOf(chip) % SERIES.length])},
    };
  });
  const better = data.better[name] === "max" ? "more is better" : "less is better";
  const title = `${data.names[name]}${name === data.answer.objective ? ", the objective" : ""}: ${better}`;
  const x = {title: shown && `[${shown}]`, rangemode: "tozero"};
  plot(title, bars, x, {...chipAxis, categoryorder: "array", categoryarray: known.map(label)}, {barmode: "overlay"}, barHeight(known));
}

// A look for each part of the time: its usual colour, or one that is free; hatched where all are taken.
function partLooks(keys, usual) {
  const used = keys.map(() => null),
    times = color => used.filter(other => other === color).length;
  keys.forEach((key, i) => (used[i] = usual[key] && !times(usual[key]) ? usual[key] : null));
  return keys.map((key, i) => {
    if (used[i]) return {color: used[i]};
    const color = SERIES.toSorted((a, b) => times(a) - times(b))[0],
      hatch = HATCHES[times(color)];
    used[i] = color;
    return {color, pattern: {shape: hatch, fgcolor: "--paper", bgcolor: color, fillmode: "replace", size: 6}};
  });
}

// Shares of the work by resource, a bar a chip.
function timeBars(plot, data, chips) {
  const totals = chips.map(chip => Object.values(chip.seconds_by_bound).filter(s => s > 0).reduce((a, b) => a + b, 0)),
    order = Object.keys(data.colours),
    place = key => (order.indexOf(key) < 0 ? order.length : order.indexOf(key));
  const keys = [...new Set(chips.flatMap(chip => Object.keys(chip.seconds_by_bound)))].sort((a, b) => place(a) - place(b));
  const looks = partLooks(keys, data.colours);
  const traces = keys
    .map((key, i) => ({
      type: "bar", orientation: "h", name: plain(partName(key)), y: chips.map(chip => plain(chip.chip)),
      x: chips.map((chip, j) => (100 * Math.max(chip.seconds_by_bound[key] ?? 0, 0)) / (totals[j] || 1)),
      marker: looks[i], hovertemplate: "%{y}: %{x:.1f} %",
    }))
    .filter(trace => Math.max(...trace.x) >= 0.5);
  plot("Where the time goes", traces, {title: "share of work [%]", range: [0, 100]}, chipAxis, {barmode: "stack"}, barHeight(chips));
}

function allMetrics(data, chips) {
  const names = [...new Set(chips.flatMap(chip => Object.keys(chip.metrics)))];
  const rows = names.map(name => [named(data.names[name], name), ...chips.map(chip => (chip.metrics[name] ? barText(chip.metrics[name]) : "–"))]);
  return answerTable("metrics", "All metrics", ["metric", ...chips.map(chip => chip.chip)], rows);
}

startAnswer(data => {
  UNIT.prefixes = data.prefixes;
  UNIT.scaled = new Set(data.scaled);
  Object.assign(NAMES, data.parts);
  const {answer: compared} = data,
    chips = compared.chips.filter(chip => !chip.why_not);
  add(answerText("verdict", data.best, "verdict"), answerText("said", `${compared.cases.join("; ")}. Each chip has the best mapping that a short search finds.`));
  const plot = answerPlots();
  for (const name of data.shown) metricBars(plot, data, name, chips);
  timeBars(plot, data, chips);
  const facts = ["chips", "mapping", "settings of the search", "formats", "software"];
  const cells = chip => [
    chip.chips ?? "–", chip.mapping, Object.entries(chip.knobs).map(([key, value]) => `${data.settings[key]} ${value}`).join(", ") || "–",
    Object.entries(chip.formats).map(([key, value]) => `${key} ${value}`).join(", "), chip.software ?? "none",
  ];
  add(answerTable("mappings", "Chips and mappings", ["chip", ...facts], chips.map(chip => [chip.chip, ...cells(chip)]), facts.slice(1)));
  add(allMetrics(data, chips));
  const notes = chips.flatMap(chip => [chip.stack_basis?.text, chip.kernel_basis && `beyond measured rows: ${chip.kernel_basis}`].filter(Boolean).map(text => `${chip.chip}: ${text}`));
  const refused = compared.chips.filter(chip => chip.why_not).map(chip => `${chip.chip}: ${chip.why_not}`);
  const whiskers = chips.some(chip => chip.stack_basis?.accuracy) ? ["Lines at the ends of bars of throughput: where measured machines lie, tenth to ninetieth percentile of rows of that stack."] : [];
  add(answerNotes("Notes", [compared.note, ...whiskers, ...notes, ...refused].filter(Boolean)));
});
