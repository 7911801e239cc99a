(() => {
  const data = JSON.parse(byId("data").textContent);
  showCharts(document, data.charts);
  if (!data.rollouts.length) return;
  byId("no-rollouts").hidden = true;
  document.querySelector(".browser").hidden = false;
  const last = (value, without) => (value === null || value === undefined ? without : value);
  browseRollouts(
    localSource({
      things: data.rollouts,
      keys: { step: (row) => [row.step], problem: (row) => [row.problem], verdict: (row) => [row.verdict] },
      texts: (row) => [row.problem, row.prompt, row.reply, row.program || "", row.reason],
      orders: {
        "newest first": (row) => -row.step,
        "highest reward": (row) => -last(row.reward, -Infinity),
        "lowest reward": (row) => last(row.reward, Infinity),
        "most above its group": (row) => -last(row.above, -Infinity),
        longest: (row) => -row.tokens,
        shortest: (row) => row.tokens,
        "shortest program": (row) => (row.program === null ? Infinity : row.program_length),
        verdict: (row) => row.verdict,
      },
      open: ({ step, row }) => {
        const found = data.rollouts.find((one) => one.step === Number(step) && one.row === Number(row));
        if (!found) throw new Error("this page does not hold the rollout in row " + row + " of step " + step);
        return { row: found, siblings: data.rollouts.filter((one) => one.step === found.step && one.group === found.group) };
      },
    })
  );
})();
