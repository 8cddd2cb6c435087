// The page of a calibration: constants and errors before and after, and measured against simulated.

const ROLE_COLOURS = {calibration: "--s1", check: "--s2", report: "--s8"};

function calibrationTraces(rows) {
  const measured = row => Math.sqrt(row.measured[0] * row.measured[1]);
  const traces = Object.entries(ROLE_COLOURS).flatMap(([role, color]) =>
    ["before", "after"].map(when => {
      const of = rows.filter(row => row.role === role && row[when] > 0);
      return {
        type: "scatter", mode: "markers", name: `${role}, ${when}`,
        x: of.map(measured), y: of.map(row => row[when]), text: of.map(row => plain(row.id)),
        hovertemplate: "%{text}<br>measured %{x:.4g}<br>simulated %{y:.4g}",
        marker: {color, size: 8, symbol: when === "before" ? "circle-open" : "circle"},
      };
    }),
  );
  const all = rows.flatMap(row => [measured(row), row.before, row.after]).filter(value => value > 0),
    ends = [Math.min(...all), Math.max(...all)];
  return [...traces.filter(trace => trace.x.length), {type: "scatter", mode: "lines", name: "equal", x: ends, y: ends, line: {color: "--strong"}, hoverinfo: "skip"}];
}

startAnswer(data => {
  add(answerText("said", `${data.file}, physics ${data.physics}, seed ${data.seed}. ${data.warnings.join(". ")}`));
  const constants = data.constants.map(c => [c.address, c.unit, figure(c.before), figure(c.after), c.interval.map(figure).join(" .. "), c.determined]);
  const errors = Object.entries(data.errors).map(([name, e]) => [name, e.rows, share(e.median), share(e.p90), share(e.worst)]);
  add(
    answerTable("constants", "Constants", ["constant", "unit", "before", "after", "95 % interval", "determined"], constants, ["unit", "determined"]),
    answerTable("errors", "Errors", ["rows", "number", "median", "90 %", "worst"], errors),
  );
  const plot = answerPlots();
  for (const [key, rows] of Map.groupBy(data.rows, row => `${row.metric} [${row.unit || "1"}]`))
    plot(key, calibrationTraces(rows), {type: "log", title: "measured"}, {type: "log", title: "simulated"});
});
