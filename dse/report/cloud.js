// Thousands of designs behind the front: a canvas under Plotly's picture, which keeps axes, legend and the front itself.

const CLOUD = 1500; // designs off the front from which on a canvas draws them; each would be an element of SVG
const SHADES = 64; // colours of a scale on the canvas
const CLICK = 4; // pixels that a pointer may move in a click

// Takes what is for the canvas out of the traces, of which the legend and the scale of colours stay.
function startCloud(plot, traces, layout) {
  plot.clouds = traces.flatMap((trace, curve) => (trace.cloud ? [{...trace, curve, rows: plot.rowsOf[curve]}] : []));
  if (!plot.clouds.length) return plot.querySelector(":scope > .cloud")?.remove();
  for (const key of ["x", "y"]) {
    const axis = layout[`${key}axis`];
    axis.showgrid = false; // the canvas draws it, below the designs
    if (axis.autorange) Object.assign(axis, {autorange: false, range: wholeRange(traces, key, axis.type === "log")});
  }
  for (const {curve, marker} of plot.clouds) {
    plot.rowsOf[curve] = [];
    const {color} = marker;
    Object.assign(traces[curve], {x: [null], y: [null], marker: {...marker, color: Array.isArray(color) ? [color[0]] : color}});
  }
}

function wholeRange(traces, key, log) {
  let low = Infinity,
    high = -Infinity;
  for (const trace of traces)
    for (const raw of trace[key]) {
      const value = log ? Math.log10(raw) : raw;
      if (value < low) low = value;
      if (value > high && value < Infinity) high = value;
    }
  const margin = 0.04 * (high - low || Math.abs(high) || 1);
  return [low - margin, high + margin];
}

function paintCloud(plot) {
  if (!plot.clouds?.length || !plot._fullLayout) return;
  let canvas = plot.querySelector(":scope > .cloud");
  if (!canvas) {
    canvas = h("canvas", {class: "cloud"});
    plot.prepend(canvas);
  }
  const {xaxis, yaxis} = plot._fullLayout,
    ratio = devicePixelRatio || 1,
    size = [xaxis._length, yaxis._length];
  Object.assign(canvas, {width: Math.round(size[0] * ratio), height: Math.round(size[1] * ratio)});
  canvas.style.cssText = `left:${xaxis._offset}px;top:${yaxis._offset}px;width:${size[0]}px;height:${size[1]}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawGrid(pen, xaxis, yaxis);
  let drawn = 0;
  for (const cloud of plot.clouds) {
    place(cloud, xaxis, yaxis);
    if (plot._fullData[cloud.curve].visible === true) drawn += stamp(pen, cloud, size, ratio);
  }
  canvas.dataset.drawn = drawn;
}

function drawGrid(pen, xaxis, yaxis) {
  pen.fillStyle = ink("--line");
  for (const {x} of xaxis._vals) pen.fillRect(Math.round(xaxis.l2p(x)), 0, 1, yaxis._length);
  for (const {x} of yaxis._vals) pen.fillRect(0, Math.round(yaxis.l2p(x)), xaxis._length, 1);
}

// Pixels of the designs of a cloud within the axes.
function place(cloud, xaxis, yaxis) {
  cloud.at = Float32Array.from({length: 2 * cloud.rows.length}, (_, i) =>
    i % 2 ? yaxis.d2p(cloud.y[i >> 1]) : xaxis.d2p(cloud.x[i >> 1]),
  );
}

function stamp(pen, cloud, [width, height], ratio) {
  const {at, marker} = cloud,
    radius = marker.size / 2,
    marks = new Map();
  let drawn = 0;
  pen.globalAlpha = cloud.opacity ?? 1;
  const colour = colourOf(marker);
  for (let i = 0; i < cloud.rows.length; i++) {
    const x = at[2 * i],
      y = at[2 * i + 1];
    if (!(x > -radius && x < width + radius && y > -radius && y < height + radius)) continue;
    const of = colour(i);
    if (!marks.has(of)) marks.set(of, markOf(of, marker.symbol, radius, ratio));
    const mark = marks.get(of);
    pen.drawImage(mark, x - mark.width / ratio / 2, y - mark.height / ratio / 2, mark.width / ratio, mark.height / ratio);
    drawn++;
  }
  pen.globalAlpha = 1;
  return drawn;
}

function markOf(colour, symbol, radius, ratio) {
  const side = Math.ceil(2 * (radius + 1) * ratio),
    mark = new OffscreenCanvas(side, side),
    pen = mark.getContext("2d"),
    r = radius * ratio;
  pen.fillStyle = colour;
  pen.translate(side / 2, side / 2);
  if (symbol === "diamond") pen.rotate(Math.PI / 4);
  pen.beginPath();
  if (symbol === "diamond") pen.rect(-r * 0.9, -r * 0.9, 1.8 * r, 1.8 * r);
  else pen.arc(0, 0, r, 0, 2 * Math.PI);
  pen.fill();
  return mark;
}

// Colour of the i-th design: one for all, its own, or of a scale.
function colourOf({color, colorscale, cmin, cmax}) {
  if (!Array.isArray(color)) return () => color;
  if (!colorscale) return i => color[i];
  const shades = Array.from({length: SHADES}, (_, i) => shadeAt(colorscale, i / (SHADES - 1))),
    step = (SHADES - 1) / (cmax - cmin || 1);
  return i => shades[Math.min(Math.max(Math.round((color[i] - cmin) * step), 0), SHADES - 1)] ?? ink("--ghost");
}

function shadeAt(scale, share) {
  const upper = Math.max(1, scale.findIndex(([at]) => at >= share)),
    [[from, low], [to, high]] = [scale[upper - 1], scale[upper]],
    channel = (colour, i) => parseInt(colour.slice(1 + 2 * i, 3 + 2 * i), 16);
  return `rgb(${[0, 1, 2].map(i => Math.round(channel(low, i) + ((share - from) / (to - from)) * (channel(high, i) - channel(low, i)))).join(" ")})`;
}

// The design of a cloud nearest to a place within the axes, if a mark of it is there.
function rowInCloud(plot, x, y) {
  let found = null,
    best = Infinity;
  for (const {at, rows, marker, curve} of plot.clouds ?? []) {
    if (!at || plot._fullData[curve].visible !== true) continue;
    const reach = (marker.size / 2 + 1) ** 2;
    for (let i = 0; i < rows.length; i++) {
      const far = (at[2 * i] - x) ** 2 + (at[2 * i + 1] - y) ** 2;
      if (far <= reach && far < best) [found, best] = [rows[i], far];
    }
  }
  return found;
}

// Plotly knows nothing of what the canvas holds: clicks and tips there are the page's.
function wireCloud(plot) {
  paintCloud(plot);
  if (plot.dataset.clouded === plot.dataset.kind) return;
  plot.dataset.clouded = plot.dataset.kind;
  plot.on("plotly_afterplot", () => paintCloud(plot));
  plot.on("plotly_relayouting", () => paintCloud(plot));
  let pressed = null;
  const inside = event => event.target.closest?.(".nsewdrag") && plot.clouds?.length > 0;
  plot.onpointerdown = event => (pressed = inside(event) ? event : null);
  plot.onpointermove = event => {
    if (!inside(event)) return;
    const row = rowUnder(plot, event);
    if (row !== null && !isFront(row)) designTip(event, row);
    else if (row === null) hideTip();
  };
  onpointerup = event => {
    const still = pressed && Math.hypot(event.clientX - pressed.clientX, event.clientY - pressed.clientY) < CLICK;
    pressed = null;
    const row = still ? rowUnder(plot, event) : null;
    if (row !== null) openDesign(row);
  };
}

// The canvas as an image below the traces, for a picture of the plot that is saved.
function cloudImage(plot) {
  const canvas = plot.querySelector(":scope > .cloud");
  if (!canvas) return [];
  const place = {xref: "paper", yref: "paper", x: 0, y: 1, sizex: 1, sizey: 1, sizing: "stretch", layer: "below"};
  return [{source: canvas.toDataURL(), ...place}];
}
