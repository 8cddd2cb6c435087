// A page that follows a running study: from its server by events, or from files beside it by a stamp that it polls.

const live = {stamp: "", file: document.body.dataset.live, stopped: false};

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
  if (!element || !document.body.dataset.live) return;
  element.hidden = false;
  element.textContent = live.file ? "live" : live.stopped ? "no longer followed" : "finished";
  element.classList.toggle("done", !live.file);
}

function followStudy() {
  if (live.file.startsWith("events")) followEvents();
  else if (live.file) setInterval(() => live.file && load(live.file), 1500);
}

function followEvents() {
  const source = new EventSource(live.file);
  source.addEventListener("designs", event => appendDesigns(JSON.parse(event.data)));
  source.addEventListener("done", async () => {
    source.close();
    live.file = "";
    start(await (await fetch("data")).json());
  });
  source.addEventListener("error", () => {
    source.close(); // the server ends with the study or with Ctrl-C
    Object.assign(live, {file: "", stopped: true});
    tellLive();
  });
}

// New designs below those that are there, and the front as it is with them; cards are of the designs the page began with.
function appendDesigns({rows, columns, front, searched, screened}) {
  const [study] = designs.studies,
    fresh = new Map(columns.map(packed => [packed.name, {...packed, values: unpacked(packed), data: null}]));
  if (rows) {
    for (const [name, column] of fresh) if (!designs.columns.has(name)) designs.columns.set(name, {...column, values: missing(column, designs.rows)});
    for (const column of designs.columns.values()) column.values = joined(column, fresh.get(column.name) ?? {...column, values: missing(column, rows)});
  }
  designs.rows += rows;
  study.rows += rows;
  Object.assign(study, {searched, screened: screened ?? study.screened});
  const best = new Set(front),
    marks = columnOf("front").values;
  for (let row = 0; row < designs.rows; row++) marks[row] = best.has(designId(row)) ? 1 : 0;
  sortColumns();
  findFronts();
  if (!view.chosen) view.open = knee(study);
  refresh();
  drawHead();
  tellLive();
}

function missing(column, rows) {
  return column.type === "ids" ? Array(rows).fill("") : column.type === "u1" ? new Uint8Array(rows) : new Float64Array(rows).fill(NaN);
}

// Values of a column with those of more rows; words and levels that are new come after the known ones.
function joined(column, more) {
  if (column.type === "ids") return [...column.values, ...more.values];
  let values = more.values;
  if (column.words && more.words) {
    const codes = more.words.map(word => (column.words.includes(word) ? column.words.indexOf(word) : column.words.push(word) - 1));
    values = Float32Array.from(values, code => (Number.isNaN(code) ? NaN : codes[code]));
  }
  if (column.levels) column.levels = more.levels ? [...new Set([...column.levels, ...more.levels])].sort((a, b) => a - b) : null;
  const all = new (column.values.constructor)(column.values.length + values.length);
  all.set(column.values);
  all.set(values, column.values.length);
  return all;
}
