// What may be a hacked reward: places to look at, each with a link to the rollout.
(() => {
  const titles = {
    rises: ["Sudden rises of a verdict", "Steps at which a verdict's share is far above what it was over the eight steps before."],
    shortest: ["Shortest accepted programs", "The shortest of each problem."],
    constant: ["Constant outputs", "Accepted programs that read nothing of what they are asked."],
    looks: ["Programs that look around", "They name frames, files, modules or processes; the accepted ones first."],
    marked: ["Marked judgements", "Their verdict was reached in the program's own process, where it can be forged."],
  };

  function rise(one) {
    const node = element("li");
    node.append(verdict(one.verdict), "  step " + one.step + ": " + percent(one.share) + ", before " + percent(one.before));
    return node;
  }

  function sign(one) {
    const node = element("li");
    const go = element("a", one.problem);
    go.href = "#" + new URLSearchParams({ step: one.step, row: one.row });
    node.append(verdict(one.verdict), " ", go, element("span", "  step " + one.step + (one.why ? "  ·  " + one.why : ""), "sub"));
    const program = one.program || "";
    if (program) node.append(element("pre", program.length > 400 ? program.slice(0, 400) + " …" : program));
    return node;
  }

  function part(name, count, items) {
    const node = element("details");
    node.append(element("summary", titles[name][0] + ": " + (count || "none")), element("p", titles[name][1], "note"));
    const list = element("ul", null, "signs");
    list.append(...items);
    if (items.length) node.append(list);
    if (count > items.length) node.append(element("p", "the first " + items.length + " of " + count, "note"));
    return node;
  }

  byId("look").addEventListener("click", async () => {
    const place = byId("found");
    byId("look").disabled = true;
    place.replaceChildren(element("p", "reading every program", "empty"));
    try {
      const { rises, signs } = await askJson("/v1/signs", { id: asked.id });
      place.replaceChildren(
        part("rises", rises.length, rises.map(rise)),
        ...Object.entries(signs).map(([name, found]) => part(name, found.count, found.first.map(sign)))
      );
      byId("look").textContent = "Look again";
    } catch (error) {
      place.replaceChildren(element("p", error.message, "empty"));
    }
    byId("look").disabled = false;
  });
})();
