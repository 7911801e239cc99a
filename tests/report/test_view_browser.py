"""The pages in a browser: nothing is empty or overlaps, keys work, hostile text is text, runs are followed.

Needs the extra ``browser`` and a Chromium of this machine's; skipped without.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ENOUGH_S, wait_until
from tests.report.synthetic_run import write_run
from tests.report.test_evaluation_page import write as write_evaluation
from tests.report.test_page import HOSTILE
from tests.report.view_process import ViewProcess, viewed
from whetstone.data.dataset import DatasetWriter, load_problems
from whetstone.evaluate.tables import percent
from whetstone.report.metrics import MetricsWriter
from whetstone.report.page import write_page
from whetstone.report.rollouts import read_rollouts

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.extended,
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
OVERLAPS = """() => {
  const nodes = [...document.querySelectorAll("main .panel, main figure, main canvas")];
  const boxes = nodes.map((node) => [node, node.getBoundingClientRect()]);
  const beside = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1;
  const below = (a, b) => a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
  const within = (one, other) => one.contains(other) || other.contains(one);
  return boxes.flatMap(([one, a], i) => boxes.slice(i + 1)
    .filter(([other, b]) => !within(one, other) && !beside(a, b) && !below(a, b))
    .map(() => one.textContent.slice(0, 40)));
}"""


RESULT_OF_TWO_STEPS = """(finished) => {
  const [before, after] = [0, 3].map((step) => ({ step, value: 0.5, low: null, high: null }));
  const one = { set: "heldout", estimate: "pass@1", before, after, change: null };
  return resultNodes([one], finished)[0].textContent;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


# Cells of tables, of which a part is beside the screen.
OUT_OF_SIGHT = """() => [...document.querySelectorAll("main td, main th")]
  .filter((cell) => cell.checkVisibility() && !cell.closest("thead"))
  .filter((cell) => cell.getBoundingClientRect().right > innerWidth)
  .map((cell) => cell.textContent)"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("seen")
    for name in ("one", "two"):
        write_run(root / name, steps=20)
    write_run(root / "hostile", steps=2, name=HOSTILE.replace("'", ""), reply=HOSTILE)
    for step, right in ((0, [True, False]), (20, [False, False])):
        write_evaluation(
            root / "one" / "evaluations" / f"step-{step}-heldout", {"p/1": right, "p/2": [True, True]}
        )
    write_evaluation(root / "other-problems", {"q/1": [True]})
    with DatasetWriter(root / "set") as writer:
        for problem in [
            *load_problems("builtin:heldout")[::9],
            *load_problems("micro:heldout", max_problems=9),
        ]:
            writer.add(problem)
    return root


@pytest.fixture(scope="module")
def view(folder: Path) -> Iterator[ViewProcess]:
    with viewed(str(folder)) as process:
        yield process


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test for an error of a script, or what the policy has stopped."""
    said: list[str] = []
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(ENOUGH_S * 1000)
    opened.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: said.append(str(error)))
    yield opened
    opened.close()
    assert not said


def until(page: Any, holds: str) -> None:
    """Wait for an expression to hold. (The policy forbids what Playwright's own waiting does.)"""
    wait_until(lambda: page.evaluate(holds))


def address(view: ViewProcess, path: str, *names: str) -> str:
    places = view.places()
    ids = [next(place["id"] for key, place in places.items() if key.endswith(name)) for name in names]
    return view.url.rstrip("/") + path.format(*ids)


def seven_pages(view: ViewProcess, folder: Path) -> dict[str, tuple[str, str]]:
    """The address of each page, and what it shows when it is complete."""
    return {
        "list": (address(view, "/"), "#evaluations tbody tr"),
        "run": (address(view, "/run?id={}", "/one"), "#detail .program"),
        "report": (write_page(folder / "one").as_uri(), "#detail .program"),
        "curves": (address(view, "/curves?ids={},{}", "/one", "/two"), ".chart canvas"),
        "evaluation": (address(view, "/evaluation?id={}", "step-20-heldout"), "#detail .program"),
        "two evaluations": (
            address(view, "/evaluation?id={}&with={}", "step-0-heldout", "step-20-heldout"),
            "#detail .program",
        ),
        "data card": (address(view, "/data?id={}", "/set"), ".bars tr"),
    }


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the pictures are left to be looked at: ``WHETSTONE_PICTURES``, or a folder of this session's."""
    chosen = os.environ.get("WHETSTONE_PICTURES")
    place = Path(chosen) if chosen else tmp_path_factory.mktemp("pictures")
    place.mkdir(exist_ok=True)
    return place


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_seven_pages_are_filled_readable_and_nothing_overlaps_or_is_out_of_sight(
    view: ViewProcess, folder: Path, page: Any, pictures: Path, width: int, scheme: str
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    for name, (url, filled) in seven_pages(view, folder).items():
        page.goto(url)
        page.wait_for_selector(filled)
        page.screenshot(path=pictures / f"{name}-{width}-{scheme}.png", full_page=True)
        assert page.evaluate(OVERLAPS) == [], name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.evaluate(OUT_OF_SIGHT) == [], name
        assert page.locator("main p.empty:visible").count() == 0, name
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(243, 242, 238)"
        assert dark == (scheme == "dark")
        assert serious_findings(page) == [], name


def serious_findings(page: Any) -> list[str]:
    """What axe finds on a page, without what it calls minor or moderate."""
    axe = pytest.importorskip("axe_playwright_python", reason="axe is not installed (extra `browser`)")
    page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {node['target']}" for one in serious for node in one["nodes"]]


def test_an_address_without_a_page_and_evaluations_without_a_common_problem_get_a_sentence(
    browser: Any, view: ViewProcess
) -> None:
    page = browser.new_page()
    answer = page.goto(view.url + "run?id=nothing")
    assert answer.status == 404
    assert "there is no run 'nothing' here" in page.locator("main").inner_text()
    page.goto(address(view, "/evaluation?id={}&with={}", "step-0-heldout", "other-problems"))
    until(page, "document.querySelector('#live').textContent.includes('have no problem in common')")
    assert not page.locator("main").is_visible()
    page.close()


def test_runs_are_found_sorted_and_shown_with_chosen_columns(
    view: ViewProcess, folder: Path, page: Any
) -> None:
    (folder / "two" / "notes.md").write_text("# A second look\n")
    page.goto(address(view, "/"))
    page.wait_for_selector("#runs tbody tr")
    names = "[...document.querySelectorAll('#runs tbody a')].map((one) => one.textContent.split('/')[1])"
    for down in (False, True):
        page.locator("#runs thead button[data-head=step]").click()
        shown = page.evaluate(names)
        assert (shown[-1 if down else 0], len(shown)) == ("hostile", 3)
    page.locator("#runs summary").click()
    page.locator("#runs label", has_text="model").locator("input").check()
    assert "SmolLM2" in page.locator("#runs tbody").inner_text()
    page.reload()
    page.wait_for_selector("#runs tbody tr")
    assert "SmolLM2" in page.locator("#runs tbody").inner_text(), "the choice stays"
    page.fill("#l-text", "second LOOK")
    until(page, names + ".join() === 'two'")
    page.select_option("#l-state", "died")
    until(page, "document.querySelector('#runs').textContent.includes('no run')")


def test_texts_differ_by_words_and_shares_are_rounded_as_elsewhere(view: ViewProcess, page: Any) -> None:
    page.goto(address(view, "/"))
    marks = "(a, b) => [...marked(a, b).querySelectorAll('mark')].map((one) => one.textContent)"
    compared = page.evaluate(f"([a, b]) => ({marks})(a, b)", ["10 20 30 45", "10 21 30 4"])
    assert compared == ["20", "45"]
    for finished, word in ((True, "after"), (False, "so far")):
        text = page.evaluate(RESULT_OF_TWO_STEPS, finished)
        assert (word in text, "after" in text) == (True, finished)
    shares = [0.8625, 0.5, 0.00125, 0.145, 0.1435, 1 / 3, -0.0625]
    assert page.evaluate("(shares) => shares.map(percent)", shares) == [percent(share) for share in shares]


def test_charts_are_drawn_over_hours_and_smoothed(view: ViewProcess, page: Any) -> None:
    page.goto(address(view, "/run?id={}", "/one"))
    page.wait_for_selector(".chart canvas")
    drawn = "plots.get(document.querySelector('[data-chart=lengths]'))"
    before = page.evaluate(f"{drawn}.chart.series[0].values")
    page.select_option("#drawing label:nth-child(2) select", "3")
    smoothed = page.evaluate(f"{drawn}.chart.series[0].values")
    assert smoothed[4] == pytest.approx(sum(before[2:5]) / 3)
    page.select_option("#drawing label:nth-child(1) select", "1")
    assert page.evaluate(f"{drawn}.chart.axis") == "hours"
    hours = page.evaluate(f"{drawn}.chart.steps")
    assert hours == sorted(hours)
    assert 0 < hours[0] < hours[-1] < 1


def test_rollouts_are_chosen_by_keys_linked_and_searched(view: ViewProcess, page: Any) -> None:
    page.goto(address(view, "/run?id={}", "/one"))
    page.wait_for_selector("#detail .program")
    page.focus("#list")
    for key in ("ArrowDown", "j", "j", "k", "j"):
        page.keyboard.press(key)
    until(page, "location.hash === '#step=1&row=3'")
    page.wait_for_selector("#detail .siblings [aria-current]")
    assert page.locator("#list [aria-selected=true]").count() == 1
    page.reload()
    page.wait_for_selector("#detail .siblings [aria-current]:nth-child(4)")
    assert page.locator("#list li").nth(3).get_attribute("aria-selected") == "true"
    page.locator("#detail .siblings button").first.click()
    until(page, "location.hash === '#step=1&row=0'")

    page.select_option("#f-verdict", "wrong_answer")
    page.fill("#f-text", "")
    page.keyboard.press("j")  # text, not a key of the list
    assert page.input_value("#f-text") == "j"
    page.fill("#f-text", "task_2")
    until(
        page, "[...document.querySelectorAll('#list .id')].every((one) => one.textContent.endsWith('task_2'))"
    )
    page.wait_for_selector("#detail .cases mark >> nth=0")
    page.fill("#f-text", "nothing has this")
    until(page, "document.querySelector('#f-count').textContent === '0 of 320'")


def test_a_run_is_followed_without_a_reload(view: ViewProcess, folder: Path, page: Any) -> None:
    page.goto(address(view, "/run?id={}", "/two"))
    page.wait_for_selector("#detail .program")
    page.evaluate("window.stays = true")
    with MetricsWriter(folder / "two" / "metrics.jsonl") as metrics:
        metrics.write({"step": 21, "kind": "train", "reward/mean": 0.5})
    until(page, "document.querySelector('#live').textContent.includes('step 21')")
    until(page, "document.querySelector('.facts').textContent.includes('21 of 20')")
    assert page.evaluate("window.stays")


def test_filters_and_orders_select_rollouts(view: ViewProcess, folder: Path, page: Any) -> None:
    page.goto(address(view, "/run?id={}", "/one"))
    page.wait_for_selector("#detail .program")
    every = [rollout for step in range(1, 21) for rollout in read_rollouts(folder / "one", step)]
    wrong = [rollout for rollout in every if rollout.step == 2 and rollout.verdict == "wrong_answer"]
    page.select_option("#f-step", "2")
    page.select_option("#f-verdict", "wrong_answer")
    page.select_option("#f-sort", "shortest")
    until(page, f"document.querySelector('#f-count').textContent === '{len(wrong)} of {len(every)}'")
    shown = page.evaluate("[...document.querySelectorAll('#list .sub')].map((one) => one.textContent)")
    lengths = [int(text.rpartition("·")[2].split()[0]) for text in shown]
    assert lengths == sorted(rollout.tokens for rollout in wrong)


def test_charts_are_read_and_zoomed_and_keep_the_zoom(view: ViewProcess, page: Any) -> None:
    page.goto(address(view, "/run?id={}", "/one"))
    page.wait_for_selector(".chart canvas")
    page.focus("[data-chart=lengths]")
    legend = "document.querySelector('[data-chart=lengths] .u-legend').textContent"
    page.keyboard.press("ArrowLeft")
    until(page, legend + ".includes('step19')")
    box = page.locator("[data-chart=lengths] .u-over").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 20)
    page.mouse.up()
    scale = "plots.get(document.querySelector('[data-chart=lengths]')).plot.scales.x"
    until(page, f"{scale}.max < 19")
    page.emulate_media(color_scheme="dark")  # draws the charts again
    until(page, f"{scale}.max < 19")
    page.keyboard.press("Escape")
    until(page, f"{scale}.max === 20")


def test_signs_of_hacking_are_found_when_asked_for(view: ViewProcess, page: Any) -> None:
    page.goto(address(view, "/run?id={}", "/one"))
    page.click("#look")
    page.wait_for_selector("#found details")
    page.locator("#found summary", has_text="Shortest accepted").click()
    page.locator("#found details[open] a").first.click()
    until(page, "location.hash.startsWith('#step=')")


@pytest.mark.parametrize("alone", [False, True], ids=["served", "report"])
def test_what_a_model_wrote_is_shown_and_not_run(
    view: ViewProcess, folder: Path, page: Any, alone: bool
) -> None:
    url = write_page(folder / "hostile").as_uri() if alone else address(view, "/run?id={}", "/hostile")
    page.on("dialog", lambda dialog: pytest.fail("a script of a reply ran"))
    page.goto(url)
    page.wait_for_selector("#detail .program")
    assert HOSTILE.replace("\u2028", "")[:40] in page.locator("#detail").inner_text()
    assert page.locator("main img, main script").count() == 0
