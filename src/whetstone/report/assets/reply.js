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

// A text in which the words that another text does not have in this order are marked.
function marked(text, other) {
  const words = (whole) => whole.match(/\s+|[\p{L}\p{N}_.+-]+|[^]/gu) || [];
  const [a, b] = [words(text), words(other)];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < Math.min(a.length, b.length) - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const kept = commonWords(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const node = element("span");
  let different = "";
  a.forEach((word, i) => {
    const same = i < start || i >= a.length - end || kept.has(i - start);
    if (!same) different += word;
    if (different && (same || i === a.length - 1)) {
      node.append(element("mark", different));
      different = "";
    }
    if (same) node.append(word);
  });
  return node;
}

// The places in a of a longest common subsequence of two lists of words; none for long lists, which take too long.
function commonWords(a, b) {
  const kept = new Set();
  if (a.length * b.length > 250000) return kept;
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) {
      kept.add(i);
      i += 1;
      j += 1;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return kept;
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
