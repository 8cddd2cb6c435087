// Pages of one answer: a line of text, plots and tables, in the look of the report.

const answer = {data: null, plots: []};

const LEGEND_LINE = 19; // px, of a legend or of a title
const PHONE_TITLE = 44; // letters of a title that stand side by side on a phone
const WORD_COLUMN = 26; // letters that a column of words shows side by side before it wraps

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

// The plots one after the other, the first at once: the page answers between two of them.
async function paintPlots() {
  if (!window.Plotly) return;
  for (const {place, paint} of answer.plots) {
    paint(place);
    await new Promise(done => setTimeout(done));
  }
}

function add(...children) {
  document.getElementById("answer").append(...children.flat(Infinity).filter(Boolean));
}

// Words in lines of so many letters at most.
function wrapWords(text, letters) {
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && longer.length <= letters) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
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
    const heads = () => (innerWidth < 560 ? wrapWords(title, PHONE_TITLE) : [title]);
    const above = () => LEGEND_LINE * (Math.min(lines(), height ? 20 : 6) + heads().length - 1); // px
    const paint = () => {
      if (height) place.style.height = `${height + above()}px`;
      draw(place, inked(traces), {
        title: {text: heads().map(plain).join("<br>"), font: {size: innerWidth < 560 ? 13 : 15}, x: 0.02, xanchor: "left", y: 1, yanchor: "top", pad: {t: 12 + 8 * (heads().length - 1)}},
        xaxis: {...axisStyle(x.title), ...x, title: axisStyle(x.title).title},
        yaxis: {...axisStyle(y.title), ...y, title: axisStyle(y.title).title},
        margin: {l: 64, r: 16, t: 48 + above(), b: 48},
        dragmode: false,
        ...layout,
      });
    };
    answer.plots.push({place, paint});
  };
}

// Sentences below all else, in a card of their own; nothing where there are none.
function answerNotes(title, texts) {
  return texts.length > 0 && h("section", {class: "card"}, heading(title), h("ul", {class: "remarks"}, texts.map(text => h("li", {}, text))));
}

// The address of a setting or the name of a metric under its plain name.
function named(words, key) {
  return words === key ? words : [words, h("small", {}, breakable(key))];
}

// A table in its card: the first column is text, others are as the cells say; a cell is text or nodes.
function answerTable(id, title, head, rows, words = []) {
  const isWord = i => i === 0 || words.includes(head[i]);
  const letters = i => Math.max(...rows.map(cells => String([cells[i]].flat()[0]).length), 0);
  const width = head.map((text, i) => (isWord(i) && rows.length ? {style: `min-width:calc(${Math.min(letters(i), WORD_COLUMN)}ch + 20px)`} : {}));
  const cell = (tag, text, i) => h(tag, {class: isWord(i) ? "word" : "", ...(tag === "td" ? width[i] : {})}, text);
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
