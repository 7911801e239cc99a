"""The table at the end of a training run: before, after, and the paired change."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from tests.report.synthetic_run import write_results
from whetstone.cli.results import print_results
from whetstone.run.display import Display

BEFORE = {
    "step": 0,
    "eval/heldout/problems": 30,
    "eval/heldout/pass@1": 0.375,
    "eval/heldout/pass@1_low": 0.24,
    "eval/heldout/pass@1_high": 0.53,
}
AFTER = {**BEFORE, "step": 4, "eval/heldout/pass@1": 0.875}


def printed(folder: Path, before: dict[str, float], after: dict[str, float]) -> str:
    (folder / "metrics.jsonl").touch()
    display = Display(Console(width=80, record=True, quiet=False))
    print_results(display, folder, before, after)
    return display.console.export_text()


def test_the_change_is_paired_and_the_table_fits_80_columns(tmp_path: Path) -> None:
    for step, correct in ((0, 1), (4, 3)):
        write_results(tmp_path, step, [correct + i % 2 for i in range(30)])
    text = printed(tmp_path, BEFORE, AFTER)
    assert "37.5% [24.0, 53.0]" in text
    assert "held-out, pass@1 " in text
    assert "+50.0 [" in text, "the interval stands beside the change"
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_long_name_wraps_and_no_figure_is_cut(tmp_path: Path) -> None:
    reward = {"reward": 0.36, "reward_low": -0.208, "reward_high": 0.535}
    record = {**AFTER, **{f"eval/another-benchmark/{key}": value for key, value in reward.items()}}
    text = printed(tmp_path, record, record)
    assert text.count("0.360 [-0.208, 0.535]") == 2
    assert "…" not in text


def test_without_an_evaluation_there_is_no_table(tmp_path: Path) -> None:
    assert printed(tmp_path, {}, {}) == ""


def test_without_kept_replies_no_change_is_claimed(tmp_path: Path) -> None:
    assert "+50.0" not in printed(tmp_path, BEFORE, AFTER)


def test_without_a_first_evaluation_only_the_last_is_shown(tmp_path: Path) -> None:
    text = printed(tmp_path, {}, AFTER)
    assert "87.5% [24.0, 53.0]" in text
    assert "+" not in text
