// A page whose figures and tables are given as they are shown: of a sweep, of a front over draws of the constants.

const ROWS_AT_ONCE = 40; // rows of a table that are shown at first, and added at a time

// A table of which long ones grow on demand.
function growingTable({title, head, rows, words, note}, number) {
  const card = answerTable(`table-${number}`, title, head, [], words),
    body = card.querySelector("tbody"),
    more = h("button", {type: "button", class: "more", onclick: () => grow()});
  const cell = (text, i) => h("td", {class: i === 0 || words.includes(head[i]) ? "word" : ""}, text);
  function grow() {
    const shown = body.rows.length,
      next = rows.slice(shown, shown + ROWS_AT_ONCE);
    body.append(...next.map(cells => h("tr", {}, cells.map(cell))));
    const left = rows.length - shown - next.length;
    more.hidden = !left;
    more.textContent = `Show ${Math.min(left, ROWS_AT_ONCE)} more of ${left.toLocaleString("en-US")}`;
  }
  grow();
  card.append(more, note && h("p", {class: "note"}, note));
  return card;
}

startAnswer(data => {
  add(answerText("verdict", data.verdict, "verdict"), data.question.map((text, i) => answerText(`said-${i}`, text)));
  const plot = answerPlots();
  for (const {title, panels} of data.figures) for (const {traces, x, y, layout} of panels) plot(title, traces, x, y, layout);
  add(data.tables.map(growingTable), answerNotes("Notes", data.notes));
});
