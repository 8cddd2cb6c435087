// Figures that Python built (dse/report/figures.py): their panels, drawn in the page's theme.

const figureView = {per: ""};

// Titles are of Python, in which Plotly's tags are letters.
function panelAxis({title, ...rest}) {
  return {...axisStyle(title), ...inked(rest)};
}

function paintPanel(plot, panel) {
  draw(plot, inked(panel.traces), {xaxis: panelAxis(panel.x), yaxis: panelAxis(panel.y), dragmode: false, ...inked(panel.layout)});
}

// A card with the panels of a figure: side by side where there is room, or below each other.
function figureCard(title, figure, kind, ...tools) {
  const plots = figure.panels.map(panel => {
    const plot = h("div", {class: "plot"});
    plot.paint = () => paintPanel(plot, panel);
    return plot;
  });
  const save = plots.map((plot, i) => pictureButton(plots.length > 1 ? `${title} ${i + 1}` : title, () => plot));
  return h(
    "section",
    {class: `card ${kind}`},
    heading(title, figure.caption, tools, save),
    h("div", {class: figure.columns ? "panels columns" : "panels"}, plots),
  );
}

function speedCard(study, titled) {
  const figures = study.figures.throughput_per_user,
    known = Object.keys(figures);
  if (!known.length) return null;
  const per = known.includes(figureView.per) ? figureView.per : known[0];
  const choice = segments(
    "Resource",
    known.map(key => [key, `per ${key.replace("mm2", "mm²")}`, figures[key].title]),
    per,
    value => {
      figureView.per = value;
      drawCards();
    },
  );
  return figureCard(titled(study, figures[per].title), figures[per], "", choice);
}

function costCard(study, titled) {
  const figure = study.figures.cost;
  return figure && figureCard(titled(study, "Area, power and price by block"), figure, "wide");
}

// Cards of the open design, which are drawn anew when another one is opened.
function openCards() {
  return h("div", {class: "cards of-design", id: "open-cards"});
}

function drawOpenCards() {
  const place = document.getElementById("open-cards");
  if (!place || view.open < 0) return;
  view.figured = view.open;
  const study = studyOf(view.open),
    {roofline, load} = study.figures,
    row = nearestDrawn(study, roofline);
  const cards = [roofline[row] && figureCard(roofline[row].title, roofline[row], "")];
  const loaded = nearestDrawn(study, load);
  if (load[loaded]) cards.push(figureCard(load[loaded].title, load[loaded], ""));
  place.replaceChildren(...cards.filter(Boolean));
  for (const plot of place.querySelectorAll(".plot")) plot.paint();
}

// The open design, or the nearest one that has a figure.
function nearestDrawn(study, figures) {
  const rows = Object.keys(figures).map(Number);
  return rows.includes(view.open) || !rows.length ? view.open : nearestTo(view.open, study, rows);
}
