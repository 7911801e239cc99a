"use strict";
const byId = (id) => document.getElementById(id);
const words = (name) => name.replaceAll("_", " ");

// Text of others is only ever put into the page as the text of a node: nothing of it is read as markup.
function element(tag, text, name) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (name) node.className = name;
  return node;
}

function verdict(name) {
  const node = element("span", words(name), "verdict");
  node.style.setProperty("--c", "var(--v-" + (name === "failed" ? "judge_error" : name) + ")");
  return node;
}

function programParts(program, nothing) {
  return [element("h3", "Program"), program === null ? element("p", nothing, "empty") : element("pre", program)];
}

function caseParts(cases, nothing) {
  return [element("h3", "Cases"), cases.length ? caseTable(cases) : element("p", nothing, "empty")];
}

function caseTable(cases) {
  const timed = "wall_ms" in cases[0];
  const table = element("table", null, "cases");
  const head = table.createTHead().insertRow();
  for (const title of ["case", "verdict", "CPU", ...(timed ? ["wall"] : []), "peak", "reason"]) head.append(element("th", title));
  const body = table.createTBody();
  cases.forEach((one, index) => {
    const row = body.insertRow();
    row.insertCell().textContent = index + 1;
    row.insertCell().append(verdict(one.verdict));
    row.insertCell().textContent = one.cpu_ms + " ms";
    if (timed) row.insertCell().textContent = one.wall_ms + " ms";
    row.insertCell().textContent = one.peak_mb + " MiB";
    row.insertCell().textContent = one.reason;
  });
  return table;
}

// A list beside the details of the one that is chosen. keys: filter -> the values of a thing; texts: those
// that are searched; item, detail: the nodes that show a thing; nothing: said where nothing is left.
function browse({ things, keys, texts, item, detail, nothing }) {
  const list = byId("list");
  const search = byId("f-text");
  const filters = Object.entries(keys).map(([key, values]) => [byId("f-" + key), values, key === "verdict" ? words : String]);
  let shown = [];
  let selected = -1;

  function fill(select, values, label) {
    const counts = new Map();
    for (const thing of things) for (const value of values(thing)) counts.set(value, (counts.get(value) || 0) + 1);
    const sorted = [...counts.keys()].sort((a, b) => (typeof a === "number" ? a - b : a.localeCompare(b)));
    select.append(new Option("all", ""));
    for (const value of sorted) select.append(new Option(label(value) + " (" + counts.get(value) + ")", String(value)));
  }

  function refresh() {
    const text = search.value.toLowerCase();
    shown = things.filter(
      (thing) =>
        filters.every(([select, values]) => !select.value || values(thing).map(String).includes(select.value)) &&
        (!text || texts(thing).some((part) => part.toLowerCase().includes(text)))
    );
    byId("f-count").textContent = shown.length + " of " + things.length;
    list.replaceChildren(
      ...shown.map((thing, index) => {
        const node = element("li");
        node.setAttribute("role", "option");
        node.append(...item(thing));
        node.addEventListener("click", () => show(index));
        return node;
      })
    );
    show(shown.length ? 0 : -1);
  }

  function show(index) {
    selected = index;
    [...list.children].forEach((node, i) => node.setAttribute("aria-selected", String(i === index)));
    const place = byId("detail");
    if (index < 0) return place.replaceChildren(element("p", nothing, "empty"));
    place.replaceChildren(...detail(shown[index]));
    place.scrollTop = 0;
    list.children[index].scrollIntoView({ block: "nearest" });
  }

  list.setAttribute("role", "listbox");
  list.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move || !shown.length) return;
    event.preventDefault();
    show(Math.min(Math.max(selected + move, 0), shown.length - 1));
  });
  for (const [select, values, label] of filters) {
    fill(select, values, label);
    select.addEventListener("change", refresh);
  }
  search.addEventListener("input", refresh);
  // Showing the first one must not scroll the page to the browser.
  const place = scrollY;
  refresh();
  scrollTo(0, place);
}
