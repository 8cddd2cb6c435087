// Ties the views together: the bar of filters, one redraw for every change, the theme, and data that arrive later.

function drawBar() {
  const chips = [...view.ranges]
    .filter(([key]) => columnOf(key) && key !== "study")
    .map(([key, bounds]) => chip(`${called(key)}: ${rangeText(columnOf(key), bounds)}`, () => setRange(key, null)));
  if (view.onlyMarked) chips.push(chip("shortlist only", () => (view.onlyMarked = false)));
  const scopes = [
    ["front", "Front", "Designs that no other beats"],
    ["feasible", "Feasible", "Designs that keep every limit and constraint"],
    ["all", "All", "Infeasible and failed designs too"],
  ];
  const clear = () => {
    view.ranges.clear();
    view.onlyMarked = false;
    refresh();
  };
  put(
    "bar",
    segments("Designs", scopes, view.scope, value => {
      view.scope = value;
      view.shown = ROWS;
      refresh();
    }),
    designs.studies.length > 1 && studyChips(),
    h("div", {class: "chips"}, chips),
    (chips.length > 0 || range("study")) && h("button", {type: "button", class: "clear", onclick: clear}, "Clear filters"),
    view.marked.size > 0 &&
      h(
        "button",
        {
          type: "button",
          class: view.onlyMarked ? "on" : "",
          onclick: () => {
            view.onlyMarked = !view.onlyMarked;
            refresh();
          },
        },
        `Shortlist (${view.marked.size})`,
      ),
    view.marked.size > 0 &&
      h(
        "button",
        {type: "button", title: "Save the shortlist as YAML, which dse evaluate --from answers", onclick: saveShortlist},
        "Shortlist (YAML)",
      ),
    linkButton(),
    h(
      "span",
      {class: "passed", id: "passed", "aria-live": "polite"},
      `${view.passed.toLocaleString("en-US")} of ${count(designs.rows, "design")}`,
    ),
  );
}

// What is below the bar stands clear of it, however many lines it has.
new ResizeObserver(([{target}]) => document.documentElement.style.setProperty("--bar", `${target.offsetHeight}px`)).observe(document.getElementById("bar"));

function chip(text, drop) {
  return h(
    "button",
    {
      type: "button",
      class: "chip",
      title: "Remove this filter",
      onclick: () => {
        drop();
        refresh();
      },
    },
    text,
    h("i", {class: "x"}, "×"),
  );
}

function studyChips() {
  const only = range("study");
  return h(
    "div",
    {class: "chips"},
    designs.studies.map((study, i) =>
      h(
        "button",
        {
          type: "button",
          class: "chip study",
          "aria-pressed": String(!only || only[0] === i),
          title: "Show this study alone, or all",
          onclick: () => {
            setRange("study", only && only[0] === i ? null : [i, i]);
            refresh();
          },
        },
        h("i", {class: "dot", style: `background:${series(i)}`}),
        study.name,
      ),
    ),
  );
}

// One redraw for every change, at most once a frame.
let pending = false;

function refresh() {
  if (pending || !designs.data) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    hideTip();
    applyView();
    drawBar();
    if (window.Plotly) drawFront();
    else frameFront();
    drawParallel();
    drawTable();
    drawDesign();
    followView();
    if (view.drawn === drawnKey()) {
      if (window.Plotly && view.figured !== view.open) drawOpenCards();
      return;
    }
    view.drawn = drawnKey(); // the header and the cards are about whole studies: filters do not move them
    drawHead();
    tellLive();
    if (window.Plotly) setTimeout(drawCards);
  });
}

function drawnKey() {
  return `${designs.data.written} ${document.documentElement.dataset.scheme}`;
}

function start(data) {
  const kept = {open: view.chosen && view.open >= 0 ? signature(view.open) : "", marked: [...view.marked].map(signature)};
  takeDesigns(data);
  const first = !view.started;
  view.open = kept.open ? rowOf(kept.open) : (designs.studies.map(knee).find(row => row >= 0) ?? -1);
  view.marked = new Set(kept.marked.map(rowOf).filter(row => row >= 0));
  if (!designs.columns.get("feasible").values.some(Boolean)) view.scope = "all";
  startFront();
  startParallel();
  if (first) {
    rememberUsual();
    if (readLink()) document.body.classList.add("opened");
    view.started = true;
  }
  refresh();
}

// Plotly takes a while to start: what needs it not is drawn before.
async function loadPlotly() {
  await loadEngine("plotly");
  drawFront();
  requestAnimationFrame(() => setTimeout(drawCards)); // the front is seen first
}

document.addEventListener("painted", () => requestAnimationFrame(() => setTimeout(loadPlotly)), {once: true});
addEventListener("DOMContentLoaded", () => unpackData().then(data => data && [start(data), followStudy()]));
DARK.addEventListener("change", () => {
  setTheme(theme);
  refresh();
});
addEventListener("resize", () => refresh());
addEventListener("hashchange", () => {
  view.ranges.clear();
  Object.assign(view, usual, {marked: new Set()});
  if (readLink()) document.body.classList.add("opened");
  refresh();
});
addEventListener("keydown", event => {
  if (event.key === "Escape") document.body.classList.remove("opened");
});
