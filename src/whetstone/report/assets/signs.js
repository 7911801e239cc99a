// Signs that a reward is hacked, each with a link to the rollout.
const SIGNS = {
  rises: ["Sudden rises of a verdict", "Steps at which the share of a verdict is far above the eight steps before."],
  shortest: ["Shortest accepted programs", "The shortest program of each problem."],
  constant: ["Constant outputs", "Accepted programs that do not read their input."],
  looks: ["Programs that inspect their environment", "They name frames, files, modules or processes; accepted ones first."],
  marked: ["Marked judgements", "The verdict comes from the program's own process, where it can be forged."],
};

function riseNode(one) {
  const node = element("li");
  node.append(verdict(one.verdict), "  step " + one.step + ": " + percent(one.share) + ", before " + percent(one.before));
  return node;
}

function signNode(one) {
  const node = element("li");
  const go = element("a", one.problem);
  go.href = "#" + new URLSearchParams({ step: one.step, row: one.row });
  node.append(verdict(one.verdict), " ", go, element("span", "  step " + one.step + (one.why ? "  ·  " + one.why : ""), "sub"));
  const program = one.program || "";
  if (program) node.append(element("pre", program.length > 400 ? program.slice(0, 400) + " …" : program));
  return node;
}

function signsPart(name, count, items) {
  const node = element("details");
  node.append(element("summary", SIGNS[name][0] + ": " + (count || "none")), element("p", SIGNS[name][1], "note"));
  const list = element("ul", null, "signs");
  list.append(...items);
  if (items.length) node.append(list);
  if (count > items.length) node.append(element("p", "the first " + items.length + " of " + count, "note"));
  return node;
}

async function showSigns() {
  const place = byId("found");
  byId("look").disabled = true;
  place.replaceChildren(element("p", "scanning every program", "empty"));
  try {
    const { rises, signs } = await getJson("/v1/signs", { id: query.id });
    const parts = Object.entries(signs).map(([name, found]) => signsPart(name, found.count, found.first.map(signNode)));
    place.replaceChildren(signsPart("rises", rises.length, rises.map(riseNode)), ...parts);
    byId("look").textContent = "Scan again";
  } catch (error) {
    place.replaceChildren(element("p", error.message, "empty"));
  }
  byId("look").disabled = false;
}
