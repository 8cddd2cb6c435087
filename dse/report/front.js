// The front: designs over two columns, or three, coloured by a fourth.

const MOST_WORDS = 16; // words of a column up to which each has an entry in the legend
const SPACE_POINTS = 4000; // designs off the front in the 3-D picture; of more, an even choice

Object.assign(view, {x: "", y: "", z: "", colour: "", dims: "2", drag: "select", zoom: "front"});

function startFront() {
  const [study] = designs.studies,
    goals = Object.keys(study.objectives).filter(columnOf);
  const ranked = Object.entries(study.importance[goals[0]] ?? {})
    .sort((a, b) => b[1] - a[1])
    .map(([key]) => key);
  const known = key => (key && columnOf(key) ? key : null);
  view.x = known(view.x) ?? (goals[1] ? goals[0] : ranked[0]) ?? goals[0] ?? "";
  view.y = known(view.y) ?? goals[1] ?? goals[0] ?? "";
  view.z = known(view.z) ?? goals[2] ?? designs.metrics.map(m => m.name).find(key => key !== view.x && key !== view.y) ?? "";
  const chips = designs.studies.length === 1 && columnOf("chip")?.words.length > 1 ? "chip" : null;
  view.colour = known(view.colour) ?? chips ?? (goals[2] && designs.studies.length === 1 ? goals[2] : "");
  if (goals.length < 3) view.dims = "2";
}

function frontTools() {
  const goals = designs.objectives.map(c => c.name);
  const others = [...designs.metrics.map(c => c.name).filter(key => !goals.includes(key)), ...designs.knobs.map(c => c.name)];
  const options = [...goals, ...others].map(key => [key, called(key)]);
  const set = key => value => {
    view[key] = value;
    view.zoom = "front";
    refresh();
  };
  const colour = [
    ["", designs.studies.length > 1 ? "study" : "front"],
    ...options,
    ...(columnOf("limit").words.length ? [["limit", "limit"]] : []),
  ];
  return [
    select("across", options, view.x, set("x")),
    select("up", options, view.y, set("y")),
    view.dims === "3" && select("deep", options, view.z, set("z")),
    select("colour", colour, view.colour, value => {
      view.colour = value;
      refresh();
    }),
    goals.length > 2 &&
      segments(
        "Dimensions",
        [
          ["2", "2-D"],
          ["3", "3-D"],
        ],
        view.dims,
        value => {
          view.dims = value;
          refresh();
        },
      ),
    view.dims === "2" &&
      segments(
        "Drag",
        [
          ["select", "Select", "Drag a box to filter every view"],
          ["zoom", "Zoom", "Drag a box to look closer, double-click to come back"],
        ],
        view.drag,
        value => {
          view.drag = value;
          refresh();
        },
      ),
    segments(
      "Extent",
      [
        ["front", "Near", "What is near the front"],
        ["all", "All", "Every design in scope"],
      ],
      view.zoom,
      value => {
        view.zoom = value;
        refresh();
      },
    ),
    pointTools(),
    pictureButton("Front", () => document.querySelector("#front .plot")),
  ];
}

// What stands around the picture, which has its room before Plotly has started.
function frameFront() {
  const many = designs.studies.length > 1;
  const fronts = designs.studies.some(study => frontOf(study).length);
  const caption = !fronts
    ? "No design is feasible: these break a limit or a constraint. Colour by limit to see which."
    : view.dims === "2"
      ? "Click a design to open it, drag a box to filter; arrow keys go from point to point."
      : "Click a design to open it, drag to turn; arrow keys go from point to point.";
  const section = document.getElementById("front");
  let plot = section.querySelector(".plot");
  if (!plot) {
    plot = h("div", {class: "plot"});
    section.append(plot);
    startKeys(plot);
  }
  for (const old of section.querySelectorAll(":scope > .heading, :scope > .own")) old.remove();
  const bands = view.dims === "2" ? bandCaption() : "";
  section.prepend(heading(many ? "Fronts" : "Front", caption + bands, frontTools()), ownForm() ?? "");
  return plot;
}

function drawFront() {
  const plot = frameFront();
  const kind = view.dims === "3" ? "3" : "2";
  if (kind === "3" && !engines["plotly-space"]) {
    loadEngine("plotly-space").then(() => refresh());
    return;
  }
  if (plot.dataset.kind !== kind) {
    // Plotly does not turn one kind of plot into the other well
    engineOf(plot).purge(plot);
    plot.engine = kind === "3" ? engines["plotly-space"] : Plotly;
    plot.dataset.kind = kind;
    plot.dataset.wired = "";
  }
  const [x, y, z] = [view.x, view.y, view.z].map(columnOf);
  if (!x || !y) return;
  const axes = frontAxes();
  const {traces, rows} = frontTraces(axes, kind);
  plot.rowsOf = rows;
  const layout = kind === "3" ? spaceLayout(axes) : planeLayout(axes);
  startCloud(plot, kind === "2" ? traces : [], layout);
  draw(plot, traces, layout).then(() => {
    wireFront(plot);
    wireCloud(plot);
  });
}

// The axes of the front: those of one quantity have one unit.
function frontAxes() {
  const columns = [view.x, view.y, ...(view.dims === "3" ? [view.z] : [])].map(columnOf);
  return columns.map(column => scatterAxis(column, columns));
}

// Values of a column in a unit for reading; words stay codes with ticks.
function scatterAxis(column, others = []) {
  const most = Math.min(...[column, ...others].filter(one => one.unit === column.unit).map(one => Math.max(...extent(one).map(Math.abs)))),
    [scale, unit] = column.words ? [1, ""] : scaled(most, column.unit);
  const goal = directionOf(column.name);
  const apart = innerWidth < 560 ? "\n" : "  "; // on a phone the title has no room beside it
  const hint = goal ? apart + (goal === "max" ? "better →" : "← better") : ""; // along the title, which stands upright on the left
  const short = called(column.name) + (unit ? ` [${unit}]` : "");
  return {column, scale, short, title: short + hint, at: rows => Float64Array.from(rows, row => column.values[row] / scale)};
}

function frontTraces(axes, kind) {
  const out = [],
    off = [],
    front = designs.studies.map(() => []),
    owner = columnOf("study").values;
  for (let row = 0; row < designs.rows; row++) {
    if (view.mask[row]) (isFront(row) ? front[owner[row]] : off).push(row);
    else if (inScope(row)) out.push(row);
  }
  const traces = [],
    rows = [],
    colour = columnOf(view.colour),
    flat = kind === "2",
    type = flat ? "scatter" : "scatter3d",
    clouded = flat && off.length + out.length > CLOUD;
  const scatter = (name, of, marker, more = {}) => {
    const points = {x: axes[0].at(of), y: axes[1].at(of), ...(flat ? {} : {z: axes[2].at(of)})};
    traces.push({type, mode: "markers", name: plain(name), ...points, marker, hoverinfo: "none", ...more});
    rows.push(of);
  };
  const paint = (of, fallback) => (colour ? coloured(colour, of) : {color: fallback});
  const addBands = bands => {
    traces.push(...bands);
    rows.push(...bands.map(() => []));
  };
  const thin = of => (flat ? of : of.filter((_, i) => i % Math.ceil(of.length / SPACE_POINTS) === 0));
  const size = (flat ? 1 : 0.55) * (off.length < 500 ? 1.4 : 1);
  if (out.length)
    scatter(
      `filtered out (${out.length.toLocaleString("en-US")})`,
      thin(out),
      {size: 4 * size, color: ink("--ghost")},
      {opacity: flat ? 0.5 : 0.25, cloud: clouded},
    );
  const words = colour?.words?.length <= MOST_WORDS ? [...colour.words.keys(), NaN] : null;
  const split = of => words?.map(code => [code, of.filter(row => Object.is(colour.values[row], code))]).filter(([, some]) => some.length);
  const onFront = new Set(words ? front.flat().map(row => colour.values[row]) : []);
  for (const [code, some] of split(off) ?? [])
    scatter(
      `${colour.words[code] ?? "none"} (${some.length.toLocaleString("en-US")})`,
      thin(some),
      {size: 5 * size, color: wordColour(code), symbol: wordSymbol(code)},
      {opacity: flat ? 0.85 : 0.6, showlegend: !onFront.has(code), legendgroup: String(code), cloud: clouded},
    );
  if (off.length && !words)
    scatter(
      `other designs (${off.length.toLocaleString("en-US")})`,
      thin(off),
      {size: 5 * size, ...paint(off.length ? thin(off) : [], ink("--dot"))},
      {opacity: flat ? 0.8 : 0.5, cloud: clouded},
    );
  if (flat) addBands(frontBandTraces(axes));
  if (flat && (!colour || words)) frontLines(type, front, axes, traces, rows);
  front.forEach((of, index) => {
    if (!of.length) return;
    const title = designs.studies.length > 1 ? `front of ${designs.studies[index].name}` : "front";
    const line = flat ? {line: {width: 1.2, color: ink("--paper")}} : {line: {width: 0}};
    for (const [code, some] of split(of) ?? [])
      scatter(
        `${designs.studies.length > 1 ? `${title}: ` : ""}${colour.words[code] ?? "none"} (${some.length} on the front)`,
        some,
        {size: 10 * (flat ? 1 : 0.6), color: wordColour(code), symbol: wordSymbol(code), ...line},
        {opacity: 1, legendgroup: String(code)},
      );
    if (words) return;
    scatter(
      `${title} (${of.length})`,
      of,
      {size: 10 * (flat ? 1 : 0.6), ...paint(of, frontColour(index)), ...line},
      {opacity: 1},
    );
  });
  const ring = (of, variable, width) =>
    of.length &&
    scatter(
      "",
      of,
      flat
        ? {size: 17, color: "rgba(0,0,0,0)", line: {width, color: ink(variable)}}
        : {size: 11, color: ink(variable), symbol: "circle-open"},
      {showlegend: false},
    );
  for (const [name, row] of designs.studies.flatMap(study => study.points)) {
    if (row === null || !inScope(row)) continue;
    scatter(
      plain(name),
      [row],
      {size: flat ? 15 : 8, symbol: flat ? "star" : "diamond", color: ink("--mark"), line: {width: 1, color: ink("--ink")}},
      {mode: "markers+text", text: [plain(name)], textposition: "top center", textfont: {size: 12, color: ink("--ink")}, showlegend: false},
    );
  }
  if (flat) pointTraces(axes, traces, rows);
  ring([...view.marked], "--mark", 2);
  if (flat && view.open >= 0) addBands(bandTraces([view.open], axes, "--ink", 1.5));
  ring(view.open >= 0 ? [view.open] : [], "--ink", 2.5);
  if (colour && !colour.words) colourBar(traces, colour);
  return {traces, rows};
}

// Of a word's code: its colour, and a mark that differs where colours come round again.
function wordColour(code) {
  return Number.isNaN(code) ? ink("--ghost") : series(code);
}

function wordSymbol(code) {
  return code >= SERIES.length ? "diamond" : "circle";
}

function frontColour(index) {
  if (columnOf(view.colour)?.words) return ink("--soft");
  return designs.studies.length > 1 ? series(index) : ink("--accent");
}

// A staircase: what some design of the front reaches at least, of the one objective for each value of the other.
function frontLines(type, front, axes, traces, rows) {
  front.forEach((of, index) => {
    const {objectives} = designs.studies[index],
      goals = Object.keys(objectives);
    const shown = axes.every(axis => goals.includes(axis.column.name)) && axes[0].column !== axes[1].column;
    if (goals.length !== 2 || of.length < 2 || !shown) return;
    const sorted = [...of].sort((a, b) => axes[0].column.values[a] - axes[0].column.values[b]);
    traces.push({
      type,
      mode: "lines",
      x: axes[0].at(sorted),
      y: axes[1].at(sorted),
      hoverinfo: "skip",
      showlegend: false,
      line: {width: 1.2, color: frontColour(index), shape: objectives[axes[0].column.name] === "max" ? "vh" : "hv"},
    });
    rows.push(sorted);
  });
}

function coloured(column, rows) {
  if (column.words)
    return {color: rows.map(row => (Number.isNaN(column.values[row]) ? ink("--ghost") : series(column.values[row])))};
  const [scale] = scaled(Math.max(...extent(column).map(Math.abs)), column.unit);
  const shown = [];
  for (let row = 0; row < designs.rows; row++) if (inScope(row)) shown.push(row);
  const [low, high] = extent(column, shown);
  return {color: Array.from(rows, row => column.values[row] / scale), colorscale: spectrum(), cmin: low / scale, cmax: high / scale};
}

function colourBar(traces, column) {
  const [, unit] = scaled(Math.max(...extent(column).map(Math.abs)), column.unit);
  const bearer = traces.findLast(trace => trace.marker?.colorscale);
  if (!bearer) return;
  bearer.marker.showscale = true;
  bearer.marker.colorbar = {
    thickness: 8,
    len: 0.7,
    outlinewidth: 0,
    tickfont: {size: 11, color: ink("--soft")},
    title: {text: plain(called(column.name) + (unit ? ` [${unit}]` : "")), side: "right", font: {size: 11, color: ink("--soft")}},
  };
}

function planeLayout(axes) {
  const [x, y] = axes.map(axis => planeAxis(axis));
  return {
    xaxis: x,
    yaxis: y,
    dragmode: view.drag === "select" ? "select" : "zoom",
    selections: [],
    selectionrevision: Math.random(),
    uirevision: [view.x, view.y, view.zoom, designs.rows].join(),
    newselection: {line: {color: ink("--warm"), width: 1, dash: "solid"}},
    margin: {l: 60, r: 16, t: 34, b: 48},
  };
}

function planeAxis({column, scale, title}) {
  const style = axisStyle(title);
  if (column.words)
    return {
      ...style,
      tickvals: column.words.map((_, code) => code),
      ticktext: column.words.map(plain),
      range: [-0.5, column.words.length - 0.5],
    };
  const log = spansDecades(column),
    window = view.zoom === "front" ? frontWindow(column, log) : null,
    kind = log ? {type: "log", dtick: "D2"} : {};
  if (window) return {...style, ...kind, range: withPoints(window, column, log).map(value => (log ? Math.log10(value / scale) : value / scale))};
  const doubled = doubling(column);
  return doubled
    ? {...style, type: "log", tickvals: doubled.map(v => v / scale), ticktext: doubled.map(v => number(v / scale))}
    : {...style, ...kind, autorange: true};
}

// A window that has the points beside the designs in it too.
function withPoints([from, to], column, log) {
  const more = shownPoints([view.x, view.y]).map(point => point.metrics[column.name]),
    [low, high] = [Math.min(from, to, ...more), Math.max(from, to, ...more)],
    edge = 0.05 * (high - low),
    ends = !more.length ? [low, high] : log ? [low / 1.1, high * 1.1] : [low - edge, high + edge];
  return from <= to ? ends : ends.reverse();
}

// Whether designs on the fronts lie along a column as far apart as on an axis of lines that is logarithmic.
function spansDecades(column) {
  const points = shownPoints([view.x, view.y]).map(point => point.metrics[column.name] ?? NaN),
    [front, best] = extent(column, designs.studies.flatMap(frontOf)),
    [low, high] = [Math.min(front, ...points.filter(Number.isFinite)), Math.max(best, ...points.filter(Number.isFinite))];
  return Boolean(directionOf(column.name)) && logarithmic(column, low, high);
}

// The values of a knob that doubles from one to the next.
function doubling(column) {
  const steps = column.levels?.filter(value => value > 0) ?? [];
  return steps.length > 3 && steps.every((value, i) => !i || Math.abs(value / steps[i - 1] - 2) < 1e-9) ? steps : null;
}

// The span of the fronts and some more on the worse side: half as much again, and a quarter of all designs at least; in
// factors where the axis is logarithmic.
function frontWindow(column, log) {
  const rows = designs.studies.flatMap(frontOf),
    goal = directionOf(column.name);
  if (rows.length < 2 || !goal) return null;
  const shown = [],
    map = log ? Math.log : value => value;
  for (let row = 0; row < designs.rows; row++)
    if (inScope(row) && (!log || column.values[row] > 0)) shown.push(map(column.values[row]));
  shown.sort((a, b) => (goal === "max" ? b - a : a - b));
  const [low, high] = extent(column, rows).map(map),
    span = high - low || Math.abs(high) || 1,
    quarter = shown[shown.length >> 2],
    worst = shown.at(-1);
  const [best, end] =
    goal === "max"
      ? [high, Math.max(Math.min(low - span * 0.6, quarter), worst)]
      : [low, Math.min(Math.max(high + span * 0.6, quarter), worst)];
  const edge = 0.05 * (best - end);
  return (goal === "max" ? [end - edge, best + edge] : [best + edge, end - edge]).map(log ? Math.exp : value => value);
}

function spaceLayout(axes) {
  const axis = one => ({
    ...planeAxis({...one, title: one.short}),
    backgroundcolor: "rgba(0,0,0,0)",
    showspikes: false,
    nticks: 6,
  });
  const camera = {eye: {x: 1.75, y: 1.75, z: 0.9}, center: {x: 0, y: 0, z: -0.14}};
  return {
    scene: {xaxis: axis(axes[0]), yaxis: axis(axes[1]), zaxis: axis(axes[2]), aspectmode: "cube", camera, uirevision: "camera"},
    uirevision: "camera",
    margin: {l: 0, r: 0, t: 30, b: 0},
  };
}

// The design under the pointer: of marks that cover it those of the front, which lie above, and of these the nearest. Plotly takes
// all marks that cover it for equally near.
function rowUnder(plot, pointer) {
  const box = plot.getBoundingClientRect(),
    {xaxis, yaxis} = plot._fullLayout,
    [x, y] = [pointer.clientX - box.left - xaxis._offset, pointer.clientY - box.top - yaxis._offset];
  let found = rowInCloud(plot, x, y),
    best = found === null ? Infinity : 1e3; // what is on the front lies above
  plot.rowsOf.forEach((rows, curve) => {
    const trace = plot.data[curve];
    if (plot._fullData[curve].visible !== true || !trace.mode?.includes("markers")) return;
    rows.forEach((row, i) => {
      const far = Math.hypot(xaxis.d2p(trace.x[i]) - x, yaxis.d2p(trace.y[i]) - y),
        rank = far + (isFront(row) ? 0 : 1e3);
      if (far > trace.marker.size / 2 + 1 || rank >= best) return;
      [found, best] = [row, rank];
    });
  });
  return found;
}

function wireFront(plot) {
  if (plot.dataset.wired) return;
  plot.dataset.wired = "yes";
  const rowAt = ({points: [point], event}) => {
    const row = plot.rowsOf[point.curveNumber]?.[point.pointNumber] ?? -1;
    return event && view.dims === "2" ? (rowUnder(plot, event) ?? row) : row;
  };
  plot.on("plotly_click", event => {
    const row = rowAt(event);
    if (row >= 0) openDesign(row);
  });
  let pointer = null; // in space, Plotly does not say where it is
  plot.addEventListener("pointermove", event => (pointer = event), {capture: true});
  plot.on("plotly_hover", event => {
    const row = rowAt(event);
    if (row >= 0) designTip(event.event ?? pointer, row);
  });
  plot.on("plotly_unhover", hideTip);
  plot.on("plotly_selected", event => {
    if (!event?.range?.x) return;
    for (const [{column, scale}, bounds] of frontAxes().map((axis, i) => [axis, [event.range.x, event.range.y][i]])) {
      const key = column.name,
        [a, b] = bounds.map(value => value * scale);
      setRange(key, [Math.min(a, b), Math.max(a, b)]);
    }
    refresh();
  });
}
