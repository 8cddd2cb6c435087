// Pages of one answer: a line of text, plots and tables, in the look of the report.

const answer = {data: null, plots: []};

// Draws the page once its data are there, and its plots once Plotly is; both again when the colours change.
function startAnswer(drawAnswer) {
  addEventListener("DOMContentLoaded", async () => {
    const data = await unpackData();
    if (!data) return;
    document.getElementById("answer").replaceChildren();
    drawAnswer(data);
    drawThemes();
    await new Promise(done => setTimeout(done)); // the page is painted before Plotly starts
    await loadEngine("plotly");
    paintPlots();
  });
  DARK.addEventListener("change", () => {
    setTheme(theme);
    paintPlots();
  });
}

function drawThemes() {
  document.querySelector(".title .segments")?.remove();
  document.querySelector(".title").append(
    themeChoice(() => {
      drawThemes();
      paintPlots();
    }),
  );
}

function paintPlots() {
  if (window.Plotly) for (const {place, paint} of answer.plots) paint(place);
}

function add(...children) {
  document.getElementById("answer").append(...children.flat(Infinity).filter(Boolean));
}

// A whole number from a thousand on, else four digits.
function figure(value) {
  return value >= 1000 && value < 1e9 ? Math.round(value).toLocaleString("en-US") : number(value ?? NaN);
}

function seconds(value) {
  return value === null ? "–" : value >= 1 ? `${figure(value)} s` : `${figure(1e3 * value)} ms`;
}

function share(value) {
  return value === null ? "–" : `${(100 * value).toFixed(1)} %`;
}

function answerText(id, text, kind = "question") {
  return h("p", {id, class: kind}, text);
}

function answerTitle() {
  return document.title.replace(" · mesh-dse", "");
}

// Plots side by side where there is room: each a title, its traces and two axes; of the usual height unless one is given [px].
function answerPlots() {
  const places = h("div", {class: "plots", id: "plots"});
  add(places);
  return (title, traces, x, y, layout = {}, height = 0) => {
    const place = places.appendChild(h("div", {class: "card", ...(height ? {style: `height:${height}px`} : {})}));
    const named = traces.filter(trace => trace.showlegend !== false).length,
      lines = () => (layout.showlegend === false ? 0 : innerWidth < 560 ? named : Math.ceil(named / 3)); // of the legend, below the title
    const paint = () =>
      draw(place, inked(traces), {
        title: {text: plain(title), font: {size: innerWidth < 560 ? 13 : 15}, x: 0.02, xanchor: "left", y: 0.98, yanchor: "top"},
        xaxis: {...axisStyle(x.title), ...x, title: axisStyle(x.title).title},
        yaxis: {...axisStyle(y.title), ...y, title: axisStyle(y.title).title},
        margin: {l: 64, r: 16, t: 48 + 19 * Math.min(lines(), 6), b: 48},
        dragmode: false,
        ...layout,
      });
    answer.plots.push({place, paint});
  };
}

// Sentences below all else, in a card of their own; nothing where there are none.
function answerNotes(title, texts) {
  return texts.length > 0 && h("section", {class: "card"}, heading(title), h("ul", {class: "remarks"}, texts.map(text => h("li", {}, text))));
}

// A table in its card: the first column is text, others are as the cells say.
function answerTable(id, title, head, rows, words = []) {
  const cell = (tag, text, i) => h(tag, {class: i === 0 || words.includes(head[i]) ? "word" : ""}, text);
  return h(
    "section",
    {class: "card"},
    title && heading(title),
    h(
      "div",
      {class: "scroll whole"},
      h(
        "table",
        {class: "grid", id},
        h("thead", {}, h("tr", {}, head.map((text, i) => cell("th", text, i)))),
        h("tbody", {}, rows.map(cells => h("tr", {}, cells.map((text, i) => cell("td", text, i))))),
      ),
    ),
  );
}
