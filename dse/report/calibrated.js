// The page of a calibration: constants and errors before and after, each figure beside its simulation, and plots by unit.

const ROLE_COLOURS = {calibration: "--s1", check: "--s2", report: "--s8"};
const ROWS_IN_FULL = 60; // figures that have a line each; more are plotted alone

const geometric = row => Math.sqrt(row.measured[0] * row.measured[1]);
const known = value => value !== null && Number.isFinite(value);

function calibrationTraces(rows, names) {
  const traces = Object.entries(ROLE_COLOURS).flatMap(([role, color]) =>
    ["before", "after"].map(when => {
      const of = rows.filter(row => row.role === role && row[when] > 0);
      return {
        type: "scatter", mode: "markers", name: `${role}, ${when}`,
        x: of.map(geometric), y: of.map(row => row[when]), text: of.map(row => plain(`${row.id}: ${names[row.metric]}`)),
        hovertemplate: "%{text}<br>measured %{x:.4g}<br>simulated %{y:.4g}<extra></extra>",
        marker: {color, size: 8, symbol: when === "before" ? "circle-open" : "circle"},
      };
    }),
  );
  const all = rows.flatMap(row => [geometric(row), row.before, row.after]).filter(value => value > 0),
    ends = [Math.min(...all), Math.max(...all)];
  return [...traces.filter(trace => trace.x.length), {type: "scatter", mode: "lines", name: "equal", x: ends, y: ends, line: {color: "--strong"}, hoverinfo: "skip"}];
}

// One plot for each unit: what all its figures are called where there is one metric, else how many there are.
function calibrationPlots(rows, names) {
  const plot = answerPlots();
  for (const [unit, of] of Map.groupBy(rows, row => row.unit || "1")) {
    const metrics = [...new Set(of.map(row => row.metric))],
      shown = unit === "1" ? "" : ` [${pretty(unit)}]`;
    const title = metrics.length === 1 ? names[metrics[0]] : count(metrics.length, "metric");
    plot(`${title}${shown}`, calibrationTraces(of, names), {type: "log", title: `measured${shown}`}, {type: "log", title: `simulated${shown}`});
  }
}

function calibrationError(row, when) {
  const [low, high] = row.measured,
    value = row[when];
  if (!known(value)) return "none";
  if (low < high && low <= value && value <= high) return "holds";
  const nearest = Math.min(Math.max(value, low), high);
  return `${value >= nearest ? "+" : "−"}${share(Math.abs(value / nearest - 1))}`;
}

function figureRow(row, names) {
  const [low, high] = row.measured,
    text = value => (known(value) ? quantity(value, row.unit || "1") : "none");
  const measured = low === high ? text(low) : `${text(low)} to ${text(high)}`;
  return [row.id, names[row.metric], row.role, measured, text(row.before), calibrationError(row, "before"), text(row.after), calibrationError(row, "after")];
}

function constantRow(constant, settings) {
  const text = value => quantity(value, constant.unit),
    [low, high] = constant.interval;
  const interval = known(low) && known(high) ? `${text(low)} to ${text(high)}` : "–";
  return [named(settings[constant.address], constant.address), text(constant.before), text(constant.after), interval, constant.determined];
}

startAnswer(({answer: data, names, settings, prefixes, scaled: units}) => {
  UNIT.prefixes = prefixes;
  UNIT.scaled = new Set(units);
  const spread = Object.entries(data.errors).map(([rows, e]) => [rows, e.rows, share(e.median), share(e.p90), share(e.worst)]);
  const left = Object.entries(data.undetermined).map(([address, reason]) => [named(settings[address], address), reason]);
  const fitted = data.rows.filter(row => row.role === "calibration").length;
  add(
    answerText("said", `${count(data.constants.length, "constant")} fitted to ${fitted} of ${count(data.rows.length, "figure")}. Physics ${data.physics}, seed ${data.seed}.`),
    answerTable("constants", "Constants", ["constant", "before", "after", "95 % interval", "determined"], data.constants.map(c => constantRow(c, settings)), ["determined"]),
    left.length > 0 && answerTable("undetermined", "Constants that these figures do not determine", ["constant", "reason"], left, ["reason"]),
    answerTable("errors", "Errors", ["rows", "number", "median", "90 %", "worst"], spread),
  );
  if (data.rows.length <= ROWS_IN_FULL) {
    const head = ["figure", "metric", "role", "measured", "before", "error", "after", "error"];
    add(answerTable("figures", "Measured and simulated", head, data.rows.map(row => figureRow(row, names)), ["metric", "role"]));
  }
  calibrationPlots(data.rows, names);
  const runs = data.runs.flatMap(run => [`${run.name}: ${run.source}`, ...run.notes.map(note => `${run.name}: ${note}`)]);
  add(answerNotes("Notes", [...data.warnings, ...runs]));
});
