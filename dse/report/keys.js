// The designs of the front by keyboard: arrows move from point to point, Enter opens, and each is announced.

let spotted = -1; // row of the design that the keyboard is at

// Designs that arrows reach: those of the front that pass the filters, or all that do where no such one is on it.
function reachable() {
  const rows = [];
  for (let row = 0; row < designs.rows; row++) if (view.mask[row]) rows.push(row);
  const front = rows.filter(isFront);
  return front.length ? front : rows;
}

// Left and right go by the first axis, up and down by the second; designs without a value there are passed over.
function ranked(key) {
  const {values} = columnOf(key);
  return reachable()
    .filter(row => Number.isFinite(values[row]))
    .sort((a, b) => values[a] - values[b] || a - b);
}

const ARROWS = {ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", 1], ArrowDown: ["y", -1], Home: ["x", -Infinity], End: ["x", Infinity]};

function startKeys(plot) {
  Object.assign(plot, {tabIndex: 0});
  plot.setAttribute("role", "application");
  plot.setAttribute("aria-label", "Designs of the front: arrow keys go from one to the next, Enter opens it");
  plot.setAttribute("aria-describedby", "said");
  plot.addEventListener("keydown", event => {
    if (event.target !== plot || event.ctrlKey || event.metaKey || event.altKey) return;
    if (ARROWS[event.key]) moveTo(plot, ...ARROWS[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && spotted >= 0) openDesign(spotted);
    else if (event.key === "Escape") leaveSpot();
    else return;
    event.preventDefault();
  });
  plot.addEventListener("blur", leaveSpot);
}

function moveTo(plot, axis, by) {
  const rows = ranked(view[axis]);
  if (!rows.length) return;
  const place = rows.indexOf(spotted),
    last = rows.length - 1;
  const next = Number.isFinite(by) ? (place < 0 ? (by > 0 ? 0 : last) : place + by) : by > 0 ? last : 0;
  const to = Math.min(Math.max(next, 0), last);
  spotted = rows[to];
  const goals = designs.objectives.map(column => `${called(column.name)} ${textOf(column, spotted)}`);
  put("said", `Design ${label(spotted)}${isFront(spotted) ? ", on the front" : ""}, ${to + 1} of ${rows.length}: ${goals.join(", ")}`);
  showSpot(plot);
}

// A ring around the design, and its tip; in space there is no place of it on the page.
function showSpot(plot) {
  const axes = frontAxes();
  const at = ["x", "y"].map((axis, i) => {
    const {column, scale} = axes[i],
      along = plot._fullLayout[`${axis}axis`];
    return along && along._offset + along.d2p(column.values[spotted] / scale);
  });
  const ring = document.getElementById("spot"),
    box = plot.getBoundingClientRect();
  const drawn = view.dims === "2" && at.every(Number.isFinite);
  ring.hidden = !drawn;
  const [x, y] = drawn ? [box.left + at[0], box.top + at[1]] : [box.left + box.width / 2, box.top + box.height / 2];
  ring.style.transform = `translate(${x + scrollX}px, ${y + scrollY}px)`;
  designTip({clientX: x, clientY: y}, spotted);
}

function leaveSpot() {
  spotted = -1;
  document.getElementById("spot").hidden = true;
  hideTip();
}
