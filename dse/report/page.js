// Ties the views together: the header, the bar of filters, one redraw for every change, the theme, and data that arrive later.

function drawHead() {
  const {studies, data} = designs, [study] = studies, many = studies.length > 1, same = studies.every(one => one.question === study.question);
  const themes = segments("Theme", [["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]], theme, value => { setTheme(value); drawHead(); refresh(); });
  put("head", h("div", {class: "title"}, h("h1", {}, new Intl.ListFormat("en").format(studies.map(one => one.name))), h("span", {class: "live", id: "live", hidden: true}, "live"),
      h("span", {class: "brand"}, "mesh-dse"), themes),
    same && study.question && h("p", {class: "question"}, study.question), many ? studyTable(same) : keyFigures(study));
  put("foot", `Written ${moment(data.written)} · fidelity ${[...new Set(studies.map(s => s.fidelity))].join(", ")} · seed ${[...new Set(studies.map(s => s.seed))].join(", ")} · physics version ${study.physics}`);
}

function keyFigures(study) {
  const front = frontOf(study), screened = study.screened, feasible = countFeasible(study);
  const tile = (value, text, note, onclick) => h(onclick ? "button" : "div", {class: "figure", ...(onclick ? {type: "button", onclick} : {})}, h("b", {}, value), h("span", {}, text), note && h("small", {}, note));
  const looked = screened ? screened.rows : study.rows;
  const best = Object.entries(study.objectives).map(([key, direction]) => {
    const column = columnOf(key), row = bestRow(front, column, direction);
    return tile(row < 0 ? "–" : textOf(column, row), direction === "max" ? `highest ${key}` : `lowest ${key}`, row < 0 ? "no feasible design" : label(row), row < 0 ? null : () => openDesign(row));
  });
  const cases = study.cases.length > 1 ? `${count(study.cases.length, "case")}, ${study.cases[0]} to ${study.cases.at(-1)}; metrics are means` : study.cases[0];
  return [h("div", {class: "figures"},
    (screened || !study.searched) && tile(looked.toLocaleString("en-US"), screened ? "designs screened" : "designs looked at", screened?.exact ? "the whole space: the front is exact" : screened ? "a quasi-random sample" : ""),
    study.searched > 0 && tile(study.searched.toLocaleString("en-US"), "designs searched"),
    tile((screened && !study.searched ? screened.feasible : feasible).toLocaleString("en-US"), "feasible", study.rows < looked ? `${study.rows.toLocaleString("en-US")} designs in this page` : ""),
    tile(front.length.toLocaleString("en-US"), "on the front"), best),
  h("p", {class: "load"}, cases, study.bounds.length > 0 && ` · ${study.bounds.map(b => `${b.metric} ${b.relation === "<=" ? "≤" : "≥"} ${quantity(b.value, columnOf(b.metric)?.unit ?? "1")}`).join(", ")}`)];
}

function countFeasible(study) {
  return columnOf("feasible").values.subarray(study.start, study.start + study.rows).reduce((sum, one) => sum + one, 0);
}

function bestRow(rows, column, direction) {
  const better = (a, b) => direction === "max" ? column.values[a] > column.values[b] : column.values[a] < column.values[b];
  return rows.reduce((best, row) => best < 0 || better(row, best) ? row : best, -1);
}

// Studies side by side.
function studyTable(sameQuestion) {
  const {studies} = designs, goals = designs.objectives;
  const same = studies.every(study => JSON.stringify(study.objectives) === JSON.stringify(studies[0].objectives));
  const bests = goals.map(column => studies.map(study => bestRow(frontOf(study), column, study.objectives[column.name] ?? column.better)));
  const leader = (rows, column) => { const known = rows.filter(row => row >= 0); return known.length ? bestRow(known, column, directionOf(column.name)) : -1; };
  const line = (text, cells) => h("tr", {}, h("th", {}, text), cells.map(cell => h("td", {}, cell)));
  const lost = (study, others) => {
    const front = frontOf(study), rivals = others.flatMap(frontOf);
    return front.length ? percent(front.filter(row => rivals.some(rival => dominates(rival, row, study.objectives))).length / front.length) : "–";
  };
  return h("div", {class: "scroll"}, h("table", {class: "grid studies"},
    h("thead", {}, h("tr", {}, h("th", {}), studies.map((study, i) => h("th", {}, h("i", {class: "dot", style: `background:${series(i)}`}), study.name, !sameQuestion && study.question && h("small", {}, study.question))))),
    h("tbody", {},
      line("designs looked at", studies.map(study => (study.screened?.rows ?? study.rows).toLocaleString("en-US"))),
      line("searched", studies.map(study => study.searched.toLocaleString("en-US"))),
      line("on the front", studies.map(study => frontOf(study).length.toLocaleString("en-US"))),
      goals.map((column, i) => line(`${directionOf(column.name) === "max" ? "highest" : "lowest"} ${column.name}`, bests[i].map(row => row < 0 ? "–" :
        h("button", {type: "button", class: row === leader(bests[i], column) ? "lead" : "", onclick: () => openDesign(row)}, textOf(column, row))))),
      same && goals.length > 1 && line("hypervolume, of all fronts together", studies.map(study => study.history.all === null ? "–" : percent(study.history.all))),
      same && goals.length > 1 && line("of its front, beaten by another study", studies.map(study => lost(study, studies.filter(other => other !== study)))))));
}

function dominates(a, b, objectives) {
  let better = false;
  for (const [key, direction] of Object.entries(objectives)) {
    const sign = direction === "max" ? 1 : -1, p = sign * valueOf(key, a), q = sign * valueOf(key, b);
    if (p < q) return false;
    if (p > q) better = true;
  }
  return better;
}

function drawBar() {
  const chips = [...view.ranges].filter(([key]) => columnOf(key) && key !== "study").map(([key, bounds]) => chip(`${key}: ${rangeText(columnOf(key), bounds)}`, () => setRange(key, null)));
  if (view.onlyMarked) chips.push(chip("shortlist only", () => view.onlyMarked = false));
  const scopes = [["front", "Front", "Designs that no other beats"], ["feasible", "Feasible", "Designs that keep every limit and constraint"], ["all", "All", "Infeasible and failed designs too"]];
  const clear = () => { view.ranges.clear(); view.onlyMarked = false; refresh(); };
  put("bar", segments("Designs", scopes, view.scope, value => { view.scope = value; view.shown = ROWS; refresh(); }),
    designs.studies.length > 1 && studyChips(),
    h("div", {class: "chips"}, chips), (chips.length > 0 || range("study")) && h("button", {type: "button", class: "clear", onclick: clear}, "Clear filters"),
    view.marked.size > 0 && h("button", {type: "button", class: view.onlyMarked ? "on" : "", onclick: () => { view.onlyMarked = !view.onlyMarked; refresh(); }}, `Shortlist (${view.marked.size})`),
    h("span", {class: "passed", id: "passed", "aria-live": "polite"}, `${view.passed.toLocaleString("en-US")} of ${count(designs.rows, "design")}`));
}

function chip(text, drop) {
  return h("button", {type: "button", class: "chip", title: "Remove this filter", onclick: () => { drop(); refresh(); }}, text, h("i", {class: "x"}, "×"));
}

function studyChips() {
  const only = range("study");
  return h("div", {class: "chips"}, designs.studies.map((study, i) => h("button", {type: "button", class: "chip study", "aria-pressed": String(!only || only[0] === i),
    title: "Show this study alone, or all", onclick: () => { setRange("study", only && only[0] === i ? null : [i, i]); refresh(); }}, h("i", {class: "dot", style: `background:${series(i)}`}), study.name)));
}

// One redraw for every change, at most once a frame.
let pending = false;

function refresh() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    hideTip();
    applyView();
    drawBar();
    if (window.Plotly) drawFront();
    drawParallel();
    drawTable();
    drawDesign();
    if (view.drawn === drawnKey()) return;
    view.drawn = drawnKey();  // the header and the cards are about whole studies: filters do not move them
    drawHead();
    tellLive();
    if (window.Plotly) setTimeout(drawCards);
  });
}

function drawnKey() {
  return `${designs.data.written} ${document.documentElement.dataset.scheme}`;
}

const DARK = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";

function setTheme(value) {
  theme = value;
  document.documentElement.dataset.scheme = value === "auto" ? (DARK.matches ? "dark" : "light") : value;
  try { localStorage.setItem("mesh-dse-theme", value); } catch { /* a page from a file may have no storage */ }
}

function storedTheme() {
  try { return localStorage.getItem("mesh-dse-theme") ?? "auto"; } catch { return "auto"; }
}

function start(data) {
  const kept = {open: view.open >= 0 ? signature(view.open) : "", marked: [...view.marked].map(signature)};
  takeDesigns(data);
  view.open = kept.open ? rowOf(kept.open) : designs.studies.map(knee).find(row => row >= 0) ?? -1;
  view.marked = new Set(kept.marked.map(rowOf).filter(row => row >= 0));
  if (!designs.columns.get("feasible").values.some(Boolean)) view.scope = "all";
  startFront();
  startParallel();
  refresh();
}

// Plotly is most of the page and takes a second to start: what needs it not is drawn before.
function loadPlotly() {
  const source = document.getElementById("plotly");
  document.body.append(h("script", {}, source.textContent));
  source.remove();
  drawFront();
  setTimeout(drawCards);
}

// A page that follows a study: it polls a stamp beside itself, and takes the data when the stamp is new.
const live = {stamp: "", file: document.body.dataset.live};

function load(file) {
  const script = h("script", {src: `${file}?${Date.now()}`});
  script.onload = script.onerror = () => script.remove();
  document.body.append(script);
}

function takeStamp({stamp, data, done}) {
  if (done) live.file = "";
  if (live.stamp !== stamp) load(data);
  live.stamp = stamp;
}

function takeData(data) {
  start(data);
}

function tellLive() {
  const element = document.getElementById("live");
  if (!document.body.dataset.live) return;
  element.hidden = false;
  element.textContent = live.file ? "live" : "finished";
  element.classList.toggle("done", !live.file);
}

setTheme(storedTheme());
document.addEventListener("painted", () => requestAnimationFrame(() => setTimeout(loadPlotly)), {once: true});
start(JSON.parse(document.getElementById("data").textContent));
if (live.file) setInterval(() => live.file && load(live.file), 1500);
DARK.addEventListener("change", () => { setTheme(theme); refresh(); });
addEventListener("resize", () => refresh());
addEventListener("keydown", event => {
  if (event.key === "Escape") document.body.classList.remove("opened");
});
