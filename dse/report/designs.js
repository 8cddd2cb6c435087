// The designs in columns, and the view of them that every picture shares: which are in scope, which are picked, which is open.

const designs = {rows: 0, columns: new Map(), studies: [], knobs: [], metrics: [], robust: [], objectives: [], data: null};

const view = {
  scope: "feasible", // front, feasible or all
  ranges: new Map(), // by column: [low, high] that a design must be within
  marked: new Set(), // rows on the shortlist
  onlyMarked: false,
  open: -1, // the row whose details are shown
  mask: new Uint8Array(0), // rows that pass
  passed: 0,
};

function takeDesigns(data) {
  Object.assign(BOUNDS, data.bounds);
  Object.assign(NAMES, data.names);
  UNIT.prefixes = data.prefixes;
  UNIT.scaled = new Set(data.scaled);
  Object.assign(designs, {data, rows: data.rows, studies: data.studies, columns: new Map()});
  for (const packed of data.columns) designs.columns.set(packed.name, {...packed, values: unpacked(packed), data: null});
  sortColumns();
  findFronts();
}

// Columns by what they are.
function sortColumns() {
  designs.knobs = [...designs.columns.values()].filter(column => column.kind === "knob");
  designs.metrics = [...designs.columns.values()].filter(column => column.kind === "metric");
  designs.robust = [...designs.columns.values()].filter(column => column.kind === "robust");
  const wanted = new Set(designs.studies.flatMap(study => Object.keys(study.objectives)));
  designs.objectives = [...wanted].map(columnOf).filter(Boolean);
}

const KINDS = {f4: Float32Array, f8: Float64Array, i2: Int16Array, u1: Uint8Array};

// Numbers; words as codes; what is not there is NaN.
function unpacked(column) {
  if (column.type === "ids") return column.data.split(" ");
  const values = new KINDS[column.type](decoded(column.data).buffer);
  if (column.levels) return Float64Array.from(values, code => (code < 0 ? NaN : column.levels[code]));
  if (column.words) return Float32Array.from(values, code => (code < 0 ? NaN : code));
  return values;
}

function columnOf(key) {
  return designs.columns.get(key);
}

function valueOf(key, row) {
  return columnOf(key)?.values[row] ?? NaN;
}

function textOf(column, row) {
  const value = column.values[row];
  if (Number.isNaN(value)) return "–";
  return column.words ? column.words[value] : quantity(value, column.unit);
}

function studyOf(row) {
  return designs.studies[columnOf("study").values[row]];
}

function isFront(row) {
  return columnOf("front").values[row] === 1;
}

// The id of a design: the beginning of its key, which commands take.
function designId(row) {
  return columnOf("design").values[row];
}

function label(row) {
  return (designs.studies.length > 1 ? `${studyOf(row).name} ` : "") + designId(row);
}

function linkedRow() {
  const wanted = new URLSearchParams(location.hash.slice(1)).get("design") ?? "",
    found = [];
  if (wanted)
    for (let row = 0; row < designs.rows; row++)
      if (label(row).startsWith(wanted) || wanted.startsWith(label(row))) found.push(row);
  return found.length === 1 ? found[0] : -1;
}

// Rows of a study stand with its front first, best first objective first; a rank changes as the study goes on.
function rankOf(row) {
  const place = isFront(row) ? frontOf(studyOf(row)).indexOf(row) : row - studyOf(row).start;
  return `rank ${(place + 1).toLocaleString("en-US")}`;
}

// What a design is, whatever its row: so that it is found again when the data are newer.
function signature(row) {
  return JSON.stringify([studyOf(row).name, ...designs.knobs.map(knob => textOf(knob, row) + knob.values[row])]);
}

function rowOf(wanted) {
  for (let row = 0; row < designs.rows; row++) if (signature(row) === wanted) return row;
  return -1;
}

function inScope(row) {
  if (view.scope === "front") return isFront(row);
  return view.scope === "all" || columnOf("feasible").values[row] === 1;
}

function applyView() {
  const mask = new Uint8Array(designs.rows);
  const bounds = [...view.ranges].map(([key, range]) => [columnOf(key)?.values, ...range]).filter(([values]) => values);
  let passed = 0;
  for (let row = 0; row < mask.length; row++) {
    const within =
      inScope(row) &&
      bounds.every(([values, low, high]) => values[row] >= low && values[row] <= high) &&
      (!view.onlyMarked || view.marked.has(row));
    if (within) {
      mask[row] = 1;
      passed++;
    }
  }
  Object.assign(view, {mask, passed});
}

function picked() {
  const rows = [];
  for (let row = 0; row < designs.rows; row++) if (view.mask[row]) rows.push(row);
  return rows;
}

function extent(column, rows = null) {
  let low = Infinity,
    high = -Infinity;
  const look = row => {
    const v = column.values[row];
    if (v < low) low = v;
    if (v > high) high = v;
  };
  if (rows) rows.forEach(look);
  else for (let row = 0; row < designs.rows; row++) look(row);
  return [low, high];
}

function frontOf(study) {
  return study.front;
}

// Rows of each front, the best first objective first.
function findFronts() {
  for (const study of designs.studies) {
    const rows = [],
      [[goal, direction]] = Object.entries(study.objectives),
      {values} = columnOf(goal) ?? {values: []},
      sign = direction === "max" ? -1 : 1;
    for (let row = study.start; row < study.start + study.rows; row++) if (isFront(row)) rows.push(row);
    study.front = rows.sort((a, b) => sign * (values[a] - values[b]) || a - b);
  }
}

// Objectives scaled to their study's front: 0 is the best value on it, 1 the worst.
function scaledObjectives(study) {
  const front = frontOf(study);
  const axes = Object.entries(study.objectives).map(([key, direction]) => {
    const column = columnOf(key),
      [low, high] = extent(column, front),
      span = high - low || 1;
    return row => (direction === "max" ? high - column.values[row] : column.values[row] - low) / span;
  });
  return row => axes.map(axis => axis(row));
}

// The design nearest to the best corner of its front.
function knee(study) {
  const at = scaledObjectives(study),
    away = row => Math.hypot(...at(row));
  return frontOf(study).reduce((best, row) => (best < 0 || away(row) < away(best) ? row : best), -1);
}

function distances(row, study, rows) {
  const at = scaledObjectives(study),
    here = at(row);
  return new Map(rows.filter(r => r !== row).map(r => [r, Math.hypot(...at(r).map((v, i) => v - here[i]))]));
}

// The designs of the front nearest to one, in objectives scaled to the front.
function neighbours(row, many) {
  const study = studyOf(row),
    away = distances(row, study, frontOf(study));
  return [...away.keys()]
    .sort((a, b) => away.get(a) - away.get(b))
    .slice(0, many)
    .sort((a, b) => a - b);
}

function nearestTo(row, study, rows) {
  const away = distances(row, study, rows);
  return [...away.keys()].reduce((best, r) => (best < 0 || away.get(r) < away.get(best) ? r : best), -1);
}

function range(key) {
  return view.ranges.get(key);
}

function setRange(key, bounds) {
  if (bounds) view.ranges.set(key, bounds);
  else view.ranges.delete(key);
}

function rangeText(column, [low, high]) {
  if (column.words) return column.words.filter((_, code) => code >= low && code <= high).join(", ");
  return `${quantity(low, column.unit)} to ${quantity(high, column.unit)}`;
}
