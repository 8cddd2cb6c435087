// What stands below the choice: what binds along the front, what matters to each objective, how the search went.

function drawCards() {
  const studies = designs.studies,
    many = studies.length > 1;
  const titled = (study, text) => (many ? `${text}: ${study.name}` : text);
  const each = draw => studies.map((study, index) => draw(study, titled, index));
  const lines = studies.flatMap(study => study.lines.map(spec => lineCard(study, spec, titled)));
  const sources = Map.groupBy(studies, study => JSON.stringify(study.sources));
  put(
    "cards",
    openCards(),
    each(speedCard),
    each(bindsCard),
    each(costCard),
    each(importanceCard),
    each(pricesCard),
    each(remarksCard),
    each(verifiedCard),
    lines,
    studies.flatMap(study => study.bars.map(spec => stacksCard(study, spec, titled))),
    historyCard(),
    each(bandsCard),
    each(limitsCard),
    [...sources.values()].map(alike =>
      sourcesCard(alike[0], (_, text) => (sources.size > 1 ? titled({name: alike.map(s => s.name).join(", ")}, text) : text)),
    ),
    runsCard(),
  );
  drawOpenCards();
  paintInTurn([...document.querySelectorAll("#cards .plot")].filter(plot => !plot.closest("#open-cards")));
}

// Each plot in its own turn, so that the page stays at hand; a newer drawing of the cards takes over.
function paintInTurn(plots) {
  view.turn = (view.turn ?? 0) + 1;
  const turn = view.turn,
    next = () => {
      if (turn !== view.turn || !plots.length) return;
      plots.shift().paint();
      setTimeout(next);
    };
  setTimeout(next);
}

function card(title, caption, kind, ...children) {
  return h("section", {class: `card ${kind}`}, heading(title, caption), children);
}

function pictured(title, caption, kind, paint) {
  const plot = h("div", {class: "plot"});
  plot.paint = () => paint(plot);
  return h("section", {class: `card ${kind}`}, heading(title, caption, pictureButton(title, () => plot)), plot);
}

// The best value of a metric at each value of a knob, a line for each value of another knob.
function lineCard(study, spec, titled) {
  const [x, mean, by] = [spec.x, spec.y, spec.by].map(columnOf);
  if (!x || !mean) return null;
  const y = spec.values ? {...mean, values: inOneCase(spec.values)} : mean;
  const better = directionOf(spec.y) ?? y.better,
    groups = new Map();
  for (let row = study.start; row < study.start + study.rows; row++) {
    if (columnOf("feasible").values[row] !== 1 || Number.isNaN(y.values[row])) continue;
    const key = by ? textOf(by, row) : spec.y,
      best = groups.get(key) ?? groups.set(key, new Map()).get(key),
      at = x.values[row];
    const old = best.get(at);
    if (old === undefined || (better === "max" ? y.values[row] > y.values[old] : y.values[row] < y.values[old]))
      best.set(at, row);
  }
  const title = titled(study, `${called(spec.y)} against ${called(spec.x)}${spec.case ? `, ${spec.case}` : ""}`);
  const caption = `The ${better === "max" ? "highest" : "lowest"} at each value${by ? `, a line for each ${called(spec.by)}` : ""}. ${y.doc[0].toUpperCase()}${y.doc.slice(1)}.`;
  if (!groups.size) return card(title, caption, "", empty("No feasible design", "There is nothing to draw."));
  return pictured(title, caption, "", plot => {
    const axes = [x, y].map(column => scatterAxis(column)),
      ordered = [...groups].sort(([a], [b]) => a.localeCompare(b, "en", {numeric: true}));
    const lines = ordered.map(([key, best]) => [key, [...best.keys()].sort((a, b) => a - b).map(at => best.get(at))]);
    plot.rowsOf = lines.map(([, rows]) => rows);
    const points = lines.map(([key, rows], i) => ({
      type: "scatter",
      mode: x.words ? "markers" : rows.length > 40 ? "lines" : "lines+markers", // nothing is between two words
      name: plain(by ? `${called(spec.by)} = ${key}` : key),
      x: axes[0].at(rows),
      y: axes[1].at(rows),
      line: {color: series(i), width: 1.8},
      marker: {size: x.words ? 9 : 5, color: series(i)},
      hoverinfo: "none",
    }));
    const xaxis = planeAxis({...axes[0], title: axes[0].short});
    draw(plot, points, {xaxis, yaxis: axisStyle(axes[1].short), dragmode: false}).then(() => wireFront(plot));
  });
}

function inOneCase(byRow) {
  const values = new Float64Array(designs.rows).fill(NaN);
  for (const [row, value] of Object.entries(byRow)) values[row] = value;
  return values;
}

// What takes time, in one order on all pictures: engines at the bottom.
function inStacks(spent) {
  const order = Object.keys(BOUNDS),
    place = key => (order.indexOf(key) < 0 ? order.length : order.indexOf(key));
  return [...new Set(spent.flatMap(Object.keys))].sort((a, b) => place(a) - place(b));
}

function bindsCard(study, titled) {
  const rows = Object.keys(study.explained.designs)
      .map(Number)
      .filter(isFront)
      .sort((a, b) => a - b),
    [first] = Object.keys(study.objectives);
  const title = titled(study, "Bottlenecks along the front");
  if (!rows.length) return card(title, "", "", empty("No feasible design", "There is no front to explain."));
  const caption = `What each front design works on, from the best ${called(first)} on the left. Click one to open it. ${spentOf(study, rows)}`;
  return pictured(title, caption, "", plot => {
    const spent = rows.map(row => {
      const sums = {};
      for (const by of Object.values(study.explained.designs[row].spent))
        for (const [key, s] of Object.entries(by)) sums[key] = (sums[key] ?? 0) + s;
      return sums;
    });
    const totals = spent.map(sums => worked(Object.values(sums)));
    const keys = inStacks(spent).filter(key => spent.some((sums, i) => (sums[key] ?? 0) > 0.002 * totals[i]));
    plot.rowsOf = keys.map(() => rows);
    const bars = keys.map((key, i) => ({
      type: "bar",
      name: plain(partName(key)),
      x: rows.map((_, j) => j),
      y: spent.map((sums, j) => (100 * (sums[key] ?? 0)) / totals[j]),
      marker: {color: ink(BOUNDS[key] ?? SERIES[i % SERIES.length]), line: {width: 0}},
      hoverinfo: "none",
    }));
    const every = Math.ceil(rows.length / 12),
      ticks = rows.map((_, j) => j).filter(j => j % every === 0);
    draw(plot, bars, {
      barmode: "stack",
      bargap: rows.length > 40 ? 0 : 0.15,
      dragmode: false,
      yaxis: {...axisStyle("share of work [%]"), range: [0, 100]},
      xaxis: {
        ...axisStyle("design"),
        tickvals: ticks,
        ticktext: ticks.map(j => `#${rows[j] - study.start + 1}`),
        showgrid: false,
      },
    }).then(() => wireFront(plot));
  });
}

// Where the time of the best design at each value of a knob goes, side by side.
function stacksCard(study, spec, titled) {
  const x = columnOf(spec.x),
    [first] = Object.keys(study.objectives);
  const title = titled(study, `Time by ${called(spec.x)}, ${spec.case}`);
  if (!spec.rows.length) return card(title, "", "", empty("No feasible design", "There is nothing to draw."));
  const own = spec.by.filter(by => by === study.fidelity).length;
  const how = own === spec.by.length ? `By ${study.fidelity}` : `${own} by ${study.fidelity}, the others with the analytical model`;
  return pictured(title, `Of the design with the best ${called(first)} at each value. ${how}. Click one to open it.`, "", plot => {
    const keys = inStacks(spec.spent),
      totals = spec.spent.map(sums => Object.values(sums).reduce((a, b) => a + b, 0)),
      [scale, unit] = scaled(Math.max(...totals), "s");
    plot.rowsOf = keys.map(() => spec.rows);
    const bars = keys.map((key, i) => ({
      type: "bar",
      name: plain(partName(key)),
      x: spec.rows.map((_, j) => j),
      y: spec.spent.map(sums => (sums[key] ?? 0) / scale),
      marker: {color: ink(BOUNDS[key] ?? SERIES[i % SERIES.length]), line: {width: 0}},
      hoverinfo: "none",
    }));
    draw(plot, bars, {
      barmode: "stack",
      bargap: 0.25,
      dragmode: false,
      yaxis: axisStyle(`time [${unit}]`),
      xaxis: {
        ...axisStyle(called(spec.x)),
        tickvals: spec.rows.map((_, j) => j),
        ticktext: spec.rows.map(row => plain(textOf(x, row))),
        showgrid: false,
      },
    }).then(() => wireFront(plot));
  });
}

function importanceCard(study, titled) {
  const goals = Object.keys(study.importance),
    knobs = study.knobs.map(knob => knob.address);
  const caption =
    "Share of each objective's variance that a knob explains alone (first-order Sobol index, on ranks) over feasible designs, of several chips those that have it. What is missing to 100 % is what knobs do together.";
  const weight = key => Math.max(...goals.map(goal => study.importance[goal][key]));
  knobs.sort((a, b) => weight(b) - weight(a));
  const beside = share => (share < 0.7 ? `padding-left:calc(${100 * share}% + 7px)` : ""); // of the bar, where there is room
  const bar = (goal, key) =>
    h(
      "td",
      {},
      h(
        "div",
        {class: "cell-bar"},
        h("i", {style: `width:${100 * study.importance[goal][key]}%`}),
        h("span", {style: beside(study.importance[goal][key])}, percent(study.importance[goal][key], 2)),
      ),
    );
  return card(
    titled(study, "What matters"),
    caption,
    "",
    h(
      "div",
      {class: "scroll"},
      h(
        "table",
        {class: "bars"},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", {}, "knob"),
            goals.map(goal => h("th", {}, name(goal))),
          ),
        ),
        h(
          "tbody",
          {},
          knobs.map(key =>
            h(
              "tr",
              {},
              h("th", {title: columnOf(key)?.doc}, name(key)),
              goals.map(goal => bar(goal, key)),
            ),
          ),
        ),
      ),
    ),
  );
}

function historyCard() {
  const studies = designs.studies,
    one = studies.every(study => Object.keys(study.objectives).length === 1);
  const searched = studies.some(study => study.history.asks.length),
    [key] = Object.keys(studies[0].objectives),
    column = one ? columnOf(key) : null;
  const title = one ? `Best ${called(key)} by evaluations` : "Hypervolume by evaluations";
  const caption = one
    ? "The best value that the search had found."
    : `What the designs found so far dominate, as a share of what ${studies.length > 1 ? "all fronts together" : "the front"} in the end does.`;
  if (!searched) {
    const exactly = studies.every(study => study.screened?.exact);
    return card(
      title,
      caption,
      "",
      empty(
        "No search",
        exactly ? "The screen looked at every design, so the front is exact." : "The screen alone found this front.",
      ),
    );
  }
  return pictured(title, caption, "", plot => {
    const [scale, unit] = column ? scaled(Math.max(...extent(column).map(Math.abs)), column.unit) : [0.01, "%"],
      traces = [];
    studies.forEach((study, index) => {
      const {asks, values, screened} = study.history,
        colour = frontColour(index),
        search = studies.length > 1 ? study.name : "search";
      traces.push({
        type: "scatter",
        mode: "lines+markers",
        name: plain(search),
        x: asks,
        y: values.map(v => (v === null ? null : v / scale)),
        marker: {size: 4},
        line: {color: colour, width: 2, shape: "hv"},
        hovertemplate: `%{y:.4~g} ${unit} after %{x:,} designs<extra></extra>`,
      });
      if (screened !== null && asks.length)
        traces.push({
          type: "scatter",
          mode: "lines",
          name: plain(studies.length > 1 ? `${study.name}, screen` : "screened front"),
          x: [1, asks.at(-1)],
          y: [screened / scale, screened / scale],
          line: {color: studies.length > 1 ? colour : ink("--warm"), width: 1.2, dash: "dash"},
          hovertemplate: `%{y:.4~g} ${unit} by the screen<extra></extra>`,
        });
    });
    draw(plot, traces, {
      xaxis: axisStyle("designs proposed by the search"),
      yaxis: axisStyle(one ? `${called(key)} [${unit}]` : `hypervolume [${unit}]`),
      dragmode: false,
    });
  });
}
