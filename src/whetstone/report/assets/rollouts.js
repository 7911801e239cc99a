// The browser of rollouts, over whatever source has them.
function browseRollouts(source) {
  function detail({ row, siblings }, open) {
    const tags = element("div", null, "tags");
    const [low, high] = row.versions;
    const versions = low === null ? "none" : low === high ? String(low) : low + " to " + high;
    tags.append(
      verdict(row.verdict),
      fact("", rewardOf(row)),
      fact("step", String(row.step)),
      fact("tokens", String(row.tokens)),
      fact("ended by", row.finish),
      fact("weights", versions)
    );
    const link = element("a", "link to it");
    link.href = "#" + new URLSearchParams({ step: row.step, row: row.row });
    tags.append(link);
    const parts = [element("p", row.problem, "title"), tags];
    if (row.reason) parts.push(element("h3", "Judge"), element("pre", row.reason));
    parts.push(element("h3", "Prompt"), element("pre", row.prompt, "prompt"));
    parts.push(...programParts(row, "no program in the reply"), ...caseParts(row.cases, "no case was run"));
    if (siblings.length > 1) parts.push(...siblingParts(siblings, row, open));
    return [...parts, element("h3", "Reply"), element("pre", row.reply)];
  }

  return browse({
    source,
    nothing: "no rollout matches",
    labels: { step: String, problem: String, verdict: words },
    name: (row) => ({ step: row.step, row: row.row }),
    item: (row) => {
      const sub = element("span", "  ·  step " + row.step + "  ·  " + rewardOf(row) + "  ·  " + row.tokens + " tokens", "sub");
      return [element("span", row.problem, "id"), verdict(row.verdict), sub];
    },
    detail,
  });
}
