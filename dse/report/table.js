// The picked designs as a table: click a heading to sort, a row to open, a box to put a design on the shortlist.

const ROWS = 40; // rows shown at first, and added at a time

Object.assign(view, {sort: "", up: true, shown: ROWS, all: false});

function drawTable() {
  const rows = picked(),
    known = column => rows.some(row => !Number.isNaN(column.values[row]));
  const others = designs.metrics.filter(metric => !designs.objectives.includes(metric));
  const loaded = others.filter(metric => metric.name === "offered_load" && designs.studies.some(study => study.sample.rate));
  const rest = view.all ? others.filter(one => known(one) && !loaded.includes(one)) : [];
  const columns = [...designs.objectives, ...designs.robust.filter(known), ...loaded, ...designs.knobs, ...rest];
  sortRows(rows);
  const head = h(
    "tr",
    {},
    h("th", {class: "mark", title: "Shortlist"}, "✓"),
    headCell("", "design"),
    columns.map(c => headCell(c.name, c.name, c.doc)),
  );
  const body = rows.slice(0, view.shown).map(row => tableRow(row, columns));
  const more = rows.length - body.length;
  const tools = [csvButton(rows, columns), h(
    "button",
    {
      type: "button",
      onclick: () => {
        view.all = !view.all;
        refresh();
      },
    },
    view.all ? "Fewer metrics" : "All metrics",
  )];
  put(
    "table",
    heading(
      "Designs",
      `${count(rows.length, "design")} in view. Click a heading to sort, a row to open; tick designs to compare them.`,
      tools,
    ),
    compareMarked(),
    rows.length
      ? h("div", {class: "scroll"}, h("table", {class: "grid"}, h("thead", {}, head), h("tbody", {}, body)))
      : noneLeft(),
    more > 0 &&
      h(
        "button",
        {
          type: "button",
          class: "more",
          onclick: () => {
            view.shown += 5 * ROWS;
            drawTable();
          },
        },
        `Show ${Math.min(more, 5 * ROWS)} more of ${more.toLocaleString("en-US")}`,
      ),
  );
}

function noneLeft() {
  if (!designs.columns.get("feasible").values.some(Boolean) && view.scope !== "all")
    return empty(
      "No feasible design",
      "Every design that was looked at breaks a limit or a constraint. Limits, below, says which; All, above, shows the designs.",
    );
  return empty("Nothing passes these filters", "Loosen or clear them in the bar above.");
}

function sortRows(rows) {
  const column = columnOf(view.sort),
    sign = view.up ? 1 : -1;
  if (!column) return view.up ? rows : rows.reverse();
  return rows.sort((a, b) => {
    const [p, q] = [column.values[a], column.values[b]];
    if (Number.isNaN(p) || Number.isNaN(q)) return Number.isNaN(p) - Number.isNaN(q);
    return sign * (p - q) || a - b;
  });
}

function headCell(key, text, doc) {
  const sorted = view.sort === key,
    arrow = sorted ? (view.up ? " ↑" : " ↓") : "";
  const onclick = () => {
    Object.assign(view, {up: sorted ? !view.up : true, sort: key});
    drawTable();
  };
  const goal = directionOf(key);
  return h(
    "th",
    {
      class: columnOf(key)?.words || !key ? "word" : "",
      title: [doc, goal && (goal === "max" ? "more is better" : "less is better")].filter(Boolean).join("; "),
      "aria-sort": sorted ? (view.up ? "ascending" : "descending") : null,
    },
    h("button", {type: "button", onclick, class: goal ? "goal" : ""}, name(text), h("i", {}, arrow)),
  );
}

function tableRow(row, columns) {
  const box = h("input", {
    type: "checkbox",
    "aria-label": `Shortlist ${label(row)}`,
    checked: view.marked.has(row),
    onclick: event => {
      event.stopPropagation();
      if (view.marked.has(row)) view.marked.delete(row);
      else view.marked.add(row);
      refresh();
    },
  });
  const kind = [row === view.open && "open", isFront(row) && "best", columnOf("feasible").values[row] !== 1 && "bad"]
    .filter(Boolean)
    .join(" ");
  return h(
    "tr",
    {class: kind, "data-row": row, onclick: () => openDesign(row)},
    h("td", {class: "mark"}, box),
    h("td", {class: "design", title: rankOf(row)}, label(row), noiseOf(row)),
    columns.map(column => h("td", {class: column.words ? "word" : ""}, textOf(column, row))),
  );
}

// A mark of designs that are within noise of a constraint.
function noiseOf(row) {
  const noisy = (studyOf(row).sample.margins[row] ?? []).filter(margin => margin.verdict === "within noise");
  return noisy.length > 0 && h("small", {class: "noise", title: noisy.map(margin => margin.text).join("; ")}, " within noise");
}

// The shortlist side by side, against its first design.
function compareMarked() {
  const rows = [...view.marked];
  if (rows.length < 2) return null;
  const metric = column =>
    h(
      "tr",
      {},
      h("th", {title: column.doc}, name(column.name)),
      rows.map((row, i) =>
        h(
          "td",
          {},
          textOf(column, row),
          i > 0 && h("small", {class: verdict(column, row, rows[0])}, difference(column.values[row], column.values[rows[0]])),
        ),
      ),
    );
  const knob = column =>
    h(
      "tr",
      {class: rows.every(row => textOf(column, row) === textOf(column, rows[0])) ? "same" : ""},
      h("th", {title: column.doc}, name(column.name)),
      rows.map(row => h("td", {}, textOf(column, row))),
    );
  return h(
    "div",
    {class: "scroll compare"},
    h(
      "table",
      {class: "grid"},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", {class: "word"}, "Shortlist"),
          rows.map(row => h("th", {}, h("button", {type: "button", onclick: () => openDesign(row)}, label(row)))),
        ),
      ),
      h(
        "tbody",
        {},
        designs.objectives.map(metric),
        designs.knobs.map(knob),
        designs.metrics.filter(m => !designs.objectives.includes(m)).map(metric),
      ),
    ),
  );
}

function verdict(column, row, first) {
  const better = (column.values[row] - column.values[first]) * (column.better === "max" ? 1 : -1);
  return better > 0 ? "good" : better < 0 ? "worse" : "";
}
