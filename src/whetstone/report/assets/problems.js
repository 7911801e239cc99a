(() => {
  const data = JSON.parse(byId("data").textContent);
  const right = (problem, side) => problem.sides[side].right / (problem.sides[side].n || 1);
  const last = data.sides.length - 1;
  browseProblems(
    localSource({
      things: data.problems,
      keys: {
        benchmark: (problem) => [problem.benchmark],
        outcome: (problem) => [problem.outcome],
        verdict: (problem) => [...new Set(problem.sides.flatMap((side) => side.replies.map((reply) => reply.verdict)))],
      },
      texts: (problem) =>
        [problem.id, problem.prompt, ...problem.sides.flatMap((side) => side.replies.flatMap((one) => [one.text, one.program || ""]))],
      orders: {
        id: (problem) => problem.id,
        "least right": (problem) => right(problem, last),
        "most right": (problem) => -right(problem, last),
        "most gained": (problem) => right(problem, 0) - right(problem, last),
        "most lost": (problem) => right(problem, last) - right(problem, 0),
      },
      open: ({ benchmark, problem }) => {
        const found = data.problems.find((one) => one.benchmark === benchmark && one.id === problem);
        if (!found) throw new Error("this page has no problem " + problem);
        return found;
      },
    }),
    data.sides
  );
})();
