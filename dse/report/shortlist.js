// What a reader takes along: the shortlist as YAML that `dse evaluate --from` answers, designs as CSV, a plot as a picture.

// Text in double quotes as YAML reads it back, whatever its letters.
function quoted(text) {
  const code = (letter, value) => (value > 0xffff ? `\\U${value.toString(16).padStart(8, "0")}` : `\\u${value.toString(16).padStart(4, "0")}`);
  return `"${[...text].map(letter => (/[ !#-[\]-~]/.test(letter) ? letter : code(letter, letter.codePointAt(0)))).join("")}"`;
}

function shortlistYaml(rows) {
  const plainly = text => text.replace(/²/g, "2").replace(/[^ -~]/g, "?"); // a comment of YAML ends with its line
  const goals = row => Object.keys(studyOf(row).objectives).map(key => `${key} ${textOf(columnOf(key), row)}`);
  return [
    "# Designs of a report of mesh-dse: dse evaluate --from FILE answers each.",
    "designs:",
    ...rows.flatMap(row => [
      `  ${quoted(label(row))}: # ${plainly(goals(row).join(", "))}`,
      ...wordsOf(row).map(word => `    - ${quoted(word)}`),
    ]),
    "",
  ].join("\n");
}

function saveShortlist() {
  const rows = [...view.marked].sort((a, b) => a - b);
  save(`${fileStem()}_shortlist.yaml`, new Blob([shortlistYaml(rows)], {type: "application/yaml"}));
}

// The picked designs as a table in SI units: the columns that are shown, and what each is in.
function csvText(rows, columns) {
  const cell = text => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const value = (column, row) => {
    const of = column.values[row];
    return Number.isNaN(of) ? "" : column.words ? column.words[of] : String(column.type === "f4" ? Number(of.toPrecision(7)) : of);
  };
  const head = ["design", "front", ...columns.map(c => (c.words || c.unit === "1" || !c.unit ? c.name : `${c.name} [${c.unit}]`))];
  const lines = rows.map(row => [label(row), isFront(row) ? "1" : "0", ...columns.map(column => value(column, row))]);
  return [head, ...lines].map(cells => cells.map(cell).join(",")).join("\n") + "\n";
}

function csvButton(rows, columns) {
  const title = "Save the designs in view with the columns of this table as CSV, in SI units";
  const write = () => save(`${fileStem()}_designs.csv`, new Blob([csvText(rows, columns)], {type: "text/csv"}));
  return h("button", {type: "button", title, disabled: !rows.length, onclick: write}, "CSV");
}

function save(file, content) {
  const url = URL.createObjectURL(content),
    link = h("a", {href: url, download: file});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function fileStem() {
  return designs.studies.map(study => study.name.replace(/[^\w.-]/g, "_")).join("_");
}

// Buttons that save a plot as it stands, on the page's paper.
function pictureButton(title, plotOf) {
  const stem = title.toLowerCase().replace(/[^\w.-]+/g, "_");
  const button = format =>
    h(
      "button",
      {
        type: "button",
        title: `Save this plot as ${format.toUpperCase()}`,
        onclick: () => savePicture(plotOf(), format, `${fileStem()}_${stem}.${format}`),
      },
      format === "svg" ? "Picture (SVG)" : "PNG",
    );
  return [button("svg"), button("png")];
}

async function savePicture(plot, format, file) {
  const {data, layout} = plot,
    {width, height} = plot.getBoundingClientRect();
  const drawn = {data, layout: {...layout, paper_bgcolor: ink("--paper"), selections: [], images: cloudImage(plot)}};
  const url = await engineOf(plot).toImage(drawn, {format, width, height, scale: 2, imageDataOnly: format === "svg"});
  save(file, format === "svg" ? new Blob([url], {type: "image/svg+xml"}) : await (await fetch(url)).blob());
}
