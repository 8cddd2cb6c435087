// A page of one figure: Plotly draws it as Python has it.

addEventListener("DOMContentLoaded", async () => {
  const data = await unpackData();
  if (!data) return;
  await loadEngine("plotly");
  Plotly.newPlot("figure", data.data, data.layout, {responsive: true});
});
