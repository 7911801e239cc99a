// The page of a run.
const SETS = { heldout: ["held-out", "spark"], train: ["training", "steel"] };

function showHead(title, facts) {
  const list = element("dl", null, "facts");
  for (const [label, value] of facts) {
    const fact = element("div");
    fact.append(element("dt", label), element("dd", value));
    list.append(fact);
  }
  byId("head").replaceChildren(element("h1", title), list);
}

// Shares are shown in percent, rewards as they are.
function estimateParts(one, share) {
  if (!one) return "–";
  const bound = (number) => (share ? rounded(number * 100) : rounded(number, 3));
  const interval = one.low === null ? "" : bound(one.low) + " – " + bound(one.high);
  return [element("b", share ? percent(one.value) : rounded(one.value, 3)), element("span", interval, "interval")];
}

function changeParts({ before, after, change }, share) {
  const text = (number) => (share ? signed(number * 100) : signed(number, 3));
  if (!change) return before && after ? element("b", text(after.value - before.value)) : "–";
  const kind = change.low > 0 ? "up" : change.high < 0 ? "down" : "flat";
  const interval = text(change.low) + " – " + text(change.high);
  return [element("b", text(change.value), kind), element("span", interval, "interval")];
}

// The values on a line from 0 to 1, with their intervals: hollow before, filled after.
function spanNode(set, estimates) {
  const node = element("div", null, "span");
  node.style.setProperty("--c", "var(--" + (SETS[set] || [set, "moss"])[1] + ")");
  for (const [i, one] of estimates.entries()) {
    const mark = element("i", null, i ? "after" : "before");
    const low = one.low ?? one.value;
    mark.style.left = low * 100 + "%";
    mark.style.width = ((one.high ?? one.value) - low) * 100 + "%";
    const dot = element("i", null, i ? "after dot" : "before dot");
    dot.style.left = one.value * 100 + "%";
    node.append(mark, dot);
  }
  return node;
}

// finished: the last evaluation is the one after the training.
function resultNodes(evaluations, finished) {
  if (!evaluations.length) return [element("p", "no data: this run has not been evaluated yet", "empty")];
  const step = (side) => evaluations.map((one) => one[side]).find(Boolean)?.step;
  const [first, last] = [step("before"), step("after")];
  const once = first === last;
  const shares = evaluations.some((one) => isShare(one.estimate));
  const rows = evaluations.map((one) => {
    const share = isShare(one.estimate);
    const estimates = (once ? [one.before] : [one.before, one.after]).filter(Boolean);
    return [
      (SETS[one.set] || [one.set])[0],
      one.estimate,
      estimateParts(one.before, share),
      ...(once ? [] : [estimateParts(one.after, share), changeParts(one, share)]),
      ...(shares ? [share ? spanNode(one.set, estimates) : ""] : []),
    ];
  });
  const heads = ["problems", "measure", "before", ...(once ? [] : [finished ? "after" : "so far", "change"]), ...(shares ? ["0% to 100%"] : [])];
  const paired = evaluations.some((one) => one.change) ? "; the change is paired problem by problem." : ".";
  const steps = once ? "step " + first : "step " + first + " → step " + last;
  return [scrolled(table(heads, rows, "result")), element("p", steps + "; 95% intervals over problems" + paired, "note")];
}

// How the run was started, and its recipe: what differs from the shipped one first.
function aboutNodes(starts, recipe) {
  const nodes = [];
  const wrapped = (heads, rows, name) => scrolled(table(heads, rows, "wrapped"), name);
  if (starts.length) {
    const { shipped, settings } = starts.at(-1);
    const title = shipped ? "Different from the shipped recipe " + shipped : "Settings that the recipe gives";
    const rows = Object.entries(settings).map(([key, [before, now]]) => [key, ...(shipped ? [String(before ?? "none")] : []), String(now ?? "none")]);
    const given = rows.length ? wrapped(["setting", ...(shipped ? [shipped] : []), "here"], rows, title) : element("p", "none", "note");
    const versions = (one) => Object.entries(one.versions).map((pair) => pair.join(" ")).join(", ");
    const began = starts.map((one) => [new Date(one.at * 1000).toLocaleString(), element("code", one.command), one.host, versions(one), one.commit || "–"]);
    nodes.push(element("h3", title), given, element("h3", "Started"), wrapped(["at", "command", "host", "versions", "commit"], began, "starts"));
  }
  const all = element("details");
  const rows = Object.entries(recipe).map(([key, value]) => [key, String(value ?? "none")]);
  all.append(element("summary", "The whole recipe (" + rows.length + " settings)"), wrapped(["setting", "value"], rows, "recipe"));
  return [...nodes, all];
}

function browseRollouts(source) {
  const last = (value, without) => value ?? without;
  return browse({
    source,
    hint: "in prompt, reply, program or reason",
    nothing: "no rollout matches",
    filters: {
      step: { values: (row) => [row.step], label: String },
      problem: { values: (row) => [row.problem], label: String },
      verdict: { values: (row) => [row.verdict], label: words },
    },
    orders: {
      "as sampled": null,
      "newest first": (row) => -row.step,
      "highest reward": (row) => -last(row.reward, -Infinity),
      "lowest reward": (row) => last(row.reward, Infinity),
      "most above its group": (row) => -last(row.above, -Infinity),
      longest: (row) => -row.tokens,
      shortest: (row) => row.tokens,
      "shortest program": (row) => last(row.program_length, Infinity),
      verdict: (row) => row.verdict,
    },
    name: (row) => ({ step: row.step, row: row.row }),
    item: (row) => {
      const sub = "  ·  step " + row.step + "  ·  " + rewardOf(row) + "  ·  " + row.tokens + " tokens";
      return [element("span", row.problem, "id"), verdict(row.verdict), element("span", sub, "sub")];
    },
    detail: rolloutParts,
  });
}

function rolloutParts({ row, siblings }, open) {
  const tags = element("div", null, "tags");
  const [low, high] = row.versions;
  const versions = low === null ? "none" : low === high ? String(low) : low + " to " + high;
  const anchor = element("a", "link to it");
  anchor.href = "#" + new URLSearchParams({ step: row.step, row: row.row });
  const facts = [["", rewardOf(row)], ["step", String(row.step)], ["tokens", String(row.tokens)], ["ended by", row.finish], ["weights", versions]];
  tags.append(verdict(row.verdict), ...facts.map(([label, value]) => fact(label, value)), anchor);
  const parts = [element("p", row.problem, "title"), tags];
  if (row.reason) parts.push(element("h3", "Judge"), element("pre", row.reason));
  parts.push(element("h3", "Prompt"), element("pre", row.prompt, "prompt"));
  parts.push(...judgedParts(row, "no program in the reply", "no case was run"));
  if (siblings.length > 1) parts.push(...siblingParts(siblings, row, open));
  return [...parts, ...replyParts(row.dialogue, row.reply)];
}

function rolloutsIn(rows) {
  return localSource(
    rows,
    (row) => [row.problem, row.prompt, row.reply, row.program || "", row.reason],
    ({ step, row }) => {
      const found = rows.find((one) => one.step === Number(step) && one.row === Number(row));
      if (!found) throw new Error("this page does not hold the rollout in row " + row + " of step " + step);
      return { row: found, siblings: rows.filter((one) => one.step === found.step && one.group === found.group) };
    }
  );
}

function runPage(data) {
  const pairs = comparing();
  const showRollouts = browsing(() => browseRollouts(data.live ? servedSource("/v1/rollouts", { id: query.id }) : rolloutsIn(data.rows)));
  const csv = link("metrics as CSV", "/v1/metrics.csv", { id: query.id });
  let listed = "";
  let draw = () => {};
  drawingControls(byId("drawing"), () => draw());
  byId("note").textContent = data.note || "All rollouts, also while the run goes on. Texts of more than 20,000 characters are cut.";
  byId("signs").hidden = !data.live;
  byId("look").addEventListener("click", showSigns);

  function showState(state) {
    const last = state.at === null ? "" : ", last record " + ago(state.at);
    byId("live").replaceChildren(stateNode(state), "  step " + stepsOf(state) + leftOf(state) + last, "  ·  ", csv);
    byId("roles").hidden = !state.roles.length;
    byId("role-lines").replaceChildren(...state.roles.map((line) => element("li", line)));
  }

  function showPlaces(places) {
    const now = places.map((place) => place.id).join();
    if (now === listed) return;
    listed = now;
    byId("evaluated").hidden = !places.length;
    const rows = places.map((place) => [pairs.box(place.id, place.name), link(place.name, "/evaluation", { id: place.id })]);
    byId("evaluations").replaceChildren(table(["", "evaluation"], rows), pairs.button);
  }

  return ({ page, state, places, count }) => {
    if (page) {
      showHead(page.title, page.facts);
      byId("noted").hidden = !page.notes;
      byId("notes").textContent = page.notes;
      byId("about-parts").replaceChildren(...aboutNodes(page.starts, page.recipe));
      byId("result").replaceChildren(...resultNodes(page.evaluations, page.finished));
      const named = (name) => (panel) => ({ ...panel, title: name + ": " + panel.title });
      const panels = [...page.panels, ...page.partners.flatMap((one) => one.panels.map(named(one.name)))];
      draw = () => showPanels(byId("panels"), panels, page.clocks);
      draw();
    }
    if (state) showState(state);
    showPlaces(places || []);
    showRollouts(count);
  };
}
