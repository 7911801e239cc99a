// Draws panels of charts with uPlot.
const plots = new Map(); // node of a chart -> { plot, chart }
const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function short(value) {
  const size = Math.abs(value);
  if (value && (size >= 1e12 || size < 1e-3)) return value.toExponential(2).replace(/\.?0+e/, "e");
  const [scale, letter] = [[1e9, "G"], [1e6, "M"], [1e4, "k"]].find(([least]) => size >= least) || [1, ""];
  return Number((value / (letter === "k" ? 1e3 : scale)).toPrecision(4)) + letter;
}

// The columns of uPlot. The layers of a stack become sums, the highest first, so that lower ones cover them.
function columnsOf(chart) {
  if (!chart.stacked) return [chart.steps, ...chart.series.flatMap((one) => [one.values, ...(one.low ? [one.low, one.high] : [])])];
  const sums = [];
  for (const { values } of chart.series) sums.unshift(values.map((value, i) => value + (sums.length ? sums[0][i] : 0)));
  return [chart.steps, ...sums];
}

function seriesOf(chart, format) {
  const shown = (one) => {
    const known = one.values.findLastIndex((value) => value !== null);
    return (plot, sum, series, index) => {
      // A run without a value here has its last one before.
      const value = one.values[index ?? known] ?? one.values.slice(0, index ?? 0).findLast((before) => before !== null);
      return value === null || value === undefined ? "–" : format(value);
    };
  };
  const line = (one) => ({
    ...{ label: one.label, value: shown(one), stroke: cssColor(one.color), spanGaps: true },
    ...(one.faint ? { width: 1, alpha: 0.6, points: { show: false } } : { width: 2 }),
  });
  if (chart.stacked)
    return [...chart.series].reverse().map((one) => ({
      ...{ ...line(one), width: 0, fill: cssColor(one.color), points: { show: false } },
      paths: uPlot.paths.bars({ size: [0.8, 44] }),
    }));
  const bound = { class: "bound", width: 0, points: { show: false }, spanGaps: true };
  return chart.series.flatMap((one) => [line(one), ...(one.low ? [bound, bound] : [])]);
}

function bandsOf(chart) {
  const bands = [];
  let place = 0;
  for (const one of chart.series) {
    place += 1;
    if (!one.low) continue;
    bands.push({ series: [place + 2, place + 1], fill: cssColor(one.color) + "28" });
    place += 2;
  }
  return bands;
}

function optionsOf(chart, small) {
  const format = chart.percent ? percent : short;
  const air = (low, high) => (chart.stacked || low === high ? (high - low) / Math.max(1, chart.steps.length - 1) / 2 || 0.5 : 0);
  const axis = {
    ...{ stroke: cssColor("muted"), grid: { stroke: cssColor("line"), width: 1 }, ticks: { show: false } },
    ...{ font: "11px sans-serif", labelFont: "11px sans-serif", labelSize: 16 },
  };
  const whole = Array.from({ length: 12 }, (_, digits) => 10 ** digits).flatMap((power) => [power, 2 * power, 5 * power]);
  const fitted = (low, high) => (low >= 0 && low <= 0.5 * high ? [0, high * 1.08 || 1] : uPlot.rangeNum(low, high, 0.1, true));
  return {
    width: 100, // the observer of sizes sets the real size
    height: 100,
    scales: {
      x: { time: false, range: (plot, low, high) => [low - air(low, high), Math.max(high + air(low, high), chart.end ?? high)] },
      y: { range: (plot, low, high) => (chart.top ? [0, chart.top] : low === null ? [0, 1] : chart.stacked ? [0, high * 1.05] : fitted(low, high)) },
    },
    axes: [
      { ...axis, label: small ? undefined : chart.axis || "step", size: 24, ...(chart.axis === "hours" ? {} : { incrs: whole }), values: (plot, ticks) => ticks.map(short) },
      { ...axis, label: small ? undefined : chart.unit, size: 50, values: (plot, ticks) => ticks.map(chart.percent ? (share) => short(share * 100) + "%" : short), space: small ? 30 : 40 },
    ],
    series: [{ label: chart.axis || "step", value: (plot, step) => short(step ?? chart.steps.at(-1)) }, ...seriesOf(chart, format)],
    bands: bandsOf(chart),
    cursor: { sync: { key: chart.axis || "step" }, points: { show: !chart.stacked }, drag: { x: true, y: false } },
  };
}

function drawChart(place, chart, small) {
  const plot = new uPlot(optionsOf(chart, small), columnsOf(chart), place);
  plot.ctx.canvas.setAttribute("role", "img");
  plot.ctx.canvas.setAttribute("aria-label", chart.title + " by " + (chart.axis || "step"));
  plots.set(place, { plot, chart, small });
}

// Arrow keys move the cursor of a chart; Escape zooms out.
function onKey(event) {
  const { plot, chart } = plots.get(event.currentTarget);
  const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (event.key === "Escape") plot.setData(plot.data);
  if (!move) return;
  event.preventDefault();
  const index = Math.min(Math.max((plot.cursor.idx ?? chart.steps.length - 1) + move, 0), chart.steps.length - 1);
  plot.setCursor({ left: plot.valToPos(chart.steps[index], "x"), top: plot.bbox.height / 4 });
}

function chartNode(chart, small) {
  const node = element("div", null, "chart" + (small ? " small" : "") + (chart.series.length > 1 ? "" : " single"));
  node.tabIndex = 0;
  node.dataset.chart = chart.id;
  node.addEventListener("keydown", onKey);
  const figure = element("figure", null, small ? "" : "main");
  if (small && chart.series.length > 1) figure.append(element("figcaption", chart.title));
  figure.append(node);
  return figure;
}

function panelNode(panel) {
  const node = element("section", null, panel.wide ? "panel wide" : "panel");
  node.append(element("h2", panel.title), element("p", panel.note, "note"));
  const charts = panel.charts || [];
  const [main, below] = panel.multiples ? [[], charts] : [charts.slice(0, 1), charts.slice(1)];
  node.append(...main.map((chart) => chartNode(chart, false)));
  if (below.length) {
    const grid = element("div", null, "below");
    grid.append(...below.map((chart) => chartNode(chart, true)));
    node.append(grid);
  }
  if (panel.rows) node.append(scrolled(table([], panel.rows), panel.title));
  else if (!charts.length) node.append(element("p", "no data", "empty"));
  return node;
}

// A chart fills its place below the legend.
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const { plot } = plots.get(target);
    const legend = plot.root.querySelector(".u-legend").offsetHeight;
    if (target.clientWidth) plot.setSize({ width: target.clientWidth, height: Math.max(60, target.clientHeight - legend) });
  }
});

// What the charts are drawn over, and the number of points of their trailing mean.
const drawing = { hours: false, points: 1 };

function hoursAt({ steps, hours }, step) {
  const next = steps.findIndex((one) => one >= step);
  if (next <= 0) return hours[next < 0 ? steps.length - 1 : 0];
  const part = (step - steps[next - 1]) / (steps[next] - steps[next - 1]);
  return hours[next - 1] + part * (hours[next] - hours[next - 1]);
}

// A chart over hours. clocks: the hours by step of a run, or of the run of each series by its label.
function overHours(chart, clocks) {
  const lists = ["values", "low", "high"];
  const points = chart.series.map((one) => {
    const clock = clocks[one.label] || clocks[""];
    return new Map(clock ? chart.steps.flatMap((step, i) => (one.values[i] === null ? [] : [[hoursAt(clock, step), i]])) : []);
  });
  const hours = [...new Set(points.flatMap((one) => [...one.keys()]))].sort((a, b) => a - b);
  const series = chart.series.map((one, number) => {
    const at = (name) => hours.map((hour) => one[name][points[number].get(hour)] ?? null);
    return { ...one, ...Object.fromEntries(lists.filter((name) => one[name]).map((name) => [name, at(name)])) };
  });
  const end = chart.end && clocks[""] && hoursAt(clocks[""], chart.end);
  return { ...chart, axis: "hours", steps: hours, series, end };
}

function trailing(values) {
  return values.map((value, i) => {
    const known = values.slice(Math.max(0, i + 1 - drawing.points), i + 1).filter((one) => one !== null);
    return value === null ? null : known.reduce((sum, one) => sum + one, 0) / known.length;
  });
}

function drawn(chart, clocks) {
  const timed = drawing.hours && !chart.axis ? overHours(chart, clocks) : chart;
  if (drawing.points === 1 || chart.stacked) return timed;
  return { ...timed, series: timed.series.map((one) => (one.low || one.faint ? one : { ...one, values: trailing(one.values) })) };
}

// The controls of all charts of a page. again(): draws them.
function drawingControls(place, again) {
  const bar = element("div", null, "filters wide");
  const choose = (text, options, take) => {
    const label = element("label", text + " ");
    const select = element("select");
    for (const [value, name] of options) select.append(new Option(name, value));
    select.addEventListener("change", () => {
      take(Number(select.value));
      again();
    });
    label.append(select);
    bar.append(label);
  };
  choose("charts over", [[0, "steps"], [1, "hours of training"]], (value) => (drawing.hours = value === 1));
  choose("smoothing", [[1, "none"], ...[3, 10, 30, 100].map((count) => [count, "mean of " + count + " points"])], (value) => (drawing.points = value));
  place.replaceChildren(bar);
}

// Charts that were drawn before get new data and keep their zoom, if the panels have the same parts.
function showPanels(root, given, clocks) {
  const panels = given.map((panel) => ({ ...panel, charts: panel.charts?.map((chart) => drawn(chart, clocks)) }));
  const charts = panels.flatMap((panel) => (panel.charts || []).map((chart, i) => [chart, Boolean(panel.multiples) || i > 0]));
  const parts = JSON.stringify([panels.map((panel) => [panel.title, panel.rows]), charts.map(([chart]) => [chart.id, chart.series.length])]);
  if (root.dataset.parts !== parts) {
    root.dataset.parts = parts;
    root.replaceChildren(...panels.map(panelNode));
  }
  const places = [...root.querySelectorAll(".chart")];
  places.forEach((place, i) => redraw(place, ...charts[i]));
}

function redraw(place, chart, small) {
  const { plot: before, chart: old } = plots.get(place) || {};
  const zoom = before && old.axis === chart.axis && (before.scales.x.min > old.steps[0] || before.scales.x.max < old.steps.at(-1)) ? before.scales.x : null;
  if (before) before.destroy();
  drawChart(place, chart, small);
  if (zoom) plots.get(place).plot.setScale("x", { min: zoom.min, max: zoom.max });
  sizes.unobserve(place);
  sizes.observe(place);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [place, { chart, small }] of plots) if (place.isConnected) redraw(place, chart, small);
});
