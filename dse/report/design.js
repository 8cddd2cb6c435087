// One design: its objectives and constraints, knobs, what binds, operators, metrics, neighbours, and how to have it again.

const BOUNDS = {}; // colours of what takes time, as the data have them

function openDesign(row) {
  Object.assign(view, {open: row, chosen: true});
  writeLink();
  refresh();
  document.getElementById("design").scrollTop = 0;
  document.body.classList.add("opened");
}

function drawDesign() {
  if (view.open < 0) {
    put("design", empty("No design is open", "Click a point, a line or a row."));
    return;
  }
  const row = view.open,
    study = studyOf(row),
    front = frontOf(study);
  const step = by => {
    const at = front.indexOf(row);
    return front[at < 0 ? 0 : (at + by + front.length) % front.length];
  };
  put(
    "design",
    h(
      "div",
      {class: "design-head"},
      h("div", {}, h("h2", {}, `Design ${label(row)}`), h("p", {class: "note"}, rankOf(row)), badges(row, study)),
      h(
        "div",
        {class: "tools"},
        front.length > 1 &&
          h("button", {type: "button", title: "The one before it on the front", onclick: () => openDesign(step(-1))}, "‹"),
        front.length > 1 &&
          h("button", {type: "button", title: "The next on the front", onclick: () => openDesign(step(1))}, "›"),
        h(
          "button",
          {
            type: "button",
            class: view.marked.has(row) ? "on" : "",
            onclick: () => {
              view.marked.has(row) ? view.marked.delete(row) : view.marked.add(row);
              refresh();
            },
          },
          view.marked.has(row) ? "On shortlist" : "Shortlist",
        ),
        h(
          "button",
          {type: "button", class: "close", title: "Close", onclick: () => document.body.classList.remove("opened")},
          "×",
        ),
      ),
    ),
    goalTiles(row, study),
    margins(row, study),
    part(
      "Knobs",
      facts(
        [...study.knobs, ...study.tied].map(({address}) => columnOf(address)).filter(c => !Number.isNaN(c.values[row])),
        row,
      ),
    ),
    verifiedPart(row, study),
    spentPart(row, study),
    robustPart(row, study),
    stepsPart(row, study),
    sidesPart(row, study),
    neighbourPart(row, study),
    part(
      "Metrics",
      facts(
        designs.metrics.filter(metric => !Number.isNaN(metric.values[row])),
        row,
      ),
    ),
    part("Have it again", copied("dse evaluate line", evaluateLine(row)), copied("YAML", yamlOf(row))),
  );
}

function part(title, ...children) {
  return h("section", {class: "part"}, h("h3", {}, title), children);
}

function badges(row, study) {
  const marks = [];
  if (isFront(row)) marks.push(["good", "on the front"]);
  if (isFront(row) && row === knee(study) && frontOf(study).length > 2)
    marks.push(["", "knee", "nearest to the best corner of the front, objectives scaled to it"]);
  if (columnOf("feasible").values[row] !== 1) marks.push(["bad", "not feasible"]);
  const stage = columnOf("stage");
  marks.push(["", stage.words[stage.values[row]] === "search" ? "found by search" : "from the screen"]);
  return h(
    "div",
    {class: "badges"},
    marks.map(([kind, text, title]) => h("span", {class: `badge ${kind}`, title}, text)),
  );
}

function goalTiles(row, study) {
  const front = frontOf(study);
  return h(
    "div",
    {class: "goals"},
    Object.entries(study.objectives).map(([key, direction]) => {
      const column = columnOf(key),
        [low, high] = extent(column, front.length ? front : [row]);
      const at = high > low ? (column.values[row] - low) / (high - low) : 1,
        good = direction === "max" ? at : 1 - at;
      const best = direction === "max" ? high : low;
      return h(
        "div",
        {class: "goal-tile", title: column.doc},
        h("span", {}, name(key)),
        h("b", {}, textOf(column, row)),
        h("div", {class: "meter"}, h("i", {style: `width:${100 * Math.min(Math.max(high > low ? good : 1, 0.02), 1)}%`})),
        h(
          "small",
          {},
          column.values[row] === best
            ? "best on the front"
            : `${difference(column.values[row], best)} to the best, ${quantity(best, column.unit)}`,
        ),
      );
    }),
  );
}

// Constraints with what is left, and the limit that binds.
function margins(row, study) {
  const sampled = study.sample.margins[row] ?? [];
  const lines = study.bounds
    .filter(bound => columnOf(bound.metric))
    .map((bound, i) => {
      const column = columnOf(bound.metric),
        value = column.values[row],
        kept = bound.relation === "<=" ? value <= bound.value : value >= bound.value;
      return h(
        "li",
        {class: kept ? "kept" : "broken"},
        `${called(bound.metric)} ${bound.relation === "<=" ? "≤" : "≥"} ${quantity(bound.value, column.unit)}: `,
        h("b", {}, textOf(column, row)),
        ` (${difference(value, bound.value)})`,
        noiseMark(sampled.find(margin => margin.bound === i), column),
      );
    });
  const limit = columnOf("limit"),
    error = columnOf("error"),
    code = limit.values[row];
  if (!Number.isNaN(code))
    lines.push(
      h("li", {class: "broken"}, "breaks ", h("b", {}, limit.words[code]), ` by ${percent(columnOf("excess").values[row])}`),
    );
  if (!Number.isNaN(error.values[row])) lines.push(h("li", {class: "broken"}, "failed: ", error.words[error.values[row]]));
  return lines.length > 0 && h("ul", {class: "margins"}, lines);
}

// Half of the 95 % interval that a margin has over other streams of requests, and whether it contains the constraint.
function noiseMark(margin, column) {
  if (!margin || (!margin.interval_95 && margin.verdict !== "within noise")) return null;
  const half = margin.interval_95 ? ` ±${quantity(margin.interval_95, column.unit, 3)}` : "";
  return [half, margin.verdict === "within noise" && h("b", {class: "noise", title: margin.text}, " within noise")];
}

function facts(columns, row) {
  return h(
    "dl",
    {class: "facts"},
    columns.map(column => h("div", {title: column.doc}, h("dt", {}, name(column.name)), h("dd", {}, textOf(column, row)))),
  );
}

function spentPart(row, study) {
  const known = study.explained.designs[row];
  if (!known) {
    const why = `${count(Object.keys(study.explained.designs).length, "design")} on the front and next to it are broken down in the page`;
    const near = nearestTo(row, study, Object.keys(study.explained.designs).map(Number));
    return part(
      "Bottlenecks",
      h("p", {class: "note"}, `${why}; the dse evaluate line below prints this one's operators.`),
      near >= 0 && h("button", {type: "button", onclick: () => openDesign(near)}, `Open ${label(near)}, the nearest that is`),
    );
  }
  const phases = Object.entries(known.spent),
    of = spentOf(study, [row]);
  return part(
    "Bottlenecks",
    of && h("p", {class: "note"}, of),
    phases.map(([phase, spent]) => stack(phase, spent, "s")),
    known.chip.map(([of, unit, values]) => stack(of, values, unit)),
    h(
      "details",
      {class: "operators"},
      h("summary", {}, `Time by operator (${known.operators.length})`),
      operatorTable(known.operators, study.explained.words),
    ),
  );
}

// What the breakdown is of, where that is less than all.
function spentOf(study, rows) {
  const own = rows.filter(row => study.explained.designs[row].by === study.fidelity).length;
  const by =
    study.fidelity === "analytical"
      ? ""
      : own === rows.length
        ? `By ${study.fidelity}. `
        : own
          ? `${own} by ${study.fidelity}, the others with the analytical model. `
          : "With the analytical model. ";
  return by + (study.cases.length > 1 ? `Of the first of ${study.cases.length} cases, ${study.explained.case}.` : "");
}

const KEYS = 6; // largest parts of a stack that are named below it

function stack(title, shares, unit) {
  const total = Object.values(shares).reduce((a, b) => a + b, 0),
    all = worked(Object.values(shares)),
    parts = Object.entries(shares)
      .filter(([, v]) => v / all > 0.001)
      .sort((a, b) => b[1] - a[1]),
    rest = parts.slice(KEYS);
  const colour = (key, i) => `var(${(unit === "s" && BOUNDS[key]) || SERIES[i % SERIES.length]})`;
  return h(
    "div",
    {class: "stack"},
    h("div", {class: "stack-head"}, h("span", {}, title), h("b", {}, quantity(total, unit))),
    all > 1.001 * total && h("p", {class: "note"}, `for ${quantity(all, unit)} of work, partly in parallel`),
    h(
      "div",
      {class: "stack-bar"},
      parts.map(([key, v], i) =>
        h("i", {
          title: `${partName(key)}: ${quantity(v, unit)}, ${percent(v / all)}`,
          style: `flex:${v / all} 0 0;background:${colour(key, i)}`,
        }),
      ),
    ),
    h(
      "div",
      {class: "stack-key"},
      parts
        .slice(0, KEYS)
        .map(([key, v], i) => h("span", {}, h("i", {style: `background:${colour(key, i)}`}), `${partName(key)} ${percent(v / all)}`)),
      rest.length > 0 &&
        h("span", {title: rest.map(([key]) => partName(key)).join(", ")}, `${rest.length} more ${percent(worked(rest.map(([, v]) => v)) / all)}`),
    ),
  );
}

function operatorTable(operators, words) {
  const counts = {
    FLOP: ({flop}) => flop && quantity(flop, "op", 3),
    executed: ({flop, executed, cause}) => flop && executed > 1.005 * flop && `${number(executed / flop, 3)} x ${words[cause]}`,
    bytes: ({bytes}) => bytes && quantity(bytes, "B", 3),
    "FLOP/B": ({flop, bytes}) => flop && bytes && `${number(flop / bytes, 3)} op/B`,
    network: ({sent}) => sent && quantity(sent, "B", 3),
    prefetched: ({prefetched}) => prefetched && percent(prefetched, 2),
  };
  const counted = ([, , , , , flop, bytes, prefetched, , executed, cause, sent]) => ({
    flop,
    bytes,
    prefetched,
    executed,
    cause,
    sent,
  });
  const known = Object.keys(counts).filter(name => operators.some(operator => counts[name](counted(operator))));
  const heads = ["operator", "time", "share", "bound", "shape", ...known];
  const line = (all, operator) => {
    const [, segment, name, shape, bound, , , , seconds] = operator;
    return h(
      "tr",
      {},
      h("td", {class: "word"}, words[name], words[segment] !== words[name] && h("small", {}, words[segment])),
      h("td", {}, quantity(seconds, "s", 3)),
      h("td", {}, all && seconds >= 0 ? percent(seconds / all) : ""),
      h(
        "td",
        {class: "word"},
        h("i", {class: "dot", style: `background:var(${BOUNDS[words[bound]] ?? "--s8"})`}),
        partName(words[bound]),
      ),
      h("td", {class: "word"}, words[shape]),
      known.map(of => h("td", {}, counts[of](counted(operator)) || "")),
    );
  };
  const phases = Map.groupBy(operators, operator => operator[0]);
  const rows = [...phases].flatMap(([phase, list]) => {
    const total = list.reduce((sum, operator) => sum + operator[8], 0);
    return [
      h("tr", {class: "phase"}, h("th", {colspan: heads.length}, `${words[phase]}, ${quantity(total, "s")}`)),
      list.map(operator => line(worked(list.map(operator => operator[8])), operator)),
    ];
  });
  return h(
    "div",
    {class: "scroll"},
    h(
      "table",
      {class: "grid small"},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map(text => h("th", {class: ["operator", "bound", "shape"].includes(text) ? "word" : ""}, text)),
        ),
      ),
      h("tbody", {}, rows),
    ),
  );
}

function neighbourPart(row, study) {
  if (columnOf("feasible").values[row] !== 1) return null;
  const near = neighbours(row, 4);
  if (!near.length) return null;
  const line = other => {
    const moved = designs.knobs.filter(knob => textOf(knob, other) !== textOf(knob, row));
    return h(
      "li",
      {},
      h(
        "button",
        {type: "button", onclick: () => openDesign(other)},
        h("b", {}, label(other)),
        Object.keys(study.objectives)
          .map(columnOf)
          .map(c =>
            h(
              "span",
              {class: verdict(c, other, row)},
              h("i", {class: "on"}, name(c.name)),
              h("b", {}, textOf(c, other)),
              h("em", {}, difference(c.values[other], c.values[row])),
            ),
          ),
        h(
          "small",
          {},
          moved.length
            ? moved.map(knob => `${knob.name.split(".").slice(-2).join(".")} ${textOf(knob, other)}`).join(" · ")
            : "same knobs",
        ),
      ),
    );
  };
  return part(
    isFront(row) ? "Neighbours on the front" : "Nearest on the front",
    h("ul", {class: "neighbours"}, near.map(line)),
  );
}

// Every leaf that the knobs move, and those that follow them, with its value as the command line takes it.
function leavesOf(row) {
  const {knobs, tied} = studyOf(row);
  return [...knobs, ...tied].flatMap(({address, overrides}) => {
    const column = columnOf(address),
      value = column.values[row];
    if (Number.isNaN(value)) return [];
    const text = column.words ? column.words[value] : exact(value, column.unit);
    return overrides.map(leaf => [leaf, leaf === "chips" ? `[${text}]` : text]);
  });
}

// Overrides that make a design: the study's own, and the leaves of its knobs.
function wordsOf(row) {
  return [...studyOf(row).overrides, ...leavesOf(row).map(([leaf, text]) => `${leaf}=${text}`)];
}

function evaluateLine(row) {
  return ["dse evaluate", ...wordsOf(row).map(shellWord)].join(" ");
}

function yamlOf(row) {
  const tree = {};
  for (const [leaf, text] of leavesOf(row)) {
    const path = leaf.replace(/^\++/, "").split("."),
      last = path.pop();
    path.reduce((node, key) => (node[key] ??= {}), tree)[last] = text;
  }
  const lines = (node, indent) =>
    Object.entries(node).flatMap(([key, value]) =>
      typeof value === "object"
        ? [`${indent}${key}:`, ...lines(value, indent + "  ")]
        : [`${indent}${key}: ${/^[\w.][\w. /+-]*$/.test(value) ? value : JSON.stringify(value)}`],
    );
  return lines(tree, "").join("\n");
}
