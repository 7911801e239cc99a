"use strict";
const byId = (id) => document.getElementById(id);
const words = (name) => name.replaceAll("_", " ");
const percent = (share) => rounded(share * 100) + "%";
const signed = (number, digits = 1) => (number < 0 ? "" : "+") + rounded(number, digits);
const isShare = (estimate) => estimate.startsWith("pass@");
// Results without a verdict have the colour of a similar verdict.
const COLORS_OF = { failed: "v-judge_error", solved: "v-accepted", not_solved: "v-wrong_answer", rewarded: "steel", no_result: "stone" };
const query = Object.fromEntries(new URLSearchParams(location.search));

// A tie is rounded to an even digit, as in the tables of the server and of the terminal.
function rounded(number, digits = 1) {
  const text = number.toFixed(digits);
  const exact = number.toFixed(30);
  const tie = /^50*$/.test(exact.slice(digits - 30));
  return tie && Number(text.at(-1)) % 2 ? exact.slice(0, digits - 30) : text;
}

// Text from outside enters the page only as a text node. None of it is parsed as markup.
function element(tag, text, name) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (name) node.className = name;
  return node;
}

function verdict(name) {
  const node = element("span", words(name), "verdict");
  node.style.setProperty("--c", "var(--" + (COLORS_OF[name] || "v-" + name) + ")");
  return node;
}

function link(text, path, query) {
  const node = element("a", text);
  node.href = path + "?" + new URLSearchParams(query);
  return node;
}

// heads: titles of the columns, each a text or a node; rows: cells, each a text, a node or a list of them. On a narrow
// screen a row becomes a list of its cells with their titles.
function table(heads, rows, name = "") {
  const node = element("table", null, name + (heads.length ? " stack" : ""));
  const cell = (tag, parts) => {
    const one = element(tag);
    one.append(...[parts].flat());
    return one;
  };
  if (heads.length) node.createTHead().insertRow().append(...heads.map((title) => cell(title ? "th" : "td", title)));
  const body = node.createTBody();
  for (const cells of rows) {
    const row = body.insertRow();
    row.append(...cells.map((parts) => cell("td", parts)));
    heads.forEach((title, i) => (row.cells[i].dataset.head = title.textContent ?? title));
  }
  return node;
}

// A region that scrolls, which keys can reach.
function scrolled(node, name = "table") {
  const scroll = element("div", null, "scroll");
  Object.assign(scroll, { tabIndex: 0, role: "group", ariaLabel: name });
  scroll.append(node);
  return scroll;
}

function ago(at) {
  const seconds = Date.now() / 1000 - at;
  if (seconds < 90) return Math.max(0, Math.round(seconds)) + " s ago";
  if (seconds < 5400) return Math.round(seconds / 60) + " min ago";
  return seconds < 129600 ? Math.round(seconds / 3600) + " h ago" : Math.round(seconds / 86400) + " days ago";
}

async function getJson(path, query) {
  const answer = await fetch(path + "?" + new URLSearchParams(query));
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error.message), { refused: true });
  return body;
}
