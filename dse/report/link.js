// The end of the page's address holds the view: whoever opens it sees the same.

const PLAIN_KEYS = ["x", "y", "z", "colour", "dims", "zoom", "scope", "sort"];
let usual = {}; // of these keys, what a page opens with

function rememberUsual() {
  usual = Object.fromEntries(PLAIN_KEYS.map(key => [key, view[key]]));
}

function viewHash() {
  const state = new URLSearchParams();
  if (view.open >= 0 && view.chosen) state.set("design", label(view.open));
  for (const key of PLAIN_KEYS) if (view[key] !== usual[key]) state.set(key, view[key]);
  if (!view.up) state.set("down", "1");
  for (const [key, bounds] of view.ranges) state.set(`keep.${key}`, bounds.join("~"));
  if (view.marked.size) state.set("shortlist", [...view.marked].map(label).join("~"));
  if (view.onlyMarked) state.set("only", "1");
  for (const key of ["real", "bands"]) if (view[key]) state.set(key, "1");
  for (const {name: title, metrics} of view.own) state.append("own", [title, ...Object.entries(metrics).flat()].join("~"));
  return String(state);
}

let linking = 0;

// The address follows the view; browsers limit how often, so it waits for a moment of rest.
function followView() {
  clearTimeout(linking);
  linking = setTimeout(writeLink, 250);
}

function writeLink() {
  const hash = viewHash();
  if (hash === location.hash.slice(1)) return;
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}

// Takes the view that the address holds; what it names and the page has not is passed over.
function readLink() {
  const state = new URLSearchParams(location.hash.slice(1)),
    chosen = linkedRow();
  for (const key of ["x", "y", "z", "colour", "sort"]) if (columnOf(state.get(key)) || state.get(key) === "") view[key] = state.get(key);
  const words = {dims: ["2", "3"], zoom: ["front", "all"], scope: ["front", "feasible", "all"]};
  for (const [key, known] of Object.entries(words)) if (known.includes(state.get(key))) view[key] = state.get(key);
  if (designs.objectives.length < 3) view.dims = "2";
  view.up = !state.has("down");
  for (const [key, text] of state) {
    const bounds = text.split("~").map(Number);
    if (key.startsWith("keep.") && columnOf(key.slice(5)) && bounds.length === 2 && bounds.every(Number.isFinite)) setRange(key.slice(5), bounds);
  }
  const marked = new Set((state.get("shortlist") ?? "").split("~"));
  for (let row = 0; marked.size > 0 && row < designs.rows; row++) if (marked.has(label(row))) view.marked.add(row);
  Object.assign(view, {onlyMarked: state.has("only") && view.marked.size > 0, real: state.has("real"), bands: state.has("bands")});
  view.own = state.getAll("own").map(text => {
    const [title, ...pairs] = text.split("~"),
      metrics = Object.fromEntries(pairs.flatMap((key, i) => (i % 2 ? [] : [[key, Number(pairs[i + 1])]])));
    return {name: title, text: "", metrics};
  });
  if (chosen >= 0) Object.assign(view, {open: chosen, chosen: true});
  return chosen >= 0;
}

function linkButton() {
  const button = h("button", {type: "button", class: "clear", title: "Copy a link that restores this view: its filters, axes, shortlist and open design", onclick: async () => {
    writeLink();
    await copyText(location.href);
    button.textContent = "Copied";
  }}, "Copy link");
  return button;
}
