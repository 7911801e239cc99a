(() => {
  let seen = "";

  poll("/v1/curves", () => ({ ids: asked.ids, seen }), 3, (answer) => {
    byId("live").textContent = answer.states.join(", ");
    if (answer.parts) {
      // Made by the server, with everything of others escaped.
      byId("curves").innerHTML = answer.parts.curves;
      byId("tip").hidden = true;
      showCharts(document, answer.parts.charts);
    }
    seen = answer.stamp;
  });
})();
