// Why a design is on the front: what each knob would do, what constraints cost, what is next to it; and what a study cannot say.

function signed(change, digits = 3) {
  if (change === null) return "–";
  if (change === 0) return "0";
  return `${change > 0 ? "+" : "−"}${percent(Math.abs(change), digits)}`;
}

// Draws of the constants in which a design of the front stays there, and the constants that turn it most.
function robustPart(row, study) {
  const title = "Does it hang on assumptions?";
  if (!isFront(row)) return null;
  const [share, near, turning] = study.robust?.designs[row] ?? [];
  if (share === undefined)
    return part(title, h("p", {class: "note"}, "Nobody has asked yet."), copied("line", `dse robust ${study.name}`));
  const {draws, constants} = study.robust;
  return part(
    title,
    h(
      "p",
      {class: "note"},
      `On the front in ${percent(share)} of ${draws} draws of ${count(constants, "assumed or fitted constant")}, within 1 % of it in ${percent(near)}. Constants that turn it most, each alone at the ends of its range:`,
    ),
    h(
      "ul",
      {class: "remarks"},
      turning.map(line => h("li", {}, line)),
    ),
  );
}

function stepsPart(row, study) {
  const known = study.why.designs[row];
  if (!known) return null;
  const title = "One step of each knob";
  if (!known.steps) {
    const line = `dse explain ${study.name} --design ${designId(row)}`;
    return part(title, h("p", {class: "note"}, "There was no time to evaluate its steps for this page."), copied("line", line));
  }
  const goals = Object.keys(study.objectives),
    better = goals.map(goal => (study.objectives[goal] === "max" ? 1 : -1));
  let last = "";
  const cell = (change, elastic, sign) =>
    h(
      "td",
      {class: change === null || Math.abs(change) < 5e-5 ? "" : change * sign > 0 ? "good" : "worse"},
      signed(change),
      elastic !== null && h("small", {title: "elasticity: change of its logarithm over the knob's"}, number(elastic, 2)),
    );
  const line = ([knob, value, change, elastic, why]) => {
    const first = knob !== last;
    last = knob;
    const step = h(
      "tr",
      {class: why ? "step broken" : "step"},
      h("td", {class: "word", title: columnOf(knob)?.doc}, first ? [name(knob), h("small", {}, textOf(columnOf(knob), row))] : ""),
      h("td", {class: "word"}, `→ ${value}`),
      goals.map((_, i) => cell(change[i], elastic[i], better[i])),
    );
    return why ? [step, h("tr", {class: "reason"}, h("td", {}), h("td", {class: "word", colspan: goals.length + 1}, why))] : step;
  };
  return part(
    title,
    h(
      "p",
      {class: "note"},
      `Change of each objective by ${study.why.by}, everything else as it is; below it the elasticity: change of its logarithm over the knob's.`,
    ),
    h(
      "div",
      {class: "scroll whole"},
      h(
        "table",
        {class: "grid small steps"},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", {class: "word"}, "knob"),
            h("th", {class: "word"}, "to"),
            goals.map(goal => h("th", {}, name(goal))),
          ),
        ),
        h("tbody", {}, known.steps.map(line)),
      ),
    ),
    known.prices.length > 0 && [
      h("p", {class: "note"}, "Designs that break one constraint alone and would beat it if that were relaxed:"),
      h("ul", {class: "prices"}, known.prices.map(priceLine)),
    ],
  );
}

// The nearest designs of the front that are cheaper and slower, and more expensive and faster.
function sidesPart(row, study) {
  const known = study.why.designs[row];
  if (!known || (!known.cheaper && !known.faster)) return null;
  const line = (near, text) => {
    if (!near) return h("li", {}, `None of the front is ${text}.`);
    const of = ([key, old, value]) =>
      h("span", {}, h("i", {class: "on"}, name(key)), h("b", {}, quantity(value, unitOf(key))), h("em", {}, difference(value, old)));
    return h(
      "li",
      {},
      h(
        "button",
        {type: "button", onclick: () => openDesign(near.row)},
        h("b", {}, label(near.row)),
        [near.cost, near.pace].map(of),
        h("small", {}, text),
      ),
    );
  };
  return part(
    "Cheaper, or faster",
    h("ul", {class: "sides"}, line(known.cheaper, "cheaper and slower"), line(known.faster, "more expensive and faster")),
  );
}

function unitOf(key) {
  return columnOf(key)?.unit ?? "1";
}

function priceLine(price) {
  return h("li", {}, h("b", {}, spoken(price.what)), ": ", spoken(price.text), h("small", {}, `${price.design}: ${knobsOf(price)}`));
}

function knobsOf(price) {
  return Object.entries(price.knobs)
    .map(([knob, value]) => `${called(knob)} ${value}`)
    .join(" · ");
}

function pricesCard(study, titled) {
  if (!study.why.prices.length) return null;
  return card(
    titled(study, "Shadow prices of constraints"),
    "For each constraint and limit: the smallest relaxation, up to a factor of two, with which a known design moves the front, and what that buys in each objective over the best feasible design that is as good in the others; in all, and for each unit of relaxation.",
    "",
    h("ul", {class: "prices"}, study.why.prices.map(priceLine)),
  );
}

function remarksCard(study, titled) {
  const {remarks, left, designs: known} = study.why;
  const lines = remarks.map(remark => remark.text);
  if (left) {
    const all = left + Object.values(known).filter(design => design.steps).length;
    lines.push(`steps of knobs are in this page for ${all - left} of ${count(all, "front design")}; dse explain ${study.name} --design ID has the others`);
  }
  if (!lines.length) return null;
  return card(
    titled(study, "What this study cannot say"),
    "Knobs without effect, constraints that are never violated, objectives and designs that errors do not distinguish.",
    "",
    h(
      "ul",
      {class: "remarks"},
      lines.map(line => h("li", {}, spoken(line))),
    ),
  );
}
