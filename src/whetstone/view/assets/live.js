// What a page asks the server again and again, and the rows that its lists are made of.
const asked = Object.fromEntries(new URLSearchParams(location.search));

// Asks at once, and then every so many seconds while the page is looked at; given() says with which words.
function poll(path, given, seconds, show) {
  async function once() {
    if (!document.hidden) {
      try {
        const answer = await askJson(path, given());
        show(answer);
        byId("live").dataset.state = "there";
      } catch (error) {
        byId("live").textContent = "The server does not answer: " + error.message;
        byId("live").dataset.state = "gone";
      }
    }
    setTimeout(once, seconds * 1000);
  }
  once();
}

const percent = (share) => (share * 100).toFixed(1) + "%";

function ago(at) {
  const seconds = Date.now() / 1000 - at;
  if (seconds < 90) return Math.max(0, Math.round(seconds)) + " s ago";
  if (seconds < 5400) return Math.round(seconds / 60) + " min ago";
  return seconds < 129600 ? Math.round(seconds / 3600) + " h ago" : Math.round(seconds / 86400) + " days ago";
}

function stateNode(state) {
  const node = element("span", state.word, "state");
  node.dataset.state = state.word;
  if (state.word === "died") node.title = "no process of this machine trains there, and not all steps are made; the same whetstone train command goes on";
  return node;
}

const stepsOf = (state) => state.step + (state.steps ? " of " + state.steps : "");

function link(text, path, query) {
  const node = element("a", text);
  node.href = path + "?" + new URLSearchParams(query);
  return node;
}

function table(heads, rows) {
  const node = element("table");
  const head = node.createTHead().insertRow();
  for (const title of heads) head.append(element("th", title));
  const body = node.createTBody();
  for (const cells of rows) {
    const row = body.insertRow();
    for (const cell of cells) row.insertCell().append(...[cell].flat().filter((part) => part !== null));
  }
  return node;
}

// Boxes by which several things of a list are chosen, kept while the list is made anew. go: the text of the
// button, and where it leads with the ids that are chosen; least and most: how many that takes.
function marking({ least, most, go, lead }) {
  const ids = new Set();
  const button = element("button", go, "go");
  button.addEventListener("click", () => location.assign(lead([...ids])));

  function box(id, says) {
    const node = element("input");
    node.type = "checkbox";
    node.checked = ids.has(id);
    node.setAttribute("aria-label", "mark " + says);
    node.addEventListener("change", () => {
      if (node.checked) ids.add(id);
      else ids.delete(id);
      update();
    });
    return node;
  }

  function update() {
    button.disabled = ids.size < least || ids.size > most;
  }

  update();
  return { box, button };
}

const comparing = () => marking({ least: 2, most: 2, go: "Compare the two", lead: ([a, b]) => "/evaluation?" + new URLSearchParams({ id: a, with: b }) });
