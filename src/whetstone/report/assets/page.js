(() => {
  const data = JSON.parse(byId("data").textContent);

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

  for (const svg of document.querySelectorAll("svg[data-chart]")) {
    const chart = data.charts[svg.dataset.chart];
    if (chart) addTooltip(svg, chart);
  }

  function fact(label, value) {
    const node = element("span", label + " ");
    node.append(typeof value === "object" ? value : element("b", value));
    return node;
  }

  function detail(row) {
    const tags = element("div", null, "tags");
    const [low, high] = row.versions;
    const versions = low === null ? "none" : low === high ? String(low) : low + " to " + high;
    tags.append(
      verdict(row.verdict),
      fact("reward", row.reward === null ? "none" : String(row.reward)),
      fact("step", String(row.step)),
      fact("tokens", String(row.tokens)),
      fact("ended by", row.finish),
      fact("weights", versions)
    );
    const parts = [element("p", row.problem, "title"), tags];
    if (row.reason) parts.push(element("h3", "Judge"), element("pre", row.reason));
    parts.push(element("h3", "Prompt"), element("pre", row.prompt), element("h3", "Reply"), element("pre", row.reply));
    return [...parts, ...programParts(row.program, "no program in the reply"), ...caseParts(row.cases, "no case was run")];
  }

  if (!data.rollouts.length) return;
  byId("no-rollouts").hidden = true;
  document.querySelector(".browser").hidden = false;
  browse({
    things: data.rollouts,
    nothing: "no rollout matches",
    keys: { step: (row) => [row.step], problem: (row) => [row.problem], verdict: (row) => [row.verdict] },
    texts: (row) => [row.prompt, row.reply, row.program || ""],
    item: (row) => {
      const reward = row.reward === null ? "no reward" : "reward " + Number(row.reward.toFixed(3));
      const sub = element("span", "  ·  step " + row.step + "  ·  " + reward, "sub");
      return [element("span", row.problem, "id"), verdict(row.verdict), sub];
    },
    detail,
  });
})();
