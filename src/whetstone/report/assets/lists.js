// The list of everything, and the curves of several runs.
function stateNode(state) {
  const node = element("span", state.word, "state");
  node.dataset.state = state.word;
  if (state.word === "died") node.title = "no process on this machine trains there, and steps are missing; the same whetstone train command continues it";
  return node;
}

function leftOf({ left_s: left }) {
  if (!left) return "";
  const [size, unit] = left < 90 ? [1, "s"] : left < 5400 ? [60, "min"] : [3600, "h"];
  return ", about " + Math.ceil(left / size) + " " + unit + " left";
}

const stepsOf = (state) => state.step + (state.steps ? " of " + state.steps : "");

// Boxes that mark rows of a list. go: the text of the button; lead(ids): where it leads; least, most: how many it takes.
function marking({ least, most, go, lead }) {
  const ids = new Set();
  const button = element("button", go, "go");
  const update = () => (button.disabled = ids.size < least || ids.size > most);
  button.addEventListener("click", () => location.assign(lead([...ids])));

  function box(id, name) {
    const node = element("input");
    node.type = "checkbox";
    node.checked = ids.has(id);
    node.setAttribute("aria-label", "mark " + name);
    node.addEventListener("change", () => {
      if (node.checked) ids.add(id);
      else ids.delete(id);
      update();
    });
    return node;
  }

  update();
  return { box, button };
}

const comparing = () => marking({ least: 2, most: 2, go: "Compare the two", lead: ([a, b]) => "/evaluation?" + new URLSearchParams({ id: a, with: b }) });

const stored = (name, without) => JSON.parse(localStorage.getItem(name) || "null") ?? without;

// A table whose heads sort it and whose columns can be chosen. columns: { head, value(row) for sorting, cell(row),
// always, off }; a column that is off is shown once it is chosen. The choices stay in this browser.
function listTable(place, name, columns, boxOf, button) {
  const choice = stored("columns " + name, {});
  const sorting = stored("order " + name, { head: "", down: false });
  let rows = [];
  const isOn = (one) => one.always || (choice[one.head] ?? !one.off);

  function headOf(one) {
    const arrow = sorting.head !== one.head ? "" : sorting.down ? " ▾" : " ▴";
    const node = element("button", one.head + arrow);
    node.dataset.head = one.head;
    node.addEventListener("click", () => {
      Object.assign(sorting, { down: sorting.head === one.head && !sorting.down, head: one.head });
      localStorage.setItem("order " + name, JSON.stringify(sorting));
      draw();
    });
    return node;
  }

  function chooser() {
    const node = element("details", null, "columns");
    node.append(element("summary", "columns"));
    for (const one of columns.filter((one) => !one.always)) {
      const label = element("label", " " + one.head);
      const box = element("input");
      Object.assign(box, { type: "checkbox", checked: isOn(one) });
      box.addEventListener("change", () => {
        choice[one.head] = box.checked;
        localStorage.setItem("columns " + name, JSON.stringify(choice));
        draw();
      });
      label.prepend(box);
      node.append(label);
    }
    return node;
  }

  const body = element("div");
  place.replaceChildren(body, button || "", columns.some((one) => !one.always) ? chooser() : "");

  function draw() {
    const by = columns.find((one) => one.head === sorting.head);
    const compared = (a, b) => (a === null || b === null ? (a === null) - (b === null) : compare(a, b) * (sorting.down ? -1 : 1));
    const sorted = by ? [...rows].sort((a, b) => compared(by.value(a) ?? null, by.value(b) ?? null)) : rows;
    const shown = columns.filter((one) => isOn(one) && (one.always || rows.some((row) => one.cell(row) !== "")));
    const cells = sorted.map((row) => [...(boxOf ? [boxOf(row)] : []), ...shown.map((one) => one.cell(row))]);
    const heads = [...(boxOf ? [""] : []), ...shown.map(headOf)];
    const focused = body.contains(document.activeElement) ? document.activeElement.dataset.head : undefined;
    body.replaceChildren(rows.length ? scrolled(table(heads, cells, "sortable"), name) : element("p", "no " + name, "empty"));
    heads.find((head) => head && head.dataset.head === focused)?.focus();
  }

  return (found) => {
    rows = found;
    draw();
  };
}

const estimateText = ([name, value]) => name + " " + (isShare(name) ? percent(value) : rounded(value, 3));

function runColumns() {
  const known = (value, shown) => (value === null ? "–" : shown(value));
  const state = (head, value, cell) => ({ head, value: (row) => row.state && value(row.state), cell: (row) => (row.state ? cell(row.state) : "") });
  const fact = (head, off) => ({ head, off, value: (row) => row.facts?.[head], cell: (row) => row.facts?.[head] ?? "" });
  const roles = ({ roles }) => {
    const list = element("ul", null, "roles");
    list.append(...roles.map((line) => element("li", line)));
    return roles.length ? list : "";
  };
  return [
    named("run", "/run"),
    { head: "state", always: true, value: (row) => row.state?.word, cell: (row) => (row.broken ? element("span", row.broken, "broken") : stateNode(row.state)) },
    state("step", (one) => one.step, (one) => stepsOf(one) + leftOf(one)),
    state("reward", (one) => one.reward, (one) => known(one.reward, (value) => rounded(value, 3))),
    state("held-out", (one) => one.heldout?.[1], (one) => known(one.heldout, estimateText)),
    state("last record", (one) => one.at, (one) => known(one.at, ago)),
    state("roles", (one) => one.roles.length, roles),
    { head: "notes", value: (row) => row.notes, cell: (row) => row.notes || "" },
    ...[fact("recipe", true), fact("model", true), fact("algorithm"), fact("learning rate", true), fact("seed")],
  ];
}

const named = (head, path) => ({ head, always: true, value: (row) => row.name, cell: (row) => link(row.name, path, { id: row.id }) });

const EVALUATION_COLUMNS = [
  named("evaluation", "/evaluation"),
  {
    head: "results",
    value: (row) => Object.values(row.figures || {})[0],
    cell: (row) => row.broken || (row.ended ? Object.entries(row.figures).map(estimateText).join(", ") : "not finished"),
  },
  { head: "problems", value: (row) => row.problems, cell: (row) => (row.problems ? String(row.problems) : "–") },
];

function listPage(data) {
  const pairs = comparing();
  const curves = marking({ least: 2, most: 8, go: "Curves of the marked runs", lead: (ids) => "/curves?ids=" + ids.join() });
  showHead("Runs", [["folders", data.title]]);
  const runs = listTable(byId("runs"), "run", runColumns(), (row) => (row.broken ? "" : curves.box(row.id, row.name)), curves.button);
  const evaluations = listTable(byId("evaluations"), "evaluation", EVALUATION_COLUMNS, (row) => pairs.box(row.id, row.name), pairs.button);
  const sets = listTable(byId("data-list"), "data set", [named("data set", "/data")]);
  const [text, word] = [byId("l-text"), byId("l-state")];
  const texts = (row) => [row.name, row.notes, row.broken, ...Object.values(row.facts || {})].join(" ").toLowerCase();
  let places = [];

  function draw() {
    const of = (kind) => places.filter((row) => row.kind === kind && texts(row).includes(text.value.toLowerCase()));
    runs(of("run").filter((row) => !word.value || (row.state?.word ?? "broken") === word.value));
    evaluations(of("evaluation"));
    sets(of("data"));
    byId("data-sets").hidden = !places.some((row) => row.kind === "data");
  }

  text.addEventListener("input", draw);
  word.addEventListener("change", draw);
  return (answer) => {
    places = answer.places;
    draw();
  };
}

// The results of several runs, each with its paired difference to the first.
function comparisonNodes({ runs, results, settings, notes }) {
  const count = (number) => (number === null ? "–" : number.toLocaleString("en"));
  const facts = runs.map((run) => [run.name, run.algorithm ?? "–", String(run.seed ?? "–"), count(run.steps), count(run.generated), count(run.trained)]);
  const rows = results.flatMap(({ set, estimate, rows }) =>
    rows.map((row) => {
      const share = isShare(estimate);
      const name = (SETS[set] || [set])[0] + ", " + estimate;
      return [name, row.run, estimateParts(row.before, share), estimateParts(row.after, share), changeParts(row, share), changeParts({ change: row.difference }, share)];
    })
  );
  const nodes = [scrolled(table(["run", "algorithm", "seed", "steps", "generated tokens", "trained tokens"], facts, "result"), "runs")];
  const values = settings.map((one) => [one.key, ...one.values.map((value) => (value === null ? "none" : String(value)))]);
  const names = ["different settings", ...runs.map((run) => run.name)];
  if (values.length) nodes.push(scrolled(table(names, values, "wrapped"), "settings"));
  if (!rows.length) return [...nodes, element("p", "no run has been evaluated yet", "note")];
  const heads = ["problems, measure", "run", "before", "after", "change", "less " + runs[0].name];
  nodes.push(scrolled(table(heads, rows, "result")));
  nodes.push(element("p", "95% intervals over problems. The change is between the first and the last evaluation of a run, the last column between the last evaluations of two runs. Both are paired problem by problem.", "note"));
  return [...nodes, ...notes.map((note) => element("p", "Not measured in the same way. " + note, "note"))];
}

function curvesPage(data) {
  let draw = () => {};
  showHead("Curves", [["runs", data.title]]);
  drawingControls(byId("drawing"), () => draw());
  return ({ page, states }) => {
    byId("live").textContent = (states || []).join(", ");
    if (!page) return;
    byId("result").replaceChildren(...comparisonNodes(page.comparison));
    draw = () => showPanels(byId("panels"), page.panels, page.clocks);
    draw();
  };
}
