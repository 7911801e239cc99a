"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);

  // Every text from the run goes through textContent: nothing of it is ever read as markup.
  function element(tag, text, className) {
    const node = document.createElement(tag);
    if (text !== undefined && text !== null) node.textContent = text;
    if (className) node.className = className;
    return node;
  }

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

  const rows = data.rollouts;
  if (!rows.length) return;
  byId("no-rollouts").hidden = true;
  document.querySelector(".browser").hidden = false;
  const words = (name) => name.replaceAll("_", " ");
  const filters = { step: byId("f-step"), problem: byId("f-problem"), verdict: byId("f-verdict") };
  const search = byId("f-text");
  const list = byId("list");
  let shown = [];
  let selected = -1;

  function fill(select, key, label) {
    const counts = new Map();
    for (const row of rows) counts.set(row[key], (counts.get(row[key]) || 0) + 1);
    const values = [...counts.keys()].sort((a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b))));
    select.append(new Option("all", ""));
    for (const value of values) select.append(new Option(label(value) + " (" + counts.get(value) + ")", String(value)));
  }

  function verdict(name) {
    const node = element("span", words(name), "verdict");
    node.style.setProperty("--c", "var(--v-" + name + ")");
    return node;
  }

  function refresh() {
    const text = search.value.toLowerCase();
    shown = rows.filter(
      (row) =>
        Object.entries(filters).every(([key, select]) => !select.value || String(row[key]) === select.value) &&
        (!text || [row.prompt, row.reply, row.program || ""].some((part) => part.toLowerCase().includes(text)))
    );
    byId("f-count").textContent = shown.length + " of " + rows.length;
    list.replaceChildren(
      ...shown.map((row, index) => {
        const item = element("li");
        item.setAttribute("role", "option");
        item.append(element("span", row.problem, "id"), verdict(row.verdict));
        const reward = row.reward === null ? "no reward" : "reward " + Number(row.reward.toFixed(3));
        item.append(element("span", "  ·  step " + row.step + "  ·  " + reward, "sub"));
        item.addEventListener("click", () => show(index));
        return item;
      })
    );
    show(shown.length ? 0 : -1);
  }

  function fact(label, value) {
    const node = element("span", label + " ");
    node.append(typeof value === "object" ? value : element("b", value));
    return node;
  }

  function caseTable(cases) {
    const table = element("table", null, "cases");
    const head = table.createTHead().insertRow();
    for (const title of ["case", "verdict", "CPU", "wall", "peak", "reason"]) head.append(element("th", title));
    const body = table.createTBody();
    cases.forEach((one, index) => {
      const row = body.insertRow();
      row.insertCell().textContent = index + 1;
      row.insertCell().append(verdict(one.verdict));
      row.insertCell().textContent = one.cpu_ms + " ms";
      row.insertCell().textContent = one.wall_ms + " ms";
      row.insertCell().textContent = one.peak_mb + " MiB";
      row.insertCell().textContent = one.reason;
    });
    return table;
  }

  function show(index) {
    selected = index;
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === index)));
    const detail = byId("detail");
    const row = shown[index];
    if (!row) {
      detail.replaceChildren(element("p", "no rollout matches", "empty"));
      return;
    }
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
    parts.push(element("h3", "Program"), row.program === null ? element("p", "no program in the reply", "empty") : element("pre", row.program));
    parts.push(element("h3", "Cases"), row.cases.length ? caseTable(row.cases) : element("p", "no case was run", "empty"));
    detail.replaceChildren(...parts);
    detail.scrollTop = 0;
    list.children[index].scrollIntoView({ block: "nearest" });
  }

  list.setAttribute("role", "listbox");
  list.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move || !shown.length) return;
    event.preventDefault();
    show(Math.min(Math.max(selected + move, 0), shown.length - 1));
  });
  fill(filters.step, "step", String);
  fill(filters.problem, "problem", String);
  fill(filters.verdict, "verdict", words);
  for (const select of Object.values(filters)) select.addEventListener("change", refresh);
  search.addEventListener("input", refresh);
  // Showing the first one must not scroll the page to the browser.
  const place = scrollY;
  refresh();
  scrollTo(0, place);
})();
