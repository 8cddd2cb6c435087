// The header: what was asked, the key figures of a study, or of several side by side.

function drawHead() {
  const {studies, data} = designs,
    [study] = studies,
    many = studies.length > 1,
    same = studies.every(one => one.question === study.question);
  const themes = themeChoice(() => {
    drawHead();
    refresh();
  });
  put(
    "head",
    h(
      "div",
      {class: "title"},
      h("h1", {}, new Intl.ListFormat("en").format(studies.map(one => one.name))),
      h("span", {class: "live", id: "live", hidden: true}, "live"),
      h("span", {class: "brand"}, "mesh-dse"),
      themes,
    ),
    same && study.question && h("p", {class: "question"}, study.question),
    !many && study.chips && h("p", {class: "question"}, `Chips: ${study.chips}`),
    !many && study.pools && h("p", {class: "question"}, `Pools: ${study.pools}`),
    studies.map(one => verdictOf(one, many)),
    many ? studyTable(same) : keyFigures(study),
  );
  put(
    "foot",
    `Written ${moment(data.written)} · fidelity ${[...new Set(studies.map(s => s.fidelity))].join(", ")} · seed ${[...new Set(studies.map(s => s.seed))].join(", ")} · physics version ${study.physics}`,
  );
}

// What to build, and on demand why and how sure that is.
function verdictOf({name: title, verdict: [first, ...more]}, many) {
  return [
    h("p", {class: "verdict"}, many && `${title}: `, spoken(first)),
    more.length > 0 && h("details", {class: "why"}, h("summary", {}, "Why, and how sure"), h("ul", {class: "remarks"}, more.map(text => h("li", {}, spoken(text))))),
  ];
}

function keyFigures(study) {
  const front = frontOf(study),
    screened = study.screened,
    feasible = countFeasible(study);
  const tile = (value, text, note, onclick) =>
    h(
      onclick ? "button" : "div",
      {class: "figure", ...(onclick ? {type: "button", onclick} : {})},
      h("b", {}, value),
      h("span", {}, text),
      note && h("small", {}, note),
    );
  const looked = screened ? screened.rows : study.rows;
  const best = Object.entries(study.objectives).map(([key, direction]) => {
    const column = columnOf(key),
      row = bestRow(front, column, direction);
    return tile(
      row < 0 ? "–" : textOf(column, row),
      [direction === "max" ? "highest " : "lowest ", name(key)],
      row < 0 ? "no feasible design" : label(row),
      row < 0 ? null : () => openDesign(row),
    );
  });
  const cases =
    study.cases.length > 1
      ? `${count(study.cases.length, "case")}, ${study.cases[0]} to ${study.cases.at(-1)}; metrics are means`
      : study.cases[0];
  return [
    h(
      "div",
      {class: "figures"},
      (screened || !study.searched) &&
        tile(
          looked.toLocaleString("en-US"),
          screened ? "designs screened" : "designs looked at",
          screened?.exact ? "the whole space: the front is exact" : screened ? "a quasi-random sample" : "",
        ),
      study.searched > 0 && tile(study.searched.toLocaleString("en-US"), "designs searched"),
      tile(
        (screened && !study.searched ? screened.feasible : feasible).toLocaleString("en-US"),
        "feasible",
        study.rows < looked ? `${study.rows.toLocaleString("en-US")} designs in this page` : "",
      ),
      tile(front.length.toLocaleString("en-US"), "on the front"),
      best,
    ),
    h(
      "p",
      {class: "load"},
      cases,
      study.bounds.length > 0 &&
        ` · ${study.bounds.map(b => `${called(b.metric)} ${b.relation === "<=" ? "≤" : "≥"} ${quantity(b.value, columnOf(b.metric)?.unit ?? "1")}`).join(", ")}`,
    ),
    study.certificate.length > 0 && h("p", {class: "load"}, `Certificate: ${study.certificate.join(". ")}`),
    study.sample.load_text && h("p", {class: "load"}, `Load ${study.sample.load_text}`),
    study.sample.noise_text && h("p", {class: "load"}, study.sample.noise_text),
  ];
}

function countFeasible(study) {
  return columnOf("feasible")
    .values.subarray(study.start, study.start + study.rows)
    .reduce((sum, one) => sum + one, 0);
}

function bestRow(rows, column, direction) {
  const better = (a, b) => (direction === "max" ? column.values[a] > column.values[b] : column.values[a] < column.values[b]);
  return rows.reduce((best, row) => (best < 0 || better(row, best) ? row : best), -1);
}

// Studies side by side.
function studyTable(sameQuestion) {
  const {studies} = designs,
    goals = designs.objectives;
  const same = studies.every(study => JSON.stringify(study.objectives) === JSON.stringify(studies[0].objectives));
  const bests = goals.map(column =>
    studies.map(study => bestRow(frontOf(study), column, study.objectives[column.name] ?? column.better)),
  );
  const leader = (rows, column) => {
    const known = rows.filter(row => row >= 0);
    return known.length ? bestRow(known, column, directionOf(column.name)) : -1;
  };
  const line = (text, cells) =>
    h(
      "tr",
      {},
      h("th", {}, text),
      cells.map(cell => h("td", {}, cell)),
    );
  const lost = (study, others) => {
    const front = frontOf(study),
      rivals = others.flatMap(frontOf);
    return front.length
      ? percent(front.filter(row => rivals.some(rival => dominates(rival, row, study.objectives))).length / front.length)
      : "–";
  };
  return h(
    "div",
    {class: "scroll"},
    h(
      "table",
      {class: "grid studies"},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", {}),
          studies.map((study, i) =>
            h(
              "th",
              {},
              h("i", {class: "dot", style: `background:${series(i)}`}),
              study.name,
              !sameQuestion && study.question && h("small", {}, study.question),
            ),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        line(
          "designs looked at",
          studies.map(study => (study.screened?.rows ?? study.rows).toLocaleString("en-US")),
        ),
        line(
          "searched",
          studies.map(study => study.searched.toLocaleString("en-US")),
        ),
        line(
          "on the front",
          studies.map(study => frontOf(study).length.toLocaleString("en-US")),
        ),
        goals.map((column, i) =>
          line(
            [directionOf(column.name) === "max" ? "highest " : "lowest ", name(column.name)],
            bests[i].map(row =>
              row < 0
                ? "–"
                : h(
                    "button",
                    {type: "button", class: row === leader(bests[i], column) ? "lead" : "", onclick: () => openDesign(row)},
                    textOf(column, row),
                  ),
            ),
          ),
        ),
        same &&
          goals.length > 1 &&
          line(
            "hypervolume, of all fronts together",
            studies.map(study => (study.history.all === null ? "–" : percent(study.history.all))),
          ),
        same &&
          goals.length > 1 &&
          line(
            "of its front, dominated by another study",
            studies.map(study =>
              lost(
                study,
                studies.filter(other => other !== study),
              ),
            ),
          ),
      ),
    ),
  );
}

function dominates(a, b, objectives) {
  let better = false;
  for (const [key, direction] of Object.entries(objectives)) {
    const sign = direction === "max" ? 1 : -1,
      p = sign * valueOf(key, a),
      q = sign * valueOf(key, b);
    if (p < q) return false;
    if (p > q) better = true;
  }
  return better;
}
