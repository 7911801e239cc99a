// The list of everything, and the curves of several runs.
function stateNode(state) {
  const node = element("span", state.word, "state");
  node.dataset.state = state.word;
  if (state.word === "died") node.title = "no process on this machine trains there, and steps are missing; the same whetstone train command continues it";
  return node;
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

function listPage(data) {
  const pairs = comparing();
  const curves = marking({ least: 2, most: 8, go: "Curves of the marked runs", lead: (ids) => "/curves?ids=" + ids.join() });
  const estimateText = ([name, value]) => name + " " + (isShare(name) ? percent(value) : rounded(value, 3));
  const known = (value, shown) => (value === null ? "–" : shown(value));
  showHead("Runs", [["folders", data.title]]);

  function runRow(place) {
    const name = link(place.name, "/run", { id: place.id });
    if (place.broken) return ["", name, element("span", place.broken, "broken"), "", "", "", "", ""];
    const { state } = place;
    const roles = element("ul", null, "roles");
    roles.append(...state.roles.map((line) => element("li", line)));
    const numbers = [known(state.reward, (value) => value.toFixed(3)), known(state.heldout, estimateText), known(state.at, ago)];
    return [curves.box(place.id, place.name), name, stateNode(state), stepsOf(state), ...numbers, roles];
  }

  function evaluationRow(place) {
    const figures = Object.entries(place.figures || {}).map(estimateText);
    const text = place.broken || (place.ended ? figures.join(", ") : "not finished");
    return [pairs.box(place.id, place.name), link(place.name, "/evaluation", { id: place.id }), text, place.problems ? String(place.problems) : "–"];
  }

  return ({ places }) => {
    const of = (kind) => places.filter((place) => place.kind === kind);
    const fill = (id, kind, heads, row, button) => {
      const rows = of(kind).map(row);
      byId(id).replaceChildren(...(rows.length ? [table(heads, rows), button] : [element("p", "no " + kind, "empty")]));
    };
    fill("runs", "run", ["", "run", "state", "step", "reward", "held-out", "last record", "roles"], runRow, curves.button);
    fill("evaluations", "evaluation", ["", "evaluation", "results", "problems"], evaluationRow, pairs.button);
    fill("data-list", "data", ["data set"], (place) => [link(place.name, "/data", { id: place.id })], "");
    byId("data-sets").hidden = !of("data").length;
  };
}

// The results of several runs, each with its paired difference to the first.
function comparisonNodes({ runs, results, notes }) {
  const count = (number) => (number === null ? "–" : number.toLocaleString("en"));
  const facts = runs.map((run) => [run.name, run.algorithm ?? "–", String(run.seed ?? "–"), count(run.steps), count(run.generated), count(run.trained)]);
  const rows = results.flatMap(({ set, estimate, rows }) =>
    rows.map((row) => {
      const share = isShare(estimate);
      const name = (SETS[set] || [set])[0] + ", " + estimate;
      return [name, row.run, estimateParts(row.before, share), estimateParts(row.after, share), changeParts(row, share), changeParts({ change: row.difference }, share)];
    })
  );
  const nodes = [scrolled(table(["run", "algorithm", "seed", "steps", "generated tokens", "trained tokens"], facts, "result"))];
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
