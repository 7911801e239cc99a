// A list next to the details of the selected row.
const PAGE = 100;
const MOST_VALUES = 1000;
const compare = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));

// Rows that are in the page. texts(row): the texts that a search looks in; open(name): the details of a row.
function localSource(rows, texts, open) {
  return {
    rows: async () => rows,
    search: async (text) => rows.flatMap((row, i) => (texts(row).some((part) => part.toLowerCase().includes(text.toLowerCase())) ? [i] : [])),
    open: async (name) => open(name),
  };
}

// Rows that a server has. query: the ids of the run or of the evaluations.
function servedSource(path, query) {
  return {
    rows: async () => {
      const { fields, rows } = await getJson(path, query);
      return fields ? rows.map((row) => Object.fromEntries(fields.map((field, i) => [field, row[i]]))) : rows;
    },
    search: (text) => getJson(path + "/search", { ...query, text }),
    open: (name) => getJson(path + "/one", { ...query, ...name }),
  };
}

// The rows that pass the filters and are among those that a search found, in an order.
function selectRows(rows, { filters, chosen, found, order }) {
  const passed = (found ? found.map((i) => rows[i]).filter(Boolean) : rows).filter((row) =>
    Object.entries(chosen).every(([key, value]) => filters[key].values(row).map(String).includes(value))
  );
  if (!order) return found ? passed : [...passed];
  return passed.map((row) => [order(row), row]).sort((a, b) => compare(a[0], b[0])).map(([, row]) => row);
}

function countValues(rows, values) {
  const counts = new Map();
  for (const row of rows) for (const value of values(row)) counts.set(value, (counts.get(value) || 0) + 1);
  return [...counts].sort((a, b) => compare(a[0], b[0]));
}

// The controls above a list and the two columns below, as nodes with ids.
function browserNodes(place, filters, orders, hint) {
  const bar = element("div", null, "filters");
  const labelled = (text, control, id, name) => {
    const label = element("label", text + " ", name);
    control.id = id;
    label.append(control);
    bar.append(label);
  };
  for (const key of Object.keys(filters)) labelled(key, element("select"), "f-" + key);
  labelled("order", element("select"), "f-sort");
  byIdIn(bar, "f-sort").append(...Object.keys(orders).map((name) => new Option(name)));
  const search = element("input");
  search.type = "search";
  search.placeholder = hint;
  labelled("text", search, "f-text", "grow");
  const count = element("output");
  count.id = "f-count";
  const more = element("button", "", "go");
  more.id = "f-new";
  more.hidden = true;
  bar.append(count, more);
  const split = element("div", null, "split");
  const list = element("ol");
  Object.assign(list, { id: "list", tabIndex: 0, ariaLabel: "rows", role: "listbox" });
  const detail = element("article");
  Object.assign(detail, { id: "detail", ariaLive: "polite", ariaLabel: "details", tabIndex: 0 });
  split.append(list, detail);
  place.replaceChildren(bar, split);
}

const byIdIn = (root, id) => root.querySelector("#" + id);

// filters: name -> { values(row), label }; orders: name -> the value by which rows are sorted, or null; name(row):
// the words that open a row and link to it; item, detail: the nodes that show it; nothing: the text for an empty list.
function browse({ source, filters, orders, hint, name, item, detail, nothing }) {
  browserNodes(byId("browser"), filters, orders, hint);
  const list = byId("list");
  const search = byId("f-text");
  const sort = byId("f-sort");
  const selects = Object.entries(filters).map(([key, filter]) => [key, byId("f-" + key), filter]);
  let rows = [];
  let found = [];
  let selected = -1;
  let searches = 0;
  let opened = 0;
  let timer = 0;

  function fill() {
    for (const [, select, { values, label }] of selects) {
      const before = select.value;
      const counts = countValues(rows, values);
      select.replaceChildren(new Option("all", ""));
      for (const [value, count] of counts.slice(0, MOST_VALUES)) select.append(new Option(label(value) + " (" + count + ")", String(value)));
      if (counts.length > MOST_VALUES) select.append(new Option(counts.length - MOST_VALUES + " more: search for their text", ""));
      select.value = before;
      if (select.selectedIndex < 0) select.value = "";
    }
  }

  async function update() {
    const number = (searches += 1);
    const chosen = Object.fromEntries(selects.filter(([, select]) => select.value).map(([key, select]) => [key, select.value]));
    list.setAttribute("aria-busy", "true");
    try {
      const hits = search.value ? await source.search(search.value) : null;
      if (number !== searches) return false;
      found = selectRows(rows, { filters, chosen, found: hits, order: orders[sort.value] });
    } catch (error) {
      if (number === searches) byId("f-count").textContent = error.message;
      return false;
    }
    byId("f-count").textContent = found.length + " of " + rows.length;
    list.replaceChildren();
    list.removeAttribute("aria-busy");
    append();
    return true;
  }

  function append() {
    const start = list.children.length;
    list.append(...found.slice(start, start + PAGE).map((row, i) => line(row, start + i)));
  }

  function line(row, index) {
    const node = element("li");
    node.setAttribute("role", "option");
    node.append(...item(row));
    node.addEventListener("click", () => show(index, true));
    return node;
  }

  async function refresh() {
    if (!(await update())) return;
    list.scrollTop = 0;
    show(found.length ? 0 : -1, false);
  }

  function show(index, linked) {
    selected = index;
    [...list.children].forEach((node, i) => node.setAttribute("aria-selected", String(i === index)));
    if (index < 0) return byId("detail").replaceChildren(element("p", nothing, "empty"));
    const top = list.children[index].offsetTop - list.offsetTop;
    if (top < list.scrollTop) list.scrollTop = top;
    const over = top + list.children[index].offsetHeight - list.clientHeight;
    if (over > list.scrollTop) list.scrollTop = over;
    return open(name(found[index]), linked);
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

  async function follow() {
    const wanted = location.hash.slice(1);
    const index = found.findIndex((row) => String(new URLSearchParams(name(row))) === wanted);
    // A row far down is not in the list yet, and is opened without it.
    await (list.children[index] ? show(index, false) : open(Object.fromEntries(new URLSearchParams(wanted)), false));
    byId("detail").scrollIntoView({ block: "nearest" });
  }

  async function load() {
    rows = await source.rows();
    fill();
    await refresh();
  }

  addEventListener("keydown", (event) => {
    const inList = event.target === list;
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    const move = { j: 1, k: -1, ...(inList ? { ArrowDown: 1, ArrowUp: -1 } : {}) }[event.key];
    if (!move || !found.length) return;
    event.preventDefault();
    if (selected + move >= list.children.length) append();
    show(Math.min(Math.max(selected + move, 0), list.children.length - 1), true);
  });
  list.addEventListener("scroll", () => {
    if (list.scrollTop + list.clientHeight > list.scrollHeight - 400) append();
  });
  for (const select of [...selects.map(([, select]) => select), sort]) select.addEventListener("change", refresh);
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(refresh, 200);
  });
  addEventListener("hashchange", follow);

  const linked = location.hash.length > 1;
  load().then(() => linked && follow());
  return load;
}

// Shows a browser as soon as there are rows. Later it offers new rows in a button, which does not disturb a reader.
function browsing(make) {
  let load = null;
  let shown = 0;
  return (count) => {
    if (!count && !load) return byId("browser").replaceChildren(element("p", "no data", "empty"));
    if (!load) {
      load = make();
      shown = count;
      byId("f-new").addEventListener("click", () => {
        byId("f-new").hidden = true;
        shown = Number(byId("f-new").value);
        load();
      });
    }
    byId("f-new").value = count;
    byId("f-new").hidden = count === shown;
    byId("f-new").textContent = count > shown ? "show " + (count - shown) + " new" : "show the current rows";
  };
}
