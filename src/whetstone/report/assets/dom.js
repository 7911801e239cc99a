"use strict";
const byId = (id) => document.getElementById(id);
const words = (name) => name.replaceAll("_", " ");
const percent = (share) => (share * 100).toFixed(1) + "%";
const signed = (number, digits = 1) => (number < 0 ? "" : "+") + number.toFixed(digits);
const isShare = (estimate) => estimate.startsWith("pass@");
// Results without a verdict have the colour of a similar verdict.
const COLORS_OF = { failed: "v-judge_error", solved: "v-accepted", not_solved: "v-wrong_answer", rewarded: "steel", no_result: "stone" };
const query = Object.fromEntries(new URLSearchParams(location.search));

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

// heads: titles of the columns; rows: cells, each a text, a node or a list of them.
function table(heads, rows, name) {
  const node = element("table", null, name);
  if (heads.length) node.createTHead().insertRow().append(...heads.map((title) => element("th", title)));
  const body = node.createTBody();
  for (const cells of rows) {
    const row = body.insertRow();
    for (const cell of cells) row.insertCell().append(...[cell].flat());
  }
  return node;
}

function scrolled(node) {
  const scroll = element("div", null, "scroll");
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
  if (!answer.ok) throw new Error(body.error.message);
  return body;
}
