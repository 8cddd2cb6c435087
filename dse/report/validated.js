// The page of a validation: measured against simulated for all studies, errors by group, and failures.

const SYMBOLS = {calibration: "circle-open", check: "circle", report: "x"};

// What is drawn of a published value: a figure, or the middle of a narrow range.
function middle(text) {
  const ends = text.split("..").map(Number);
  return Math.sqrt(ends[0] * ends.at(-1));
}

const rowError = row => (row.in_range ? "holds" : share(row.error));

function validationText(data) {
  const scores = Object.entries(data.scores)
    .filter(([, of]) => of.numbers + of.ranges)
    .map(([role, of]) =>
      [of.numbers ? `${role}: median error of ${of.numbers} numbers ${share(of.median)}` : `${role}:`, of.ranges ? `${of.held} of ${of.ranges} ranges hold` : ""]
        .filter(Boolean)
        .join(", "),
    );
  const counts = Object.entries(data.failures).map(([role, of]) => `${of.fail} of ${of.rows} of role ${role}`);
  return (
    `${data.rows.length} rows at physics version ${data.physics}; errors above the study's tolerance: ${counts.join(", ")}. ${scores.join("; ")}. ` +
    (data.broken.length ? `Checks that fail and are no known miss: ${data.broken.join(", ")}.` : "Every check holds, except known misses.") +
    " Rings are calibration rows, dots checks, crosses reports."
  );
}

function validationPlots(data) {
  const drawn = data.rows.filter(row => !row.order && row.simulated > 0 && middle(row.published) > 0),
    studies = [...new Set(drawn.map(row => row.study))],
    measured = row => middle(row.published),
    ends = [Math.min(...drawn.map(measured)), Math.max(...drawn.map(measured))];
  const hover = row =>
    `${plain(row.study)}/${plain(row.id)}<br>${plain(row.where)}<br>${plain(row.note || row.metric)}<br>` +
    `${row.role}: measured ${plain(row.published)}, simulated ${figure(row.simulated)} ${plain(row.unit)}, ${rowError(row)}`;
  const marks = y =>
    studies.map((study, i) => {
      const of = drawn.filter(row => row.study === study);
      return {
        type: "scatter", mode: "markers", name: study, legendgroup: study, x: of.map(measured), y: of.map(y), text: of.map(hover),
        hovertemplate: "%{text}<extra></extra>",
        marker: {size: 8, color: `hsl(${(i * 360) / studies.length}, 60%, ${i % 2 ? 42 : 54}%)`, symbol: of.map(row => SYMBOLS[row.role])},
      };
    });
  const equal = y => ({type: "scatter", mode: "lines", name: "equal", x: ends, y: ends.map(y), line: {color: "--strong"}, hoverinfo: "skip"});
  const pictures = [
    ["Simulated against measured, each in its own unit", row => row.simulated, end => end, "simulated"],
    ["Simulated over measured", row => row.simulated / measured(row), () => 1, "simulated over measured"],
  ];
  const plot = answerPlots();
  for (const [title, y, line, words] of pictures)
    plot(title, drawn.length ? [equal(line), ...marks(y)] : [], {type: "log", title: "measured"}, {type: "log", title: words}, {showlegend: studies.length <= 12});
}

startAnswer(data => {
  add(answerText("said", validationText(data)));
  validationPlots(data);
  const groupHead = ["study", "chip", "phase", "rows", "scored", "mean error", "90 %", "worst", "ranges hold", "calibration fails", "check fails", "report fails"];
  const groups = data.groups.map(g => [
    g.study, g.chip, g.phase, g.rows, g.scored, share(g.mean), share(g.p90), share(g.worst),
    g.ranges ? `${g.held} of ${g.ranges}` : "",
    ...Object.values(g.failures).map(([bad, many]) => (many ? `${bad} of ${many}` : "")),
  ]);
  const failureHead = ["row", "what", "role", "published", "simulated", "unit", "error", "tolerance", "known"];
  const failures = data.rows.filter(row => row.fails).map(row => [
    `${row.study}/${row.id}`, `${row.where}: ${row.note || row.metric}`, row.role, row.published, figure(row.simulated), row.unit,
    rowError(row), share(row.tolerance), row.known,
  ]);
  add(
    answerTable("groups", "By study, chip and phase", groupHead, groups, ["chip", "phase"]),
    answerTable("failures", "Rows with errors above their study's tolerance", failureHead, failures, ["what", "role", "unit", "known"]),
  );
});
