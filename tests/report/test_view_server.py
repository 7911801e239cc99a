"""``whetstone view`` over real sockets: what it lists, what it says of a growing run, whom it refuses."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from tests.processes import wait_until
from tests.report.synthetic_run import write_run
from tests.report.test_evaluation_page import write as write_evaluation
from tests.report.test_page import HOSTILE
from tests.report.view_process import ViewProcess, viewed
from whetstone.cli.main import main
from whetstone.evaluate.results import SampleResult
from whetstone.report.metrics import MetricsWriter, read_metrics
from whetstone.report.page import run_report, script_json
from whetstone.report.rollouts import RolloutWriter, read_rollouts
from whetstone.report.run_data import read_run

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("viewed")
    write_run(root / "ended", steps=6)
    write_run(root / "died", steps=6)
    (root / "died" / "recipe.yaml").write_text("name: died\ntrainer: {steps: 9}\n")
    write_run(root / "hostile", steps=2, name=HOSTILE.replace("'", ""), reply=HOSTILE)
    write_run(root / "grows", steps=2)
    before, after = {"p/1": [True, False], "p/2": [True, True]}, {"p/1": [False, False], "p/2": [True, True]}
    write_evaluation(root / "ended" / "evaluations" / "step-0-heldout", before)
    write_evaluation(root / "ended" / "evaluations" / "step-6-heldout", after)
    write_evaluation(root / "alone" / "mbpp", {"q/1": [False]}, text=HOSTILE)
    write_run(root.parent / "outside", steps=1)
    (root / "leads-out").symlink_to(root.parent / "outside", target_is_directory=True)
    (root / "half").mkdir()
    (root / "half" / "metrics.jsonl").symlink_to(root.parent / "outside" / "metrics.jsonl")
    return root


@pytest.fixture(scope="module")
def view(folder: Path) -> Iterator[ViewProcess]:
    with viewed(str(folder)) as process:
        yield process


@contextmanager
def running(run: Path) -> Generator[None]:
    """Hold the lock of a run, as its process does."""
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    (run / ".lock").unlink()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_runs_are_listed_with_how_they_stand_and_nothing_outside_of_the_folder_is(
    view: ViewProcess, folder: Path
) -> None:
    before = contents(folder)
    with running(folder / "died"):
        wait_until(lambda: view.places()["viewed0/died"]["state"]["word"] == "running")
        assert view.places()["viewed0/died"]["state"]["left_s"] > 0
    places = view.places()
    assert places["viewed0/died"]["state"]["word"] == "died"
    ended = places["viewed0/ended"]["state"]
    assert (ended["word"], ended["step"], ended["steps"]) == ("ended", 6, 6)
    assert ended["left_s"] is None
    assert places["viewed0/ended"]["facts"]["algorithm"] == "dapo"
    assert ended["heldout"] == ["pass@1", pytest.approx(0.76)]
    assert places["viewed0/ended/step-6-heldout"]["run"] == places["viewed0/ended"]["id"]
    assert places["viewed0/alone/mbpp"]["figures"] == {"pass@1": 0.0}
    assert not {name for name in places if "leads-out" in name or "half" in name}
    assert contents(folder) == before, "looking wrote something"


class OtherVersion(BaseHTTPRequestHandler):
    """A flow that knows nothing of what is asked of one now."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_flow_of_another_version_is_named_and_hides_nothing_else(view: ViewProcess, folder: Path) -> None:
    run = folder / "died"
    with running(run), ThreadingHTTPServer(("127.0.0.1", 0), OtherVersion) as flow:
        Thread(target=flow.serve_forever).start()
        (run / "flow-url").write_text(f"http://127.0.0.1:{flow.server_port}\n")
        wait_until(lambda: len(view.places()["viewed0/died"]["state"]["roles"]) == 1)
        places = view.places()
        flow.shutdown()
    (run / "flow-url").unlink()
    assert "another version" in places["viewed0/died"]["state"]["roles"][0]
    assert places["viewed0/ended"]["state"]["word"] == "ended"


def test_a_run_that_grows_is_made_anew_and_one_that_does_not_is_not(view: ViewProcess, folder: Path) -> None:
    run = view.places()["viewed0/grows"]["id"]
    first = view.data("/v1/run", id=run)
    assert rewards(first)[-1][0] == 2
    assert first["count"] == 32
    assert view.data("/v1/run", id=run, seen=first["stamp"])["page"] is None

    with MetricsWriter(folder / "grows" / "metrics.jsonl") as metrics:
        metrics.write({"step": 3, "kind": "train", "reward/mean": 0.75})
    with (folder / "grows" / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 4, "kind": "tr')  # a line that is being written
    (row, *_) = read_rollouts(folder / "grows", 2)
    RolloutWriter(folder / "grows").write(3, [row] * 5)
    then = view.data("/v1/run", id=run, seen=first["stamp"])
    assert rewards(then)[-1] == (3, 0.75)
    assert (then["state"]["step"], then["count"]) == (3, 37)

    MetricsWriter(folder / "grows" / "metrics.jsonl").truncate_after(1)  # as resuming does
    again = view.data("/v1/run", id=run, seen=then["stamp"])
    assert rewards(again)[-1][0] == 1


def rewards(answer: Any) -> list[tuple[float, float]]:
    """The points of the first chart of a run's page."""
    chart = answer["page"]["panels"][0]["charts"][0]
    return list(zip(chart["steps"], chart["series"][0]["values"], strict=True))


def rows_of(view: ViewProcess, path: str, query: dict[str, Any], text: str) -> list[dict[str, Any]]:
    """The rows that a search finds."""
    answer = view.data(path, query)
    fields = answer.get("fields")
    rows = [dict(zip(fields, row, strict=True)) if fields else row for row in answer["rows"]]
    return [rows[place] for place in view.data(f"{path}/search", query, text=text)]


def test_a_run_has_the_data_of_its_report(view: ViewProcess, folder: Path) -> None:
    served = view.data("/v1/run", id=view.places()["viewed0/ended"]["id"])["page"]
    run = read_run(folder / "ended")
    assert json.loads(script_json(run_report(run, {})["page"])) == served


def test_all_metrics_of_a_run_are_one_csv_file(view: ViewProcess, folder: Path) -> None:
    status, headers, body = view.ask("/v1/metrics.csv", {"id": view.places()["viewed0/ended"]["id"]})
    assert (status, headers["content-disposition"]) == (200, 'attachment; filename="metrics.csv"')
    rows = list(csv.DictReader(io.StringIO(body)))
    records = read_metrics(folder / "ended" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [str(record["step"]) for record in records]
    assert [row["kind"] for row in rows].count("eval") == 7
    last = next(record for record in reversed(records) if record["kind"] == "train")
    row = next(row for row in reversed(rows) if row["kind"] == "train")
    assert float(row["reward/mean"]) == last["reward/mean"]
    assert float(row["time/generate"]) == last["time"]["generate"]


def test_rollouts_are_listed_searched_and_come_with_their_siblings(view: ViewProcess, folder: Path) -> None:
    run = {"id": view.places()["viewed0/ended"]["id"]}
    every = [rollout for step in range(1, 7) for rollout in read_rollouts(folder / "ended", step)]
    answer = view.data("/v1/rollouts", run)
    rows = [dict(zip(answer["fields"], row, strict=True)) for row in answer["rows"]]
    assert [(row["problem"], row["tokens"]) for row in rows] == [(r.problem_id, r.tokens) for r in every]
    assert [row["verdict"] for row in rows] == [r.verdict for r in every]

    held = rows_of(view, "/v1/rollouts", run, "SUM(XS) + 2")
    assert {row["problem"] for row in held} == {"whetstone/lists/task_2"}
    assert view.data("/v1/rollouts/search", run, text="sum(xs) + 7") == []

    one = view.data("/v1/rollouts/one", run, step=2, row=6)
    assert [sibling["row"] for sibling in one["siblings"]] == [4, 5, 6, 7]
    assert one["row"]["reply"] == every[16 + 6].reply
    mean = sum(sibling["reward"] for sibling in one["siblings"]) / 4
    assert one["row"]["above"] == pytest.approx(one["row"]["reward"] - mean)


def test_problems_of_two_evaluations_are_marked_gained_or_lost(view: ViewProcess, folder: Path) -> None:
    places = view.places()
    both = {
        name: places[f"viewed0/ended/step-{step}-heldout"]["id"] for name, step in (("id", 0), ("with", 6))
    }
    (results,) = view.data("/v1/evaluation", both)["page"]["results"]
    assert "b - a" in results["heads"]
    rows = view.data("/v1/problems", both)["rows"]
    assert {row["id"]: row["outcome"] for row in rows} == {"p/1": "lost", "p/2": "right in both"}
    assert [side["right"] for side in rows[0]["sides"]] == [1, 0]
    one = view.data("/v1/problems/one", both, problem="p/1")
    assert [len(side["replies"]) for side in one["sides"]] == [2, 2]
    assert "about p/1" in one["prompt"]


def test_an_evaluation_that_grows_is_followed(view: ViewProcess, folder: Path) -> None:
    its = {"id": view.places()["viewed0/alone/mbpp"]["id"]}
    assert len(rows_of(view, "/v1/problems", its, "onerror")) == 1
    sample = SampleResult("q/2", 0, "looks for ONERROR", None, None, "failed", 0, error="gone")
    with (folder / "alone" / "mbpp" / "samples.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(sample) + b"\n" + b'{"problem_id": "q/3"')
    found = rows_of(view, "/v1/problems", its, "onerror")
    assert [(row["id"], row["verdicts"]) for row in found] == [("q/1", ["wrong_answer"]), ("q/2", ["failed"])]
    assert view.data("/v1/evaluation", its)["count"] == 2


def test_curves_of_runs_are_drawn_over_one_another(view: ViewProcess) -> None:
    places = view.places()
    ids = ",".join(places[f"viewed0/{name}"]["id"] for name in ("ended", "died"))
    first = view.data("/v1/curves", ids=ids)
    charts = {chart["id"]: chart for panel in first["page"]["panels"] for chart in panel["charts"]}
    assert [line["label"] for line in charts["reward/mean"]["series"]] == ["viewed0/ended", "viewed0/died"]
    assert {"eval/heldout/pass@1", "loss/entropy", "length/mean"} <= charts.keys()
    assert first["states"][0] == "viewed0/ended ended"
    assert view.data("/v1/curves", ids=ids, seen=first["stamp"])["page"] is None
    assert view.ask("/curves", {"ids": ids})[0] == 200
    assert "select 2 to 8" in view.ask("/v1/curves", {"ids": ",".join(["x"] * 9)})[2]


def test_hostile_text_is_only_data_and_no_page_may_run_it(view: ViewProcess) -> None:
    run = {"id": view.places()["viewed0/hostile"]["id"]}
    assert view.data("/v1/rollouts/one", run, step=1, row=0)["row"]["reply"] == HOSTILE
    assert view.ask("/v1/run", run)[1]["content-type"] == "application/json"
    for path, query in (
        ("/", {}),
        ("/run", run),
        ("/v1/rollouts", run),
        ("/v1/nothing", {}),
        ("/run", {"id": "x"}),
    ):
        _, headers, body = view.ask(path, query)
        policy = headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "unsafe" not in policy.partition("script-src")[2].partition(";")[0]
        assert headers["x-content-type-options"] == "nosniff"
        assert "<script>alert" not in body
        assert HOSTILE not in body


def test_others_are_refused_and_nothing_can_be_changed(view: ViewProcess, folder: Path) -> None:
    assert view.ask("/v1/list", Host="evil.example:8070")[0] == 421
    assert view.ask("/v1/list", Host="127.0.0.1.evil.example")[0] == 421
    assert view.ask("/v1/list", Host="localhost:1")[0] == 200
    assert view.ask("/v1/list", Origin="http://127.0.0.1")[0] == 403
    assert view.ask("/v1/list", method="POST")[0] == 405
    for path in (
        "/assets/../../report/page.py",
        "/assets/%2e%2e/page.py",
        "/etc/passwd",
        f"{folder}/ended/recipe.yaml",
    ):
        assert view.ask(path)[0] == 404
    run = {"id": view.places()["viewed0/ended"]["id"]}
    for query in ({"id": "../ended"}, {"id": str(folder / "ended")}, {}):
        assert view.ask("/v1/run", query)[0] == 404
    for query in ({"step": "../1", "row": 0}, {"step": 1, "row": 99}, {"step": 77, "row": 0}):
        assert view.ask("/v1/rollouts/one", {**run, **query})[0] == 404


def test_bad_input_names_the_way_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main(["view", str(tmp_path)]) == 2
    assert "use a folder that `whetstone train`" in capsys.readouterr().err
    assert main(["view", str(folder), "--host", "0.0.0.0"]) == 2
    assert "--token-file" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["view", str(folder), "--port", str(taken.getsockname()[1])]) == 2
    assert "use another --host or --port" in capsys.readouterr().err


def test_with_a_token_whoever_has_it_may_look_by_any_name(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("secret\n")
    with viewed(str(folder / "ended"), "--token-file", str(tmp_path / "tokens")) as view:
        status, headers, _ = view.ask("/", Host="machine:8070")
        assert status == 401
        assert "Basic" in headers["www-authenticate"]
        given = "Basic " + "YW55OnNlY3JldA=="  # any:secret
        assert view.ask("/", Host="machine:8070", Authorization=given)[0] == 200
