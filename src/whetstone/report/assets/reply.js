// The parts of a judged reply: its program, its cases, its siblings.
function fact(label, value) {
  const node = element("span", label + " ");
  node.append(typeof value === "object" ? value : element("b", value));
  return node;
}

const figure = (number) => String(Number(number.toFixed(3)));

function rewardOf(row) {
  if (row.reward === null) return "no reward";
  const above = row.above === null || row.above === undefined ? "" : " (" + (row.above < 0 ? "" : "+") + figure(row.above) + ")";
  return "reward " + figure(row.reward) + above;
}

// line: the one that a compiler complains of, with what it says.
function programNode(program, line, says) {
  const node = element("pre", null, "program");
  program.replace(/\n$/, "").split("\n").forEach((text, index) => {
    const part = element("span", text + "\n", index + 1 === line ? "line wrong" : "line");
    node.append(part);
    if (index + 1 === line) node.append(element("span", says + "\n", "says"));
  });
  return node;
}

function programParts(reply, nothing) {
  const node = reply.program === null ? element("p", nothing, "empty") : programNode(reply.program, reply.error_line, reply.reason);
  return [element("h3", "Program"), node];
}

// A text with that part of it marked in which it differs from another.
function marked(text, other) {
  let start = 0;
  while (start < text.length && start < other.length && text[start] === other[start]) start += 1;
  let end = 0;
  const most = Math.min(text.length, other.length) - start;
  while (end < most && text[text.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  const rest = text.length - end;
  const node = element("span");
  node.append(text.slice(0, start), ...(rest > start ? [element("mark", text.slice(start, rest))] : []), text.slice(rest));
  return node;
}

function caseParts(cases, nothing) {
  return [element("h3", "Cases"), cases.length ? caseTable(cases) : element("p", nothing, "empty")];
}

function caseTable(cases) {
  const both = cases.some((one) => "got" in one);
  const table = element("table", null, "cases");
  const head = table.createTHead().insertRow();
  const titles = ["case", "verdict", ...(both ? ["expected", "got"] : []), "reason", "CPU", "wall", "peak"];
  for (const title of titles) head.append(element("th", title));
  const body = table.createTBody();
  for (const one of cases) {
    const row = body.insertRow();
    row.insertCell().textContent = one.case;
    row.insertCell().append(verdict(one.verdict));
    for (const [here, there] of both ? [["expected", "got"], ["got", "expected"]] : []) {
      const cell = row.insertCell();
      cell.className = "value";
      if ("got" in one) cell.append(marked(one[here], one[there]));
    }
    const reason = row.insertCell();
    reason.className = "value";
    reason.textContent = one.reason;
    for (const text of [one.cpu_ms + " ms", one.wall_ms + " ms", one.peak_mb + " MiB"]) row.insertCell().textContent = text;
  }
  const scroll = element("div", null, "scroll");
  scroll.append(table);
  return scroll;
}

// Replies to one prompt, each a column; the one that is shown is marked, the others are opened by their heads.
function siblingParts(siblings, shown, open) {
  const place = element("div", null, "siblings");
  for (const row of siblings) {
    const column = element("section");
    const here = row.row === shown.row;
    const head = element(here ? "p" : "button", null, "head");
    if (here) column.setAttribute("aria-current", "true");
    else head.addEventListener("click", () => open({ step: row.step, row: row.row }));
    head.append(verdict(row.verdict), element("span", rewardOf(row)), element("span", row.tokens + " tokens", "sub"));
    column.append(head, row.program === null ? element("p", "no program", "empty") : programNode(row.program, row.error_line, row.reason));
    if (row.reason && row.error_line === null) column.append(element("p", row.reason, "why"));
    place.append(column);
  }
  return [element("h3", "Its group, side by side (in brackets: the reward above the group's mean)"), place];
}
