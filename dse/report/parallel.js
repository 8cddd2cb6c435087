// Parallel coordinates: a line a design over knobs and objectives. Drag along an axis to keep a range, click it to let go.

const LINES = 6000; // designs off the front that are drawn; of more, an even choice
const SLICE = 300; // lines drawn between two looks at the clock
const SPAN = 24; // milliseconds of drawing between two looks at the user
const PAD = {top: 82, bottom: 22, side: 60};
const NARROW = 98, // between axes, what their names need
  LEAST = 60, // between axes, what two rows of names and the values beside an axis need; on a narrower page they are scrolled
  NAME = 70; // of a row of names: four lines and a unit
const AXES = 12; // that are drawn before a user adds more: objectives, and the knobs that matter most to one of them
const ORDINAL = 14; // different numbers up to which each has its own place

Object.assign(view, {axes: null, painting: 0});

function startParallel() {
  const goals = designs.objectives.map(column => column.name);
  const varied = designs.knobs.filter(knob => {
    const [low, high] = extent(knob);
    return low < high;
  });
  const counts = key => Math.max(0, ...designs.studies.flatMap(study => Object.values(study.importance).map(of => of[key] ?? 0)));
  const first = [...varied]
    .sort((a, b) => counts(b.name) - counts(a.name))
    .slice(0, Math.max(2, AXES - goals.length));
  const usual = [...varied.filter(knob => first.includes(knob)).map(knob => knob.name), ...goals];
  view.axes = (view.axes ?? usual).filter(columnOf);
  if (!view.axes.length) view.axes = usual;
}

function drawParallel() {
  const section = document.getElementById("parallel");
  if (!section.querySelector("canvas")) wireParallel(section);
  section.querySelector(".lines").style.minWidth = `${2 * PAD.side + (view.axes.length - 1) * LEAST}px`;
  const others = [...designs.knobs, ...designs.metrics].filter(column => !view.axes.includes(column.name));
  const left = others.filter(column => {
    const [low, high] = extent(column);
    return designs.knobs.includes(column) && low < high;
  }).length;
  const add = select("add axis", [["", "…"], ...others.map(c => [c.name, called(c.name)])], "", value => {
    view.axes.push(value);
    refresh();
  });
  const remove = select("remove", [["", "…"], ...view.axes.map(key => [key, key])], "", value => {
    view.axes = view.axes.filter(key => key !== value);
    setRange(value, null);
    refresh();
  });
  section.querySelector(".heading")?.remove();
  section.prepend(
    heading(
      "Knobs and objectives",
      "A line is a design. Drag along an axis to keep a range, click the axis to let go; drag a name to move it." +
        (left ? ` ${left} knobs that matter less to the objectives are left out; add them at will.` : ""),
      add,
      view.axes.length > 2 && remove,
    ),
  );
  paintLines(section);
}

// Where values stand along an axis: 0 at the bottom, 1 on top. Objectives stand with their better end up.
function placeOf(key) {
  const column = columnOf(key),
    [low, high] = extent(column),
    down = directionOf(key) === "min";
  const turn = at => (down ? 1 - at : at),
    [scale, unit] = column.words ? [1, ""] : scaled(Math.max(Math.abs(low), Math.abs(high)), column.unit);
  const steps = column.words ? column.words.map((_, code) => code) : column.levels?.length <= ORDINAL ? column.levels : null;
  if (steps) {
    const index = new Map(steps.map((value, i) => [value, i])),
      last = Math.max(steps.length - 1, 1);
    return {
      column,
      down,
      steps,
      scale,
      unit,
      at: value => turn(index.get(value) / last),
      back: at => steps[Math.min(Math.max(Math.round(turn(at) * last), 0), last)] ?? steps[0],
      last,
    };
  }
  const log = logarithmic(column, low, high);
  const map = log ? Math.log : value => value,
    unmap = log ? Math.exp : value => value,
    span = map(high) - map(low) || 1;
  return {
    column,
    down,
    scale,
    unit,
    at: value => turn((map(value) - map(low)) / span),
    back: at => unmap(map(low) + turn(at) * span),
  };
}

// Whether an axis of these values is logarithmic: as the space says of a knob, or where they lie far apart.
function logarithmic(column, low, high) {
  return low > 0 && (column.log || high / low > 20);
}

function directionOf(key) {
  return designs.studies.map(study => study.objectives[key]).find(Boolean);
}

function parallelGeometry(section) {
  const box = section.querySelector(".lines").getBoundingClientRect();
  const places = view.axes.map(placeOf),
    step = (box.width - 2 * PAD.side) / Math.max(places.length - 1, 1);
  const names = step < NARROW ? 2 : 1, // rows of names: beside each other they would overlap
    top = PAD.top + (names - 1) * NAME;
  const height = box.height - top - PAD.bottom;
  return {box, places, height, x: i => PAD.side + i * step, y: at => top + (1 - at) * height, step, names, top};
}

// Lines of what is filtered out, then of what is picked, then of the front, in slices, so that the page stays at hand.
function paintLines(section) {
  const canvas = section.querySelector("canvas"),
    shape = parallelGeometry(section),
    ratio = window.devicePixelRatio || 1;
  canvas.width = shape.box.width * ratio;
  canvas.height = shape.box.height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.lineJoin = "round";
  const heights = shape.places.map(place =>
    Float32Array.from(place.column.values, value => {
      const at = place.at(value);
      return Number.isFinite(at) ? shape.y(at) : shape.box.height - 8; // a knob that does not count there: below the axis
    }),
  );
  section.shape = {...shape, heights};
  const job = ++view.painting,
    tasks = lineTasks();
  const work = () => {
    if (job !== view.painting) return;
    const until = performance.now() + SPAN;
    while (tasks.length && performance.now() < until) {
      const task = tasks[0];
      Object.assign(pen, task.pen);
      for (const row of task.rows.splice(0, SLICE)) strokeLine(pen, section.shape, row, task.colour);
      if (!task.rows.length) tasks.shift();
    }
    if (tasks.length) return requestAnimationFrame(work);
    canvas.dataset.painted = String(job);
    document.dispatchEvent(new Event("painted"));
  };
  drawAxes(section);
  work();
}

function lineTasks() {
  const out = [],
    off = [],
    front = [],
    colour = columnOf(view.colour),
    owner = columnOf("study").values;
  for (let row = 0; row < designs.rows; row++) {
    if (view.mask[row]) (isFront(row) ? front : off).push(row);
    else if (inScope(row)) out.push(row);
  }
  const [ghost, dot, mark, open] = ["--ghost", "--dot", "--mark", "--ink"].map(ink);
  const even = rows => rows.filter((_, i) => i % Math.ceil(rows.length / LINES) === 0);
  const paint = lineColours(colour, owner);
  const dense = Math.min(0.5, Math.max(0.03, 2.5 / Math.sqrt(off.length + 1)));
  return [
    {rows: even(out), pen: {lineWidth: 1, globalAlpha: 0.12}, colour: () => ghost},
    {rows: even(off), pen: {lineWidth: 1, globalAlpha: colour ? dense * 1.5 : dense}, colour: colour ? paint : () => dot},
    {rows: front, pen: {lineWidth: 1.5, globalAlpha: 0.85}, colour: paint},
    {rows: [...view.marked], pen: {lineWidth: 2.5, globalAlpha: 1}, colour: () => mark},
    {rows: view.open >= 0 ? [view.open] : [], pen: {lineWidth: 3, globalAlpha: 1}, colour: () => open},
  ].filter(task => task.rows.length);
}

function lineColours(column, owner) {
  if (!column) {
    const all = designs.studies.map((_, index) => frontColour(index));
    return row => all[owner[row]];
  }
  if (column.words) {
    const all = column.words.map((_, code) => series(code)),
      none = ink("--ghost");
    return row => all[column.values[row]] ?? none;
  }
  const shown = [];
  for (let row = 0; row < designs.rows; row++) if (inScope(row)) shown.push(row);
  const [low, high] = extent(column, shown),
    span = high - low || 1;
  const [first, middle, last] = spectrum();
  const between = at => (at < 0.5 ? mixed(first, middle, at) : mixed(middle, last, at));
  return row => between((column.values[row] - low) / span);
}

function mixed(a, b, at) {
  const part = Math.min(Math.max((at - a[0]) / 0.5, 0), 1);
  const parts = [1, 3, 5].map(i => [a[1], b[1]].map(text => parseInt(text.slice(i, i + 2), 16)));
  return `rgb(${parts.map(([p, q]) => Math.round(p + (q - p) * (part || 0))).join(",")})`;
}

function strokeLine(pen, shape, row, colour) {
  pen.strokeStyle = colour(row);
  pen.beginPath();
  shape.heights.forEach((heights, i) => (i ? pen.lineTo(shape.x(i), heights[row]) : pen.moveTo(shape.x(i), heights[row])));
  pen.stroke();
}

function drawAxes(section) {
  const {places, x, y, height, step, names, top} = section.shape;
  const most = names > 1 ? 90 : Math.max(step - 8, 90),
    wide = i => (i && i < places.length - 1 ? most : Math.min(most, 2 * PAD.side));
  const axes = places.map((place, i) => {
    const key = place.column.name,
      kept = range(key);
    const ends = kept && kept.map(value => place.at(nearestStep(place, value))).sort((a, b) => a - b);
    const half = place.steps ? 0.5 / Math.max(place.last, 1) : 0;
    return h(
      "div",
      {class: "axis", "data-axis": key, style: `left:${x(i)}px`},
      h(
        "div",
        {class: "axis-name", title: `${key}: ${place.column.doc}`, style: `max-width:${wide(i)}px;bottom:calc(100% - ${NAME * (1 + (names > 1 && i % 2))}px)`},
        name(key),
        directionOf(key) && h("i", {}, place.down ? " ↑ less" : " ↑ more"),
        place.unit && h("small", {}, place.unit),
      ),
      h("div", {class: "axis-line", style: `top:${top}px;height:${height}px`}),
      ticksOf(place).map(([at, text]) => h("span", {class: "tick", style: `top:${y(at)}px`}, text)),
      ends &&
        h("div", {
          class: "brush",
          style: `top:${y(Math.min(ends[1] + half, 1.02))}px;height:${Math.max((Math.min(ends[1] + half, 1.02) - Math.max(ends[0] - half, -0.02)) * height, 4)}px`,
        }),
    );
  });
  section.querySelector(".axes").replaceChildren(...axes);
}

function nearestStep(place, value) {
  return place.steps
    ? place.steps.reduce((best, step) => (Math.abs(step - value) < Math.abs(best - value) ? step : best))
    : value;
}

function ticksOf(place) {
  const {column, steps} = place;
  if (steps) {
    const every = Math.ceil(steps.length / 12);
    return steps
      .filter((_, i) => i % every === 0)
      .map(step => [place.at(step), column.words ? column.words[step] : number(step / place.scale, 3)]);
  }
  return [0, 0.25, 0.5, 0.75, 1].map(at => [at, number(place.back(at) / place.scale, 3)]);
}

function wireParallel(section) {
  section.append(h("div", {class: "sideways"}, h("div", {class: "lines"}, h("canvas"), h("div", {class: "axes"}))));
  const area = section.querySelector(".lines");
  area.addEventListener("pointerdown", event => {
    const key = event.target.closest(".axis")?.dataset.axis;
    if (!key) return;
    event.preventDefault();
    if (event.target.closest(".axis-name")) moveAxis(section, key, event);
    else brushAxis(section, key, event);
  });
  area.addEventListener("pointermove", event => {
    const row = event.buttons ? -1 : rowNear(section, event);
    if (row >= 0) designTip(event, row);
    else hideTip();
    area.style.cursor = row >= 0 ? "pointer" : "";
  });
  area.addEventListener("pointerleave", hideTip);
  area.addEventListener("click", event => {
    if (event.target.closest(".axis")) return;
    const row = rowNear(section, event);
    if (row >= 0) openDesign(row);
  });
}

function tracked(event, onmove, ondone) {
  const done = last => {
    removeEventListener("pointermove", onmove);
    removeEventListener("pointerup", done);
    ondone(last);
  };
  addEventListener("pointermove", onmove);
  addEventListener("pointerup", done);
}

function brushAxis(section, key, start) {
  const place = placeOf(key),
    {height, top: above} = section.shape;
  const at = event => {
    const top = section.querySelector(".lines").getBoundingClientRect().top;
    return Math.min(Math.max(1 - (event.clientY - top - above) / height, 0), 1);
  };
  const from = at(start),
    whole = event => Math.abs(at(event) - from) * height < 4;
  const keep = event => {
    const ends = [place.back(from), place.back(at(event))].sort((a, b) => a - b);
    setRange(key, whole(event) ? null : widened(place, ends));
    refresh();
  };
  tracked(
    start,
    event => {
      if (!whole(event)) keep(event);
    },
    keep,
  );
}

// Past the last value at an end of the axis, so that rounding loses nobody.
function widened(place, [low, high]) {
  if (place.steps) return [low, high];
  const [least, most] = extent(place.column),
    bit = (most - least) * 1e-6;
  return [low - bit, high + bit];
}

function moveAxis(section, key, start) {
  const axis = section.querySelector(`.axis[data-axis="${CSS.escape(key)}"]`),
    from = start.clientX;
  tracked(
    start,
    event => (axis.style.translate = `${event.clientX - from}px 0`),
    event => {
      const {x} = section.shape,
        to = event.clientX - section.querySelector(".lines").getBoundingClientRect().left,
        order = view.axes.filter(other => other !== key);
      const place = view.axes
        .map((_, i) => i)
        .reduce((best, i) => (Math.abs(x(i) - to) < Math.abs(x(best) - to) ? i : best), 0);
      order.splice(place, 0, key);
      view.axes = order;
      refresh();
    },
  );
}

// The picked design whose line is nearest to the pointer, the front first; -1 where none is near.
function rowNear(section, event) {
  const {x, heights} = section.shape,
    box = section.querySelector(".lines").getBoundingClientRect();
  const px = event.clientX - box.left,
    py = event.clientY - box.top,
    last = heights.length - 1;
  const left = view.axes.findIndex((_, i) => i < last && px >= x(i) && px <= x(i + 1));
  if (left < 0) return -1;
  const part = (px - x(left)) / (x(left + 1) - x(left));
  let best = -1,
    near = 6;
  for (let row = 0; row < designs.rows; row++) {
    if (!view.mask[row]) continue;
    const away = Math.abs(heights[left][row] * (1 - part) + heights[left + 1][row] * part - py) + (isFront(row) ? 0 : 3);
    if (away < near) {
      near = away;
      best = row;
    }
  }
  return best;
}
