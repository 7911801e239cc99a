// The page of an evaluation, or of two that are compared.
function resultsNode(results) {
  const node = element("section", null, "panel wide");
  node.append(element("h2", results.name), scrolled(table(results.heads, results.rows)));
  node.append(...results.notes.map((note) => element("p", note, "note")));
  if (!results.differences.length) return node;
  const list = element("ul", null, "note");
  list.append(...results.differences.map((line) => element("li", line)));
  node.append(element("p", "Differences in how they were measured:", "note"), list);
  return node;
}

function browseProblems(source, two) {
  const share = (row, side) => {
    const { right, n, reward } = row.sides.at(side);
    return right === null ? reward : right / (n || 1);
  };
  const result = ({ right, n, reward }) => (right === null ? "reward " + figure(reward) : right + " of " + n + " right");
  const paired = {
    "most gained": (row) => share(row, 0) - share(row, -1),
    "most lost": (row) => share(row, -1) - share(row, 0),
  };

  function partsOf(reply, side) {
    const tags = element("div", null, "tags");
    tags.append(verdict(reply.verdict), element("span", reply.tokens + " tokens"), element("span", "ended by " + reply.finish));
    if (reply.reward !== null) tags.append(element("span", rewardOf(reply)));
    const parts = [element("h3", (two ? "ab"[side] + ", " : "") + "reply " + reply.index), tags];
    if (reply.reason) parts.push(element("pre", reply.reason));
    parts.push(...judgedParts(reply, "none", "none was run"));
    if (reply.more) parts.push(element("p", reply.more + " more cases are in samples.jsonl", "note"));
    return [...parts, ...replyParts(reply.dialogue, reply.text)];
  }

  return browse({
    source,
    hint: "in ids, replies or programs",
    nothing: "no problem matches",
    filters: {
      benchmark: { values: (row) => [row.benchmark], label: String },
      outcome: { values: (row) => [row.outcome], label: String },
      verdict: { values: (row) => row.verdicts, label: words },
    },
    orders: {
      "as evaluated": null,
      id: (row) => row.id,
      "least right": (row) => share(row, -1),
      "most right": (row) => -share(row, -1),
      ...(two ? paired : {}),
    },
    name: (row) => ({ benchmark: row.benchmark, problem: row.id }),
    item: (row) => {
      const results = row.sides.map(result).join(", then ");
      return [element("span", row.id, "id"), element("span", row.outcome + "  ·  " + results, "sub")];
    },
    detail: (row) => [
      ...[element("p", row.id, "title"), element("h3", "Prompt"), element("pre", row.prompt, "prompt")],
      ...row.sides.flatMap((side, number) => side.replies.flatMap((reply) => partsOf(reply, number))),
    ],
  });
}

function problemsIn(rows) {
  return localSource(
    rows,
    (row) => [row.id, ...row.sides.flatMap((side) => side.replies.flatMap((reply) => [reply.text, reply.program || ""]))],
    ({ benchmark, problem }) => {
      const found = rows.find((one) => one.benchmark === benchmark && one.id === problem);
      if (!found) throw new Error("this page has no problem " + problem);
      return found;
    }
  );
}

function evaluationPage(data) {
  const two = data.live ? Boolean(query.with) : data.rows.some((row) => row.sides.length > 1);
  const source = () => (data.live ? servedSource("/v1/problems", query) : problemsIn(data.rows));
  const showProblems = browsing(() => browseProblems(source(), two));
  byId("note").textContent = data.note || "The first 16 replies to each problem. Texts of more than 20,000 characters are cut in the middle.";
  return ({ page, count }) => {
    if (page) {
      byId("head").replaceChildren(element("h1", page.title));
      byId("results").replaceChildren(...page.results.map(resultsNode));
    }
    if (data.live) byId("live").textContent = count + " replies";
    showProblems(count);
  };
}
