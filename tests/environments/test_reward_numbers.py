"""Rewards and metrics of users may be scalars of numpy, or tensors of one number."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest

from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.core.sample import Sample
from whetstone.core.verdict import Judgement, Verdict
from whetstone.environments import reward_function
from whetstone.environments.reward_function import plugin_reward

PROBLEM = Problem("p", "Print 3.", StdinTests([StdinCase("", "3\n")]))
JUDGED = Judgement(Verdict.NO_CODE, [], 0.0, "")
NUMBERS = [
    *(np.float32(0.5), np.float16(0.5), np.float64(0.5), np.array(0.5), np.array([0.5])),
    *(Decimal("0.5"), Fraction(1, 2), 0.5),
]
NO_NUMBERS = [
    *(
        float("nan"),
        float("inf"),
        np.float32("nan"),
        np.array([1.0, 2.0]),
        np.array([]),
        "0.5",
        np.str_("0.5"),
    ),
    *(10**400, [0.5], {}, Decimal("inf"), Decimal("sNaN"), 1j, np.complex64(1j)),
]


def rewarded(value: Any, monkeypatch: pytest.MonkeyPatch) -> float | None:
    monkeypatch.setattr(reward_function, "load_plugin", lambda *_, **__: lambda *_: value)
    return plugin_reward("mine", PROBLEM, "reply", JUDGED)


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_a_scalar_of_any_library_is_a_reward(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rewarded(value, monkeypatch)
    assert type(found) is float
    assert found == 0.5


@pytest.mark.parametrize(
    ("value", "number"), [(np.int64(2), 2.0), (np.bool_(True), 1.0), (True, 1.0), (-3, -3.0)]
)
def test_integers_and_truth_values_are_rewards(
    value: Any, number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rewarded(value, monkeypatch) == number


def test_tensors_of_one_number_are_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    tensors = [
        torch.tensor(0.5),
        torch.tensor([0.5], dtype=torch.bfloat16),
        torch.tensor(0.5, requires_grad=True),
    ]
    assert [rewarded(tensor, monkeypatch) for tensor in tensors] == [0.5, 0.5, 0.5]
    with pytest.raises(ValueError, match="not a finite number"):
        rewarded(torch.tensor([0.5, 0.5]), monkeypatch)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:20])
def test_other_values_are_no_rewards(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        rewarded(value, monkeypatch)


def test_samples_hold_numbers_that_can_be_stored() -> None:
    reward, metric = np.float32(0.5), np.int64(3)
    sample = Sample([], [], [], "stop", "text", reward=reward, metrics={"turns": metric})  # type: ignore[arg-type]
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(sample), type=Sample)
    assert stored == sample
    assert stored.reward == 0.5
    assert stored.metrics == {"turns": 3.0}
    later = sample.with_metrics({"turns": np.float32(1.0)}, np.array(2))  # type: ignore[arg-type]
    assert type(later.reward) is float
    assert msgspec.json.encode(later)
    with pytest.raises(ValueError, match="the reward of a sample is 'high'"):
        Sample([], [], [], "stop", "text", reward="high")  # type: ignore[arg-type]
