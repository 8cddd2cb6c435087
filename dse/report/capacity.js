// The page of a capacity question: what a user gets against what a device gives, latency against load, deployments.

const STEPS = [-6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4].flatMap(e => [1, 2, 5].map(digit => digit * 10 ** e)); // s
const TIME = {type: "log", tickvals: STEPS, ticktext: STEPS.map(seconds)};

function capacityText({requests, bounds}, physics) {
  const classes = bounds.classes.length ? bounds.classes : [{...bounds, name: ""}];
  const kept = classes.map(of => `${of.name ? `(${of.name}) ` : ""}within ${seconds(of.ttft_s)} to the first token and ${seconds(of.tpot_s)} a token`);
  return (
    `${figure(requests.count)} requests of ${figure(requests.mean_prompt_tokens)} prompt and ${figure(requests.mean_output_tokens)} output tokens in the mean; ` +
    `${figure(100 * bounds.share_of_requests)} % of them ${kept.join(", ")}. Physics ${physics}.`
  );
}

function capacityVerdict(side) {
  const [best] = side.deployments;
  if (side.why_not) return `${side.devices} x ${side.chip}: ${side.why_not}`;
  return (
    `${side.devices} x ${side.chip}: ${best.deployment} serves ${figure(best.max_rate_hz)} requests/s, ` +
    `$${figure(best.price_per_mtoken_usd)} a million tokens.`
  );
}

function deploymentTable(side, i) {
  const head = ["deployment", "devices", "requests/s", "closed estimate", "tokens/s a device", "tokens/s a user", "price", "a Mtoken", "TTFT", "TPOT", "breaks next"];
  const rows = side.deployments.map(of => [
    of.deployment, of.devices, figure(of.max_rate_hz), figure(of.estimate_hz), figure(of.tokens_per_s_device), figure(of.tokens_per_s_user),
    `$${figure(of.system_price_usd)}`, `$${figure(of.price_per_mtoken_usd)}`, seconds(of.ttft_s), seconds(of.tpot_s), of.breaks_beyond,
  ]);
  const card = answerTable(`chip-${i}`, `${side.devices} x ${side.chip}`, head, rows, ["breaks next"]);
  const lines = [
    `${side.looked_at.fit} deployments fit, ${side.looked_at.played} were simulated. The best one: ${side.best.overrides.join(" ")}`,
    side.note && `Note: ${side.note}`,
    side.extrapolated && `Not fitted: ${side.extrapolated}.`,
  ];
  card.append(...lines.filter(Boolean).map(text => h("p", {class: "note"}, text)));
  return card;
}

startAnswer(data => {
  const [{bounds}] = data.chips,
    known = data.chips.filter(side => !side.why_not);
  add(data.chips.map((side, i) => answerText(`verdict-${i}`, capacityVerdict(side), "verdict")), answerText("said", capacityText(data.chips[0], data.physics)));
  const plot = answerPlots(),
    colour = i => SERIES[i % SERIES.length];
  plot(
    "What a user gets against what a device gives",
    data.chips.map((side, i) => ({
      type: "scatter", mode: "markers", name: plain(side.chip), marker: {color: colour(i), size: 9}, // nothing lies between two deployments
      x: side.front.map(point => point.tokens_per_s_user), y: side.front.map(point => point.tokens_per_s_device),
      text: side.front.map(point => plain(point.deployment)),
      hovertemplate: "%{text}<br>%{x:.4g} tokens/s a user<br>%{y:.4g} tokens/s a device",
    })),
    {title: "tokens/s of a user"},
    {title: "tokens/s of a device"},
  );
  const rates = data.chips.flatMap(side => side.load.map(point => point.rate_hz));
  for (const [key, name] of [["ttft_s", "time to first token"], ["tpot_s", "time per output token"]]) {
    const traces = data.chips.map((side, i) => ({
      type: "scatter", mode: "lines+markers", name: plain(side.chip), marker: {color: colour(i)}, line: {color: colour(i)},
      x: side.load.map(point => point.rate_hz), y: side.load.map(point => point[key]),
      text: side.load.map(point => seconds(point[key])), hovertemplate: "%{x:.4g} requests/s<br>%{text}",
    }));
    if (bounds[key] !== null)
      traces.push({
        type: "scatter", mode: "lines", name: "bound", x: [0, Math.max(0, ...rates)], y: [bounds[key], bounds[key]],
        line: {color: "--bad", dash: "dash"}, hoverinfo: "skip",
      });
    plot(`Latency against load: ${name}`, traces, {title: "requests/s"}, {title: `${name}, ${figure(100 * bounds.share_of_requests)} %`, ...TIME});
  }
  add(known.map(deploymentTable));
});
