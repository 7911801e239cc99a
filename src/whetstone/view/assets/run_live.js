(() => {
  let seen = "";
  let rollouts = 0;
  let browser = null;
  let listed = "";
  const pairs = comparing();

  function showState(state) {
    const place = byId("live");
    place.replaceChildren(stateNode(state), "  step " + stepsOf(state) + (state.at === null ? "" : ", last record " + ago(state.at)));
    byId("roles").hidden = !state.roles.length;
    byId("role-lines").replaceChildren(...state.roles.map((said) => element("li", said)));
  }

  function showParts(parts) {
    // Made by the server, with everything of others escaped; the policy of the page runs no script in it.
    for (const name of ["headline", "result", "curves"]) byId(name).innerHTML = parts[name];
    byId("tip").hidden = true;
    showCharts(document, parts.charts);
  }

  function showEvaluations(places) {
    const now = places.map((place) => place.id).join();
    if (now === listed) return;
    listed = now;
    byId("evaluated").hidden = !places.length;
    const rows = places.map((place) => [pairs.box(place.id, place.name), link(place.name, "/evaluation", { id: place.id })]);
    byId("evaluations").replaceChildren(table(["", "evaluation"], rows), pairs.button);
  }

  const none = byId("no-rollouts");
  const nothing = none.textContent;
  none.textContent = "reading";

  function showRollouts(count) {
    none.textContent = nothing;
    if (!count) return;
    if (!browser) {
      none.hidden = true;
      document.querySelector(".browser").hidden = false;
      browser = browseRollouts(remoteSource("/v1/rollouts", { id: asked.id }));
      rollouts = count;
    }
    // Whoever reads in the list is not disturbed: it is made anew when asked.
    byId("f-new").hidden = count === rollouts;
    byId("f-new").textContent = count > rollouts ? "show " + (count - rollouts) + " new" : "show what is there now";
  }

  const more = element("button", "", "go");
  more.id = "f-new";
  more.hidden = true;
  byId("f-count").after(more);
  more.addEventListener("click", async () => {
    more.hidden = true;
    rollouts = (await askJson("/v1/run", { id: asked.id, seen })).rollouts;
    await browser.fill();
    await browser.refresh();
  });

  poll("/v1/run", () => ({ id: asked.id, seen }), 2, (answer) => {
    showState(answer.state);
    if (answer.parts) showParts(answer.parts);
    seen = answer.stamp;
    showEvaluations(answer.evaluations);
    showRollouts(answer.rollouts);
  });
})();
