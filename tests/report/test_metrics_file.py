"""metrics.jsonl survives kills, is cut exactly on resume, and is the same bytes for the same run."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.core.errors import UserError
from whetstone.report.metrics import MetricsWriter, encode_record, read_metrics

NUMBERS = st.one_of(st.integers(-(2**60), 2**60), st.floats(allow_nan=False))


def record(step: int, value: float = 1.5) -> dict[str, object]:
    return {"step": step, "kind": "train", "reward/mean": value, "time": {"step": 2.0}}


def plain(path: Path) -> list[dict[str, object]]:
    return [{key: value for key, value in r.items() if key != "time"} for r in read_metrics(path)]


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), NUMBERS, max_size=5))
def test_a_record_is_one_line_and_reads_back_equal(values: dict[str, float]) -> None:
    written = {**{f"x/{key}": value for key, value in values.items()}, "step": 3, "kind": "train"}
    line = encode_record(written)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert line == encode_record(dict(reversed(written.items())))
    read = json.loads(line)
    assert {k: float(v) for k, v in read.items() if k.startswith("x/")} == {
        f"x/{key}": float(value) for key, value in values.items()
    }


def test_non_finite_numbers_stay_valid_json_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path) as writer:
        writer.write({**record(1, math.nan), "loss/kl": -math.inf, "loss/lr": math.inf})
    assert "NaN" not in path.read_text()
    (read,) = read_metrics(path)
    assert math.isnan(read["reward/mean"])
    assert (read["loss/kl"], read["loss/lr"]) == (-math.inf, math.inf)


def test_the_clock_stands_under_time_and_nowhere_else(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with MetricsWriter(tmp_path / name) as writer:
            writer.write(record(1, 0.1 + 0.2))
    (read,) = read_metrics(tmp_path / "a")
    assert read["time"]["step"] == 2.0
    assert read["time"]["at"] > 1.6e9
    assert (
        plain(tmp_path / "a")
        == plain(tmp_path / "b")
        == [{"kind": "train", "reward/mean": 0.1 + 0.2, "step": 1}]
    )


def test_resuming_drops_later_steps_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path) as writer:
        for step in range(5):
            writer.write(record(step))
        writer.write({**record(2), "kind": "eval"})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "train", "step": 4, "rew')
    assert len(read_metrics(path)) == 6
    with MetricsWriter(path) as writer:
        assert path.read_bytes() == whole
        assert writer.truncate_after(2) == 2
        writer.write(record(3))
    assert [r["step"] for r in read_metrics(path)] == [0, 1, 2, 2, 3]
    assert path.read_bytes().startswith(b"".join(whole.splitlines(keepends=True)[:3]))
    with MetricsWriter(path) as writer:
        assert writer.truncate_after(3) == 0


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(encode_record(record(1)) + b'{"kind": "tr\n' + encode_record(record(2)))
    with pytest.raises(UserError, match=r"metrics.jsonl:2: not a JSON record"):
        read_metrics(path)
    path.write_bytes(b'{"kind": "train"}\n')
    with pytest.raises(UserError, match=r"metrics.jsonl:1: .*integer `step`"):
        read_metrics(path)
    with pytest.raises(UserError, match="No such file"):
        read_metrics(tmp_path / "absent")
    with pytest.raises(ValueError, match="step"):
        encode_record({"kind": "train"})


@pytest.mark.process
def test_records_written_before_a_kill_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    script = (
        "import sys\nfrom whetstone.report.metrics import MetricsWriter\n"
        "writer = MetricsWriter(sys.argv[1])\n"
        "for step in range(10**9):\n"
        "    writer.write({'step': step, 'kind': 'train', 'x/y': step})\n"
        "    print(step, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    told = [int(child.stdout.readline()) for _ in range(20)]
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with MetricsWriter(path):
        steps = [r["step"] for r in read_metrics(path)]
    assert steps[: len(told)] == told
    assert steps == list(range(len(steps)))
