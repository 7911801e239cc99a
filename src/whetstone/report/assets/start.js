// Shows the data of the page, or requests them from the server every few seconds.
(() => {
  const pages = { run: [runPage, "/v1/run"], evaluation: [evaluationPage, "/v1/evaluation"], curves: [curvesPage, "/v1/curves"], list: [listPage, "/v1/list"] };
  const data = JSON.parse(byId("data").textContent);
  const [make, path] = pages[data.kind];
  const show = make(data);
  let seen = "";

  async function poll() {
    if (!document.hidden) {
      try {
        const answer = await getJson(path, { ...query, seen });
        byId("live").dataset.state = "";
        document.querySelector("main").hidden = false;
        show(answer);
        seen = answer.stamp;
      } catch (error) {
        byId("live").textContent = error.refused ? error.message : "The server does not answer: " + error.message;
        byId("live").dataset.state = "gone";
        document.querySelector("main").hidden ||= error.refused && !seen;
      }
    }
    setTimeout(poll, 2000);
  }

  if (data.live) {
    if (data.kind !== "list") byId("head").before(link("All runs", "/", {}));
    poll();
  } else show({ page: data.page, count: data.rows.length });
})();
