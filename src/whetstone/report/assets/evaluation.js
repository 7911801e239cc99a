(() => {
  const data = JSON.parse(byId("data").textContent);
  const two = data.sides.length === 2;
  const share = (side) => (side.n ? side.right / side.n : 0);

  function outcome(problem) {
    const [a, b] = problem.sides.map(share);
    if (two) return b > a ? "gained" : b < a ? "lost" : a === 1 ? "right in both" : a === 0 ? "wrong in both" : "equal";
    return a === 1 ? "always right" : a === 0 ? "never right" : "sometimes right";
  }

  function replyParts(reply, side) {
    const title = (two ? side + ", " : "") + "reply " + reply.index;
    const tags = element("div", null, "tags");
    tags.append(verdict(reply.verdict), element("span", reply.tokens + " tokens"), element("span", "ended by " + reply.finish));
    const parts = [element("h3", title), tags];
    if (reply.reason) parts.push(element("pre", reply.reason));
    parts.push(element("h3", "Reply"), element("pre", reply.text));
    parts.push(...programParts(reply.program, "none"), ...caseParts(reply.cases, "none was run"));
    if (reply.more) parts.push(element("p", reply.more + " more cases stand in samples.jsonl", "note"));
    return parts;
  }

  browse({
    things: data.problems,
    nothing: "no problem matches",
    keys: {
      benchmark: (problem) => [problem.benchmark],
      outcome: (problem) => [outcome(problem)],
      verdict: (problem) => [...new Set(problem.sides.flatMap((side) => side.replies.map((reply) => reply.verdict)))],
    },
    texts: (problem) =>
      [problem.id, problem.prompt, ...problem.sides.flatMap((side) => side.replies.flatMap((one) => [one.text, one.program || ""]))],
    item: (problem) => {
      const right = problem.sides.map((side) => side.right + " of " + side.n).join(", then ");
      return [element("span", problem.id, "id"), element("span", outcome(problem) + "  ·  " + right + " right", "sub")];
    },
    detail: (problem) => [
      ...[element("p", problem.id, "title"), element("h3", "Prompt"), element("pre", problem.prompt)],
      ...problem.sides.flatMap((side, number) => side.replies.flatMap((reply) => replyParts(reply, data.sides[number]))),
    ],
  });
})();
