// What a higher fidelity says about the best designs: each metric there against here, and which designs that moves.

const MOVES = {
  stays: ["--accent", "stays on the front"],
  "falls off": ["--warm", "falls off the front"],
  "comes on": ["--mark", "comes on to the front"],
  behind: ["--dot", "behind it at both"],
  compared: ["--accent", "compared on a part of its mesh"],
  "off the front": ["--strong", "off the front"],
};

// The best designs and those off the front, one after the other.
function allVerified(study) {
  const {verified} = study,
    {off} = verified,
    none = rows => rows.map(() => null),
    joined = key =>
      Object.fromEntries(
        Object.keys({...verified[key], ...off[key]}).map(name => [
          name,
          [...(verified[key][name] ?? none(verified.rows)), ...(off[key][name] ?? none(off.rows))],
        ]),
      );
  return {
    ...verified,
    rows: [...verified.rows, ...off.rows],
    moves: [...verified.moves, ...off.moves],
    notes: [...verified.notes, ...off.notes],
    before: joined("before"),
    metrics: joined("metrics"),
  };
}

// Place of a row among the designs that its study verified; -1 where it is none of them.
function verifiedPlace(row) {
  const study = studyOf(row);
  return study.verified ? allVerified(study).rows.indexOf(row) : -1;
}

function verifiedCard(study, titled) {
  const found = study.verified;
  if (!found) return null;
  const goals = Object.keys(study.objectives).filter(key => found.metrics[key] && found.before[key]),
    moving = goals.filter(key => found.shifts.find(shift => shift.metric === key && shift.worst !== 0));
  const tally = Map.groupBy(allVerified(study).moves, move => move),
    many = move => found.moves.filter(one => one === move).length,
    better = found.off.moves.filter(move => move === "comes on").length;
  const missing = found.wanted - found.rows.length + found.off.wanted - found.off.rows.length;
  const outcome = found.part
    ? `${found.part}.`
    : `of ${many("stays") + many("falls off")} on the front ${many("stays")} stay, ${many("falls off")} fall off, and ` +
      `${many("comes on")} enter it.`;
  const caption =
    `${count(found.rows.length, "design")} evaluated again by ${found.high}, the front first: ${outcome}` +
    (found.off.rows.length
      ? ` ${found.off.rows.length} more from all over the others` + (better ? `, of which ${better} would be on the front.` : ".")
      : "") +
    (missing ? ` ${missing.toLocaleString("en-US")} more are not evaluated yet.` : "");
  const plots = moving.map(key => {
    const plot = h("div", {class: "plot"});
    plot.paint = () => drawVerified(plot, study, key);
    return plot;
  });
  return h(
    "section",
    {class: "card wide", id: "verified"},
    heading(titled(study, `By ${found.high} against ${found.low}`), caption),
    plots.length > 0 &&
      h(
        "div",
        {class: "stack-key"},
        [...tally].map(([move, of]) =>
          h("span", {}, h("i", {style: `background:var(${MOVES[move][0]})`}), `${MOVES[move][1]} (${of.length})`),
        ),
      ),
    h("div", {class: "pair"}, plots, h("div", {}, rankTable(study), shiftTable(study, goals), movedList(study, goals))),
  );
}

function drawVerified(plot, study, key) {
  const {rows, moves, before, metrics, high, low} = allVerified(study),
    column = columnOf(key),
    values = rows.map((_, i) => [before[key][i], metrics[key][i], i]).filter(([a, b]) => a !== null && b !== null);
  const sizes = values.flatMap(([a, b]) => [a, b]),
    [least, most] = [Math.min(...sizes), Math.max(...sizes)],
    [scale, unit] = scaled(Math.max(Math.abs(least), Math.abs(most)), column.unit);
  const margin = 0.05 * (most - least || Math.abs(most)),
    wide = least > 0 && most > 30 * least,
    ends = wide ? [least / 1.2, most * 1.2] : [least - margin, most + margin];
  const traces = [
    {
      type: "scatter",
      mode: "lines",
      x: ends.map(v => v / scale),
      y: ends.map(v => v / scale),
      line: {color: ink("--strong"), width: 1, dash: "dot"},
      hoverinfo: "skip",
    },
  ];
  plot.rowsOf = [[]];
  for (const [move, [colour]] of Object.entries(MOVES).reverse()) {
    const of = values.filter(([, , i]) => moves[i] === move);
    if (!of.length) continue;
    traces.push({
      type: "scatter",
      mode: "markers",
      x: of.map(([a]) => a / scale),
      y: of.map(([, b]) => b / scale),
      marker: {size: 9, color: ink(colour), line: {width: 1, color: ink("--paper")}},
      hoverinfo: "none",
    });
    plot.rowsOf.push(of.map(([, , i]) => rows[i]));
  }
  const axis = fidelity => ({
    ...axisStyle(`${called(key)}, ${fidelity}${unit ? ` [${unit}]` : ""}`),
    type: wide ? "log" : "linear",
    range: ends.map(v => (wide ? Math.log10(v / scale) : v / scale)),
  });
  draw(plot, traces, {
    xaxis: axis(low),
    yaxis: axis(high),
    showlegend: false,
    dragmode: false,
    margin: {l: 56, r: 12, t: 8, b: 44},
  }).then(() => wireFront(plot));
}

function signed(share) {
  return Math.abs(share) < 5e-7 ? "same" : `${share > 0 ? "+" : "−"}${percent(Math.abs(share))}`;
}

// Objectives and constraints first, then all other metrics that both have.
function shiftTable(study, goals) {
  const {shifts, high, low} = study.verified,
    bounded = study.bounds.map(bound => bound.metric),
    order = [...new Set([...goals, ...bounded])],
    rank = shift => (order.includes(shift.metric) ? order.indexOf(shift.metric) : order.length);
  const line = shift =>
    h(
      "tr",
      {},
      h("th", {class: goals.includes(shift.metric) ? "goal" : "", title: columnOf(shift.metric)?.doc}, name(shift.metric)),
      h("td", {}, shift.correlation === null ? "–" : number(shift.correlation, 3)),
      h("td", {}, signed(shift.median)),
      h(
        "td",
        {},
        h(
          "button",
          {type: "button", title: "Open the design", onclick: () => openDesign(shift.row)},
          signed(shift.worst),
          h("small", {}, ` ${label(shift.row)}`),
        ),
      ),
    );
  const heads = [
    ["metric", ""],
    ["rank correlation", "Kendall's tau-b: 1 where both rank the designs alike, −1 where one is the other reversed"],
    ["median shift", `${high} over ${low}, less 1: half of the designs shift by less`],
    ["worst shift", "the largest in size, and of which design"],
  ];
  return h(
    "div",
    {class: "scroll"},
    h(
      "table",
      {class: "grid small shifts"},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map(([text, title]) => h("th", {title, class: text === "metric" ? "word" : ""}, text)),
        ),
      ),
      h("tbody", {}, [...shifts].sort((a, b) => rank(a) - rank(b)).map(line)),
    ),
  );
}

// Whether both rank alike on the front, off it and overall, whether the order of the front is decided, and what the two share.
function rankTable(study) {
  const {ranks, decisions, shared, own, high, low, streams} = study.verified;
  const design = row => h("button", {type: "button", title: "Open the design", onclick: () => openDesign(row)}, label(row));
  const rank = of =>
    h(
      "td",
      {},
      of.tau === null ? "–" : number(of.tau, 3),
      h("small", {}, of.low === null ? ` ${of.designs}` : ` ${number(of.low, 2)} to ${number(of.high, 2)}, ${of.designs}`),
    );
  const line = one =>
    h(
      "tr",
      {},
      h("th", {class: "goal", title: columnOf(one.metric)?.doc}, name(one.metric)),
      [one.front, one.off, one.overall].map(rank),
      h(
        "td",
        {},
        one.row < 0
          ? "none"
          : h("button", {type: "button", title: "Open the design", onclick: () => openDesign(one.row)}, `${one.before} → ${one.after}`),
      ),
      h("td", {title: `both order them alike, and further apart than shifts spread (${percent(one.spread)})`},
        one.pairs ? `${one.decided} of ${one.pairs}` : "–"),
    );
  const heads = [
    ["metric", ""],
    ["on the front", "Kendall's tau-b, its 95 % interval, and of how many designs"],
    ["off the front", "of designs from all over the others"],
    ["overall", "of all that were evaluated again"],
    ["moves most", "places of the design that moves by most"],
    ["order decided", "neighbours on the front whose order both readers have alike, by more than shifts spread"],
  ];
  return [
    ranks.length > 0 &&
      h(
        "div",
        {class: "scroll"},
        h(
          "table",
          {class: "grid small ranks"},
          h("thead", {}, h("tr", {}, heads.map(([text, title]) => h("th", {title, class: text === "metric" ? "word" : ""}, text)))),
          h("tbody", {}, ranks.map(line)),
        ),
      ),
    streams.text && h("p", {class: "note"}, `${streams.text}.`),
    streams.broken.length > 0 && h("ul", {class: "moved"}, streams.broken.map(([row, text]) => h("li", {}, design(row), ` ${text}`))),
    decisions.map(one =>
      h("p", {class: "note leads"}, `Best by ${called(one.metric)}: `, design(one.winner), " leads ", design(one.runner_up), ` ${one.said}.`),
    ),
    shared.length > 0 &&
      h(
        "p",
        {class: "note shares"},
        `${high} and ${low} share: ${shared.join("; ")}. Comparing the two does not test these. ` +
          `Each gives in its own way: ${own.join("; ")}.`,
      ),
  ];
}

function movedList(study, goals) {
  const {rows, moves, part: piece, before, metrics, notes, high} = allVerified(study);
  const moved = rows.map((row, i) => [row, i]).filter(([, i]) => ["falls off", "comes on", "compared"].includes(moves[i]));
  const shift = (key, i) => (piece ? ` (${signed(metrics[key][i] / before[key][i] - 1)})` : "");
  const text = (key, i) => `${called(key)} ${quantity(metrics[key][i] ?? NaN, columnOf(key).unit)}${shift(key, i)}`;
  const failed = rows.map((row, i) => [row, i]).filter(([, i]) => notes[i]);
  if (!moved.length && !failed.length) return null;
  const line = ([row, i]) =>
    h(
      "li",
      {},
      h(
        "button",
        {type: "button", onclick: () => openDesign(row)},
        h("b", {}, label(row)),
        h("i", {style: `color:var(${MOVES[moves[i]][0]})`}, notes[i] ? `${moves[i]}: ${notes[i]}` : piece ? "" : moves[i]),
        h("small", {}, goals.map(key => text(key, i)).join(" · ")),
      ),
    );
  return h(
    "div",
    {class: "part"},
    h("h3", {}, piece ? `By ${high}, design by design` : `Where ${high} decides otherwise`),
    h("ul", {class: "moved"}, [...new Map([...moved, ...failed]).entries()].map(line)),
  );
}

// Of one design: what its study wants or bounds, at the higher fidelity.
function verifiedPart(row, study) {
  const place = verifiedPlace(row);
  if (place < 0) return null;
  const {before, metrics, moves, notes, high} = allVerified(study);
  const wanted = new Set([...Object.keys(study.objectives), ...study.bounds.map(bound => bound.metric)]);
  const line = key =>
    h(
      "div",
      {title: columnOf(key).doc},
      h("dt", {}, name(key)),
      h(
        "dd",
        {},
        quantity(metrics[key][place] ?? NaN, columnOf(key).unit),
        h("small", {}, ` ${signed(metrics[key][place] / before[key][place] - 1)}`),
      ),
    );
  const known = [...wanted].filter(key => metrics[key] && before[key] && columnOf(key) && metrics[key][place] !== null);
  return part(
    `By ${high}`,
    h("p", {class: "note"}, notes[place] ? `${MOVES[moves[place]][1]}: ${notes[place]}.` : `${MOVES[moves[place]][1]}.`),
    h("dl", {class: "facts"}, known.map(line)),
  );
}
