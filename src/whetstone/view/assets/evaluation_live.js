(() => {
  const query = asked.with ? { id: asked.id, with: asked.with } : { id: asked.id };
  let seen = "";
  let replies = -1;
  let browser = null;

  poll("/v1/evaluation", () => ({ ...query, seen }), 3, (answer) => {
    byId("live").textContent = answer.replies + " replies";
    // Made by the server, with everything of others escaped.
    if (answer.figures !== null) byId("figures").innerHTML = answer.figures || "";
    seen = answer.stamp;
    if (!browser) browser = browseProblems(remoteSource("/v1/problems", query), asked.with ? ["a", "b"] : ["a"]);
    else if (answer.replies !== replies) browser.fill();
    replies = answer.replies;
  });
})();
