// The page of the claims of papers: verdicts by paper, and each claim with its place, values, mechanism and command.

const claimNumber = value => (value === null ? "infeasible" : figure(value));
const VERDICTS = ["reproduced", "contradicted", "undecidable"];
const shown = new Set(VERDICTS);

function grow(parent, tag, text = "", kind = "") {
  const node = parent.appendChild(document.createElement(tag));
  node.textContent = text;
  if (kind) node.className = kind;
  return node;
}

const simulatedText = claim =>
  claim.span === null ? claim.simulated : claim.span[0] === claim.span[1] ? claimNumber(claim.span[0]) : `${claimNumber(claim.span[0])} to ${claimNumber(claim.span[1])}`;

function details(cell, claim) {
  if (claim.mechanism && claim.verdict === "contradicted") grow(cell, "small", claim.mechanism);
  const holding = claim.points.filter(point => point.holds).length;
  const points = claim.points.length > 1 ? `; holds at ${holding} of ${claim.points.length} values` : "";
  if (claim.missing && claim.verdict !== "contradicted") grow(cell, "small", `The paper leaves out: ${claim.missing}${points}`);
  if (claim.problem) grow(cell, "small", claim.problem, "bad");
  const box = grow(cell, "details");
  grow(box, "summary", "how");
  const list = grow(box, "div");
  grow(grow(list, "div"), "code", claim.command);
  if (claim.row) grow(list, "div", `published row ${claim.row}${claim.fitted ? ", on which constants were fitted" : ""}`);
  if (claim.metric) grow(list, "div", `${claim.metric}${claim.baseline.length ? ", over the baseline's" : ""}${claim.tolerance === null ? "" : `, tolerance ${share(claim.tolerance)}`}`);
  if (claim.overrides.length) grow(grow(list, "div"), "code", `dse evaluate ${claim.overrides.join(" ")}`);
  if (claim.baseline.length) grow(grow(list, "div", "baseline "), "code", claim.baseline.join(" "));
  if (claim.reader.length) grow(grow(list, "div", "second model "), "code", claim.reader.join(" "));
  if (claim.points.length > 1)
    for (const point of claim.points) grow(list, "div", `${point.holds ? "✓" : "✕"} ${claimNumber(point.simulated)} at ${point.overrides.join(" ")}`);
}

function claimFilter(total) {
  const buttons = VERDICTS.map(verdict => {
    const button = h("button", {type: "button", "aria-pressed": "true"}, `${verdict} (${total(verdict)})`);
    button.addEventListener("click", () => {
      if (shown.has(verdict)) shown.delete(verdict);
      else shown.add(verdict);
      button.setAttribute("aria-pressed", String(shown.has(verdict)));
      for (const row of document.querySelectorAll("tbody tr")) row.hidden = !shown.has(row.dataset.verdict);
    });
    return button;
  });
  return h("div", {class: "segments", id: "filter", role: "group", "aria-label": "verdicts that are shown"}, buttons);
}

function paperText(paper) {
  return `${[
    `${paper.decided} of ${count(paper.claims, "claim")} decided, ${paper.reproduced} reproduced`,
    paper.fitted && `constants were fitted on ${paper.fitted} of these`,
    paper.numbers && `median error of ${count(paper.numbers, "number")} ${share(paper.median)}, worst ${share(paper.worst)}`,
    paper.ranges && `${paper.held} of ${paper.ranges} ranges hold`,
  ]
    .filter(Boolean)
    .join("; ")}.`;
}

function claimRow(claim) {
  const row = h("tr", {class: claim.verdict, "data-verdict": claim.verdict});
  grow(grow(row, "td", claim.where), "small", claim.id);
  details(grow(row, "td", claim.claim), claim);
  const values = {
    published: `${claim.value.replace("..", " to ")} ${claim.unit === "ratio" ? "" : claim.unit}`.trim(),
    simulated: simulatedText(claim),
    "second model": claim.reader.length ? claimNumber(claim.reader_value) : "",
  };
  for (const [name, value] of Object.entries(values)) {
    const cell = grow(row, "td", value, "value");
    if (value) cell.dataset.name = name;
  }
  grow(row, "td", claim.verdict, "verdict");
  return row;
}

function paperCard(paper, claims) {
  const numbers = ["published", "simulated", "second model"],
    heads = ["place", "claim", ...numbers, "verdict"];
  return h(
    "section",
    {class: "card"},
    heading(paper.title, paperText(paper)),
    h("div", {class: "verdicts"}, VERDICTS.filter(verdict => paper[verdict]).map(verdict => h("i", {class: verdict, style: `flex:${paper[verdict]}`}))),
    h(
      "div",
      {class: "scroll whole"},
      h(
        "table",
        {class: "claims"},
        h("thead", {}, h("tr", {}, heads.map(name => h("th", {class: numbers.includes(name) ? "value" : ""}, name)))),
        h("tbody", {}, claims.map(claimRow)),
      ),
    ),
  );
}

startAnswer(data => {
  const total = name => data.papers.reduce((sum, paper) => sum + paper[name], 0);
  add(
    answerText(
      "summary",
      `${total("decided")} of ${count(total("claims"), "claim")} decided, ${total("reproduced")} reproduced, by physics ${data.physics}. ` +
        "Each claim is reproduced within its tolerance or range, contradicted, or undecidable: it holds for some values of what the paper leaves out, or cannot be simulated.",
    ),
    data.problems.length > 0 && h("p", {id: "problems", class: "bad"}, data.problems.join(" · ")),
    claimFilter(total),
    data.papers.map(paper => paperCard(paper, data.claims.filter(claim => claim.paper === paper.paper))),
  );
});
