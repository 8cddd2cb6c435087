// The page of a fleet's day: rate, systems, load of a system and power by hour, and totals beside a fixed fleet.

const dollars = value => (value === null ? "–" : `$${figure(value)}`);

// An hour has one value throughout.
function hourSteps(name, hours, value, i, dash = "solid") {
  return {
    type: "scatter", mode: "lines", name: plain(name), line: {shape: "hv", color: SERIES[i % SERIES.length], dash},
    x: [...hours.map(of => of.hour), hours.length], y: [...hours.map(value), value(hours.at(-1))],
    hovertemplate: "hour %{x}: %{y:.4g}",
  };
}

function fleetRow(fleet, name) {
  const day = fleet[name];
  return [
    fleet.chip, name, figure(day.chips_owned), figure(day.chip_hours), figure(100 * day.utilisation),
    figure(day.energy_j === null ? null : day.energy_j / 3.6e6), dollars(day.owned_usd), dollars(day.owned_per_mtoken_usd),
    dollars(day.rented_usd), dollars(day.rented_per_mtoken_usd),
  ];
}

function fleetPlots(data, pools) {
  const plot = answerPlots(),
    both = (of, fixed = true) =>
      pools.flatMap((pool, i) => [hourSteps(pool.name, pool.hours, of, i), fixed && hourSteps(`${pool.name}, fixed`, pool.fixed_hours, of, i, "dot")]).filter(Boolean);
  const draw = (title, traces, y) => plot(title, traces, {title: "hour"}, {title: y, rangemode: "tozero"});
  draw("Load", [hourSteps("all requests", data.day.rates_hz.map((rate, hour) => ({hour, rate})), of => of.rate, 0)], "requests/s");
  draw("Systems that are up, mean of the hour", both(of => of.system_hours), "systems");
  const most = pools.map((pool, i) => ({
    type: "scatter", mode: "lines", name: plain(`${pool.name}, maximum`), x: [0, pool.hours.length], y: [pool.max_rate_hz, pool.max_rate_hz],
    line: {color: SERIES[i % SERIES.length], dash: "dash"}, hovertemplate: "at most %{y:.4g} requests/s",
  }));
  draw("Load of a system", both(of => of.load_hz, false).flatMap((trace, i) => [trace, most[i]]), "requests/s");
  draw("Power drawn from the grid", both(of => of.grid_power_w / 1e3), "kW");
}

startAnswer(data => {
  const pools = data.fleets.flatMap(fleet => fleet.models.map(model => ({...model, chip: fleet.chip, name: `${fleet.chip}, ${model.model}`})));
  add(answerText("day", `${data.day.text}. Physics ${data.physics}.`), answerText("systems", `${capital(data.systems)}.`));
  fleetPlots(data, pools);
  const head = ["chip", "fleet", "chips owned", "chip-hours, h", "utilisation, %", "energy, kWh", "owned", "a Mtoken", "rented", "a Mtoken"];
  add(answerTable("fleets", "A day", head, data.fleets.filter(fleet => !fleet.why_not).flatMap(fleet => ["scaled", "fixed"].map(name => fleetRow(fleet, name))), ["fleet"]));
  const notes = pools.flatMap(pool =>
    [pool.text, pool.note, pool.stack_basis && pool.stack_basis.text, pool.extrapolated].filter(Boolean).map(text => (text.startsWith(`${pool.model}, `) ? `${pool.chip}: ${text}` : `${pool.name}: ${text}`)),
  );
  const refused = data.fleets.filter(fleet => fleet.why_not).map(fleet => `${fleet.chip}: ${fleet.why_not}`);
  add(answerNotes("Notes and assumptions", [...notes, ...refused, ...data.assumptions]));
});
