// What a reader takes along: the shortlist as YAML that `dse evaluate --from` answers, and a plot as a picture.

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

// A button that saves a plot as it stands, on the page's paper.
function pictureButton(title, plotOf) {
  const stem = title.toLowerCase().replace(/[^\w.-]+/g, "_");
  return h(
    "button",
    {type: "button", title: "Save this plot as SVG", onclick: () => savePicture(plotOf(), `${fileStem()}_${stem}.svg`)},
    "Picture (SVG)",
  );
}

async function savePicture(plot, file) {
  const {data, layout} = plot,
    {width, height} = plot.getBoundingClientRect();
  const drawn = {data, layout: {...layout, paper_bgcolor: ink("--paper"), selections: []}};
  const url = await Plotly.toImage(drawn, {format: "svg", width, height, imageDataOnly: true});
  save(file, new Blob([url], {type: "image/svg+xml"}));
}
