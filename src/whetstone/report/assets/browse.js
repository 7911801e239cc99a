"use strict";
const byId = (id) => document.getElementById(id);
const words = (name) => name.replaceAll("_", " ");
const PAGE = 100;

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

// What a list shows comes from a source: values() of its filters, a page() of rows, open() one of them.
// Here all of them are in the page. keys: filter -> the values of a thing; texts: those that are searched;
// orders: name -> the number or text by which things are put in order.
function localSource({ things, keys, texts, orders = {}, open }) {
  const compare = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));

  function counted(values) {
    const counts = new Map();
    for (const thing of things) for (const value of values(thing)) counts.set(value, (counts.get(value) || 0) + 1);
    return { values: [...counts].sort((a, b) => compare(a[0], b[0])), more: 0 };
  }

  return {
    values: async () => Object.fromEntries(Object.entries(keys).map(([key, values]) => [key, counted(values)])),
    page: async ({ filters, text, sort, start, count }) => {
      const wanted = text.toLowerCase();
      const found = things.filter(
        (thing) =>
          Object.entries(filters).every(([key, value]) => keys[key](thing).map(String).includes(value)) &&
          (!wanted || texts(thing).some((part) => part.toLowerCase().includes(wanted)))
      );
      if (orders[sort]) found.sort((a, b) => compare(orders[sort](a), orders[sort](b)));
      return { rows: found.slice(start, start + count), found: found.length, of: things.length };
    },
    open: async (name) => open(name),
  };
}

async function askJson(path, query) {
  const answer = await fetch(path + "?" + new URLSearchParams(query));
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error.message);
  return body;
}

// Here a server has them. query: what says of which run or evaluation they are.
function remoteSource(path, query) {
  return {
    values: () => askJson(path + "/values", query),
    page: ({ filters, text, sort, start, count }) =>
      askJson(path, { ...query, ...filters, text, sort, start: String(start), count: String(count) }),
    open: (name) => askJson(path + "/one", { ...query, ...name }),
  };
}

// A list beside the details of the one that is chosen. labels: filter -> how its values are written; name: the
// words by which the source opens a row, and by which it is linked; item, detail: the nodes that show it;
// nothing: said where nothing is left.
function browse({ source, labels, name, item, detail, nothing }) {
  const list = byId("list");
  const search = byId("f-text");
  const sort = byId("f-sort");
  const filters = Object.entries(labels).map(([key, label]) => [key, byId("f-" + key), label]);
  let rows = [];
  let found = 0;
  let selected = -1;
  let asked = 0;
  let opened = 0;
  let waiting = 0;

  const chosen = () => Object.fromEntries(filters.filter(([, select]) => select.value).map(([key, select]) => [key, select.value]));

  async function fill() {
    const values = await source.values();
    for (const [key, select, label] of filters) {
      const before = select.value;
      select.replaceChildren(new Option("all", ""));
      for (const [value, count] of values[key].values) select.append(new Option(label(value) + " (" + count + ")", String(value)));
      if (values[key].more) select.append(new Option(values[key].more + " more: search for them by text", ""));
      select.value = before;
      if (select.selectedIndex < 0) select.value = "";
    }
  }

  async function load(start) {
    const number = (asked += 1);
    const query = { filters: chosen(), text: search.value, sort: sort ? sort.value : "", start, count: PAGE };
    list.setAttribute("aria-busy", "true");
    try {
      const page = await source.page(query);
      if (number !== asked) return false;
      found = page.found;
      if (start === 0) rows = [];
      rows.push(...page.rows);
      byId("f-count").textContent = page.found + " of " + page.of;
      if (start === 0) list.replaceChildren();
      list.append(...page.rows.map((row, index) => line(row, start + index)));
      list.removeAttribute("aria-busy");
      return true;
    } catch (error) {
      if (number === asked) byId("f-count").textContent = error.message;
      return false;
    }
  }

  function line(row, index) {
    const node = element("li");
    node.setAttribute("role", "option");
    node.append(...item(row));
    node.addEventListener("click", () => show(index, true));
    return node;
  }

  async function refresh() {
    if (!(await load(0))) return;
    list.scrollTop = 0;
    show(rows.length ? 0 : -1, false);
  }

  function show(index, linked) {
    selected = index;
    [...list.children].forEach((node, i) => node.setAttribute("aria-selected", String(i === index)));
    if (index < 0) return byId("detail").replaceChildren(element("p", nothing, "empty"));
    const top = list.children[index].offsetTop - list.offsetTop;
    if (top < list.scrollTop) list.scrollTop = top;
    const over = top + list.children[index].offsetHeight - list.clientHeight;
    if (over > list.scrollTop) list.scrollTop = over;
    return open(name(rows[index]), linked);
  }

  async function open(which, linked) {
    const place = byId("detail");
    const number = (opened += 1);
    if (linked) history.replaceState(null, "", "#" + new URLSearchParams(which));
    let parts;
    try {
      parts = detail(await source.open(which), (other) => open(other, true));
    } catch (error) {
      parts = [element("p", error.message, "empty")];
    }
    if (number !== opened) return;
    place.replaceChildren(...parts);
    place.scrollTop = 0;
  }

  list.setAttribute("role", "listbox");
  list.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move || !rows.length) return;
    event.preventDefault();
    show(Math.min(Math.max(selected + move, 0), rows.length - 1), true);
  });
  list.addEventListener("scroll", () => {
    const end = list.scrollTop + list.clientHeight > list.scrollHeight - 400;
    if (end && rows.length < found && !list.hasAttribute("aria-busy")) load(rows.length);
  });
  for (const select of [...filters.map(([, select]) => select), sort]) if (select) select.addEventListener("change", refresh);
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(refresh, 200);
  });

  async function follow() {
    await open(Object.fromEntries(new URLSearchParams(location.hash.slice(1))), false);
    byId("detail").scrollIntoView({ block: "nearest" });
  }

  async function begin() {
    addEventListener("hashchange", follow);
    await fill();
    if (location.hash.length < 2) return refresh();
    await load(0);
    return follow();
  }

  return { ready: begin(), fill, refresh };
}
