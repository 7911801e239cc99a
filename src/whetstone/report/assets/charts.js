// What the charts below a node show at the pointer. charts: of each chart, by its id, its frame and series.
function showCharts(root, charts) {
  function addTooltip(svg, chart) {
    const tip = byId("tip");
    const cursor = svg.querySelector(".cursor");
    const steps = [...new Set(chart.series.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => a - b);
    const span = chart.high - chart.low;
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      const value = chart.low + ((x - chart.left) / (chart.right - chart.left)) * span;
      const step = steps.reduce((best, s) => (Math.abs(s - value) < Math.abs(best - value) ? s : best), steps[0]);
      const place = span ? chart.left + ((step - chart.low) / span) * (chart.right - chart.left) : (chart.left + chart.right) / 2;
      cursor.setAttribute("x1", place);
      cursor.setAttribute("x2", place);
      cursor.style.visibility = "visible";
      tip.replaceChildren(element("div", "step " + step));
      for (const series of chart.series) {
        const point = series.points.find((p) => p[0] === step);
        if (!point) continue;
        const row = element("div");
        const mark = element("i");
        mark.style.background = series.color;
        row.append(mark, series.label + "  " + point[1]);
        tip.append(row);
      }
      tip.hidden = false;
      const right = event.clientX + tip.offsetWidth + 30 > innerWidth;
      tip.style.left = (right ? event.clientX - tip.offsetWidth - 14 : event.clientX + 14) + "px";
      tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
    });
    svg.addEventListener("pointerleave", () => {
      tip.hidden = true;
      cursor.style.visibility = "hidden";
    });
  }

  for (const svg of root.querySelectorAll("svg[data-chart]")) {
    const chart = charts[svg.dataset.chart];
    if (chart) addTooltip(svg, chart);
  }
}
