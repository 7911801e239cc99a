// The parts of a judged reply: its program, its cases, its siblings.
function fact(label, value) {
  const node = element("span", label + " ");
  node.append(typeof value === "object" ? value : element("b", value));
  return node;
}

const figure = (number) => String(Number(rounded(number, 3)));

function rewardOf(row) {
  if (row.reward === null) return "no reward";
  const above = row.above === null || row.above === undefined ? "" : " (" + (row.above < 0 ? "" : "+") + figure(row.above) + ")";
  return "reward " + figure(row.reward) + above;
}

// line: the line that the compiler rejects; says: its message.
function programNode(program, line, says) {
  const node = element("pre", null, "program");
  program.replace(/\n$/, "").split("\n").forEach((text, index) => {
    const part = element("span", text + "\n", index + 1 === line ? "line wrong" : "line");
    node.append(part);
    if (index + 1 === line) node.append(element("span", says + "\n", "says"));
  });
  return node;
}

// The turns of an episode, or a single reply.
function replyParts(dialogue, text) {
  if (!dialogue.length) return [element("h3", "Reply"), element("pre", text)];
  let turn = 0;
  return dialogue.flatMap(([role, said]) => {
    const own = role === "assistant";
    if (own) turn += 1;
    return [element("h3", own ? "Reply, turn " + turn : words(role)), element("pre", said, own ? "" : "given")];
  });
}

// Program and cases; nothing for a reply that no judge was asked about.
function judgedParts(reply, noProgram, noCase) {
  const judged = !(reply.verdict in COLORS_OF) || reply.verdict === "failed";
  if (!judged && reply.program === null) return [];
  return [...programParts(reply, noProgram), ...(judged || reply.cases.length ? caseParts(reply.cases, noCase) : [])];
}

function programParts(reply, nothing) {
  const node = reply.program === null ? element("p", nothing, "empty") : programNode(reply.program, reply.error_line, reply.reason);
  return [element("h3", "Program"), node];
}

// A text in which the words that differ from those of another text are marked. Texts of as many words are compared
// word by word; of others the part between the equal beginning and the equal end is marked.
function marked(text, other) {
  const words = (whole) => whole.match(/\s+|[\p{L}\p{N}_.+-]+|[^]/gu) || [];
  const [a, b] = [words(text), words(other)];
  const most = Math.min(a.length, b.length);
  let start = 0;
  while (start < most && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < most - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const same = (i) => (a.length === b.length ? a[i] === b[i] : i < start || i >= a.length - end);
  const node = element("span");
  a.forEach((word, i) => node.append(same(i) ? word : element("mark", word)));
  return node;
}

function caseParts(cases, nothing) {
  return [element("h3", "Cases"), cases.length ? caseTable(cases) : element("p", nothing, "empty")];
}

function caseTable(cases) {
  const both = cases.some((one) => "got" in one);
  const inputs = cases.some((one) => "input" in one);
  const value = (...parts) => {
    const node = element("span", null, "value");
    node.append(...parts);
    return node;
  };
  const rows = cases.map((one) => [
    String(one.case),
    verdict(one.verdict),
    ...(inputs ? [value(one.input ?? "")] : []),
    ...(both ? [["expected", "got"], ["got", "expected"]] : []).map(([here, there]) => ("got" in one ? value(marked(one[here], one[there])) : "")),
    value(one.reason),
    ...[one.cpu_ms + " ms", one.wall_ms + " ms", one.peak_mb + " MiB"],
  ]);
  return scrolled(table(["case", "verdict", ...(inputs ? ["input"] : []), ...(both ? ["expected", "got"] : []), "reason", "CPU", "wall", "peak"], rows, "cases"), "cases");
}

function siblingText(row) {
  if (row.program !== null) return programNode(row.program, row.error_line, row.reason);
  if (row.verdict === "no_code") return element("p", "no program", "empty");
  return element("pre", row.dialogue.length ? row.dialogue.at(-1)[1] : row.reply);
}

// Replies to one prompt in columns. The selected one is marked; the heads of the others open them.
function siblingParts(siblings, shown, open) {
  const place = element("div", null, "siblings");
  for (const row of siblings) {
    const column = element("section");
    const here = row.row === shown.row;
    const head = element(here ? "p" : "button", null, "head");
    if (here) column.setAttribute("aria-current", "true");
    else head.addEventListener("click", () => open({ step: row.step, row: row.row }));
    head.append(verdict(row.verdict), element("span", rewardOf(row)), element("span", row.tokens + " tokens", "sub"));
    column.append(head, siblingText(row));
    if (row.reason && row.error_line === null) column.append(element("p", row.reason, "why"));
    place.append(column);
  }
  return [element("h3", "Its group (in brackets: the reward minus the group's mean)"), place];
}
