(() => {
  const pairs = comparing();
  const overlaid = marking({ least: 2, most: 8, go: "Curves over one another", lead: (ids) => "/curves?ids=" + ids.join() });

  function runRow(place) {
    const name = link(place.name, "/run", { id: place.id });
    if (place.broken) return ["", name, element("span", place.broken, "broken"), "", "", "", "", ""];
    const state = place.state;
    const roles = element("ul", null, "roles");
    roles.append(...state.roles.map((said) => element("li", said)));
    const share = (value, shown) => (value === null ? "–" : shown(value));
    return [
      overlaid.box(place.id, place.name),
      name,
      stateNode(state),
      stepsOf(state),
      share(state.reward, (value) => value.toFixed(3)),
      share(state.passed, percent),
      share(state.at, ago),
      state.roles.length ? roles : "",
    ];
  }

  function evaluationRow(place) {
    const name = link(place.name, "/evaluation", { id: place.id });
    const figures = Object.entries(place.figures || {}).map(([k, value]) => k + " " + percent(value));
    const said = place.broken || (place.ended ? figures.join(", ") : "being written, or cut short");
    return [pairs.box(place.id, place.name), name, said, place.problems ? String(place.problems) : "–"];
  }

  poll("/v1/list", () => ({}), 3, ({ places }) => {
    const of = (kind) => places.filter((place) => place.kind === kind);
    const heads = ["", "run", "state", "step", "reward", "pass@1, held out", "last record", "roles"];
    byId("runs").replaceChildren(
      ...(of("run").length ? [table(heads, of("run").map(runRow)), overlaid.button] : [element("p", "no run", "empty")])
    );
    byId("evaluations").replaceChildren(
      ...(of("evaluation").length
        ? [table(["", "evaluation", "figures", "problems"], of("evaluation").map(evaluationRow)), pairs.button]
        : [element("p", "no evaluation", "empty")])
    );
    byId("data-sets").hidden = !of("data").length;
    byId("data").replaceChildren(table(["data set"], of("data").map((place) => [link(place.name, "/data", { id: place.id })])));
  });
})();
