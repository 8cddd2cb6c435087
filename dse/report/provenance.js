// What the designs of a study broke, what failed, where its constants came from, and its runs.

function limitsCard(study, titled) {
  const limit = columnOf("limit"),
    excess = columnOf("excess").values,
    tally = new Map();
  for (let row = study.start; row < study.start + study.rows; row++) {
    const code = limit.values[row];
    if (Number.isNaN(code)) continue;
    const [many, least] = tally.get(code) ?? [0, Infinity];
    tally.set(code, [many + 1, Math.min(least, excess[row])]);
  }
  const filter = (key, bounds) => () => {
    view.scope = "all";
    setRange(key, bounds);
    refresh();
    scrollTo({top: 0, behavior: "smooth"});
  };
  const lines = [...tally]
    .sort((a, b) => b[1][0] - a[1][0])
    .map(([code, [many, least]]) => [limit.words[code], many, `least by ${percent(least)}`, filter("limit", [code, code])]);
  for (const bound of study.bounds) {
    const column = columnOf(bound.metric),
      broken = value => (bound.relation === "<=" ? value > bound.value : value < bound.value);
    let many = 0;
    for (let row = study.start; row < study.start + study.rows; row++)
      if (Number.isNaN(limit.values[row]) && column && broken(column.values[row])) many++;
    const bounds = bound.relation === "<=" ? [bound.value * (1 + 1e-7), Infinity] : [-Infinity, bound.value * (1 - 1e-7)];
    if (column)
      lines.push([
        `${called(bound.metric)} ${bound.relation === "<=" ? "≤" : "≥"} ${quantity(bound.value, column.unit)}`,
        many,
        "of those within all limits",
        filter(bound.metric, bounds),
      ]);
  }
  const most = Math.max(1, ...lines.map(line => line[1])),
    screened = study.screened;
  const caption =
    `Infeasible designs of this page, by their most violated limit, and those that violate a constraint. Click one to see them.` +
    (screened
      ? ` Of all ${count(screened.rows, "screened design")}, ${screened.feasible.toLocaleString("en-US")} are feasible.`
      : "");
  return card(
    titled(study, "Limits and failures"),
    caption,
    "",
    lines.length
      ? h(
          "ul",
          {class: "limits"},
          lines.map(([text, many, note, onclick]) =>
            h(
              "li",
              {},
              h(
                "button",
                {type: "button", onclick},
                h("span", {}, text),
                h("b", {}, many.toLocaleString("en-US")),
                h("div", {class: "cell-bar"}, h("i", {style: `width:${(100 * many) / most}%`})),
                h("small", {}, many ? note : ""),
              ),
            ),
          ),
        )
      : empty("Nothing is in the way", "Every design of this page keeps every limit."),
    study.failures.length > 0 &&
      h(
        "div",
        {},
        h("h3", {}, "Failed evaluations"),
        h(
          "ul",
          {class: "failures"},
          study.failures.map(([text, many]) => h("li", {}, h("b", {}, `${count(many, "design")}: `), text)),
        ),
      ),
  );
}

// How far off rows were that somebody measured on this chip, for what the study wants.
function bandsCard(study, titled) {
  const many = new Set(study.bands.map(band => `${band.chip} ${band.software}`)).size > 1;
  const line = band =>
    h(
      "tr",
      {},
      h("th", {class: "word"}, name(band.metric)),
      many && h("td", {class: "word"}, band.software ? `${band.chip}, ${band.software}` : band.chip),
      h("td", {class: "prose"}, band.text),
    );
  return card(
    titled(study, "Where measurements exist"),
    "How far off measured rows of the kind of each answer were, simulated over measured. What rows were off by, and no confidence interval.",
    "",
    h("div", {class: "scroll"}, h("table", {class: "grid small bands"}, h("tbody", {}, study.bands.map(line)))),
  );
}

function sourcesCard(study, titled) {
  const doubted = ["assumed", "fitted", "override"],
    counts = Map.groupBy(study.sources, source => (doubted.includes(source.source) ? source.source : "from a source"));
  const said = [...counts].map(([kind, list]) => `${list.length} ${kind}`).join(", ");
  const line = source =>
    h(
      "tr",
      {},
      h("th", {}, name(source.address)),
      h("td", {class: "value"}, source.value),
      h(
        "td",
        {},
        h("span", {class: `badge ${doubted.includes(source.source) ? "doubt" : ""}`, title: source.text}, source.source),
        source.page && ` ${source.page}`,
      ),
      h("td", {class: "prose"}, source.note || source.text),
    );
  const body = h("tbody", {}, study.sources.map(line));
  const search = h("input", {
    type: "search",
    placeholder: "Find a constant or a source",
    "aria-label": "Find a constant or a source",
    oninput: event => {
      const wanted = event.target.value.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    },
  });
  return h(
    "section",
    {class: "card wide"},
    heading(
      titled(study, "Sources"),
      `Where the ${study.sources.length} constants of the chip came from: ${said}. What a knob moves is not listed.`,
      search,
    ),
    h(
      "div",
      {class: "scroll tall"},
      h(
        "table",
        {class: "grid sources"},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["constant", "value", "source", "note"].map(text => h("th", {}, text)),
          ),
        ),
        body,
      ),
    ),
  );
}

function runsCard() {
  const line = (study, run) =>
    h(
      "tr",
      {},
      designs.studies.length > 1 && h("td", {class: "word"}, study.name),
      h("td", {class: "word"}, moment(run.started)),
      h("td", {class: "word"}, run.state + (run.error ? `: ${run.error}` : "")),
      h("td", {}, run.results === undefined ? "–" : count(run.results, "design")),
      h("td", {}, run.cpu_seconds === undefined ? "–" : `${number(run.cpu_seconds, 3)} s CPU`),
      h("td", {class: "word"}, `${run.version ?? "–"}${run.git ? `, git ${String(run.git).slice(0, 8)}` : ""}`),
      h("td", {class: "word"}, run.host ?? "–"),
      h("td", {class: "word code-cell"}, run.overrides.join(" ")),
    );
  const runs = designs.studies.flatMap(study => study.runs.map(run => line(study, run)));
  if (!runs.length) return null;
  const heads = [
    designs.studies.length > 1 && "study",
    "started",
    "state",
    "searched",
    "spent",
    "version",
    "host",
    "overrides",
  ].filter(Boolean);
  return h(
    "section",
    {class: "card wide"},
    heading("Runs", "When, with what and how far."),
    h(
      "div",
      {class: "scroll"},
      h(
        "table",
        {class: "grid"},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            heads.map(text => h("th", {class: ["searched", "spent"].includes(text) ? "" : "word"}, text)),
          ),
        ),
        h("tbody", {}, runs),
      ),
    ),
  );
}

function moment(text) {
  const date = new Date(text);
  return Number.isNaN(date.valueOf()) ? text : date.toLocaleString("en-GB", {dateStyle: "medium", timeStyle: "short"});
}
