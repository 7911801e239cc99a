// The browser of an evaluation's problems, or of two evaluations', over whatever source has them.
function browseProblems(source, sides) {
  const two = sides.length === 2;

  function replyParts(reply, side) {
    const title = (two ? side + ", " : "") + "reply " + reply.index;
    const tags = element("div", null, "tags");
    tags.append(verdict(reply.verdict), element("span", reply.tokens + " tokens"), element("span", "ended by " + reply.finish));
    const parts = [element("h3", title), tags];
    if (reply.reason) parts.push(element("pre", reply.reason));
    parts.push(...programParts(reply, "none"), ...caseParts(reply.cases, "none was run"));
    if (reply.more) parts.push(element("p", reply.more + " more cases stand in samples.jsonl", "note"));
    return [...parts, element("h3", "Reply"), element("pre", reply.text)];
  }

  return browse({
    source,
    nothing: "no problem matches",
    labels: { benchmark: String, outcome: String, verdict: words },
    name: (problem) => ({ benchmark: problem.benchmark, problem: problem.id }),
    item: (problem) => {
      const right = problem.sides.map((side) => side.right + " of " + side.n).join(", then ");
      return [element("span", problem.id, "id"), element("span", problem.outcome + "  ·  " + right + " right", "sub")];
    },
    detail: (problem) => [
      ...[element("p", problem.id, "title"), element("h3", "Prompt"), element("pre", problem.prompt, "prompt")],
      ...problem.sides.flatMap((side, number) => side.replies.flatMap((reply) => replyParts(reply, sides[number]))),
    ],
  });
}
