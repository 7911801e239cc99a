"""verl scores a batch with our functions: its reward loop in Ray, and the managers that it had before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

HALF = "```python\nprint(0)\n```"
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
REPLIES = [RIGHT, HALF, "I do not know.", RIGHT]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of bytes, which gives back every text as it was."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(models.BPE({word: number for number, word in enumerate([*alphabet, "<eos>"])}, []))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<eos>")
    folder = tmp_path_factory.mktemp("tokenizer")
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A row as `whetstone data convert --export-format verl-whole` writes it."""
    import pyarrow.parquet as pq

    from whetstone.core.problem import Problem, StdinCase, StdinTests
    from whetstone.data.export_formats import export_format_named, write_export
    from whetstone.data.files import write_problems

    folder = tmp_path_factory.mktemp("rows")
    tests = StdinTests([StdinCase("1 2\n", "3\n"), StdinCase("0 0\n", "0\n")])
    write_problems(folder / "set.jsonl", [Problem("t/add", "Print the sum.", tests)])
    write_export(str(folder / "set.jsonl"), folder / "rows.parquet", export_format_named("verl-whole"))
    [row] = pq.read_table(folder / "rows.parquet").to_pylist()
    return row


def batch(tokenizer: Path, row: dict[str, Any]) -> Any:
    """What verl's trainer hands to a reward manager: padded replies to the row's prompt."""
    import numpy as np
    import torch
    from transformers import AutoTokenizer
    from verl import DataProto

    fast = AutoTokenizer.from_pretrained(tokenizer)
    replies = [fast.encode(reply) for reply in REPLIES]
    longest, pad = max(map(len, replies)), fast.pad_token_id
    prompts = torch.tensor([fast.encode("Print the sum.")] * len(replies))
    responses = torch.tensor([ids + [pad] * (longest - len(ids)) for ids in replies])
    mask = torch.tensor([[1] * prompts.size(1) + [1] * len(i) + [0] * (longest - len(i)) for i in replies])
    columns = {
        name: np.array([row[name] for _ in replies], dtype=object)
        for name in ("data_source", "reward_model", "extra_info")
    }
    return DataProto.from_dict(
        {"prompts": prompts, "responses": responses, "attention_mask": mask},
        non_tensors={**columns, "extra_info": np.array([dict(row["extra_info"]) for _ in replies], object)},
    )


@pytest.fixture
def ray_cluster() -> Iterator[None]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=True)
    yield
    ray.shutdown()


def test_the_reward_loop_scores_a_batch_in_its_actors(
    tokenizer: Path, row: dict[str, Any], ray_cluster: None
) -> None:
    from hydra import compose, initialize_config_module
    from verl.experimental.reward_loop.reward_loop import RewardLoopManager

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={tokenizer}",
                "reward.num_workers=1",
                "reward.custom_reward_function.path=pkg://whetstone.integrations.verl",
                "reward.custom_reward_function.name=compute_score",
                "+reward.custom_reward_function.reward_kwargs.judge.workers=1",
                "+reward.custom_reward_function.reward_kwargs.environment.reward=fraction",
            ],
        )
    scored = RewardLoopManager(config).compute_rm_score(batch(tokenizer, row))
    rewards = scored.batch["rm_scores"].sum(dim=1).tolist()
    assert rewards == [1.0, 0.5, 0.0, 1.0]
    assert list(scored.non_tensor_batch["verdict"]) == ["accepted", "wrong_answer", "no_code", "accepted"]
    assert list(scored.non_tensor_batch["acc"]) == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("manager", ["naive", "prime"])
def test_the_managers_before_it_score_a_batch(
    manager: str, tokenizer: Path, row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from functools import partial

    from transformers import AutoTokenizer
    from verl.trainer.ppo.reward import _call_with_kwargs
    from verl.workers.reward_manager import get_reward_manager_cls
    from verl.workers.reward_manager import prime as prime_manager

    from whetstone.integrations.verl import compute_score_sync

    if manager == "prime":  # its 64 processes are more than this machine has room for
        few = partial(_in_few_processes, prime_manager.run_reward_scoring)
        monkeypatch.setattr(prime_manager, "run_reward_scoring", few)
    kind = get_reward_manager_cls(manager)
    function = partial(_call_with_kwargs, compute_score_sync, {"judge": {"workers": 1}})
    rewards = kind(AutoTokenizer.from_pretrained(tokenizer), 0, function)(batch(tokenizer, row))
    assert rewards.sum(dim=1).tolist() == [1.0, 0.0, 0.0, 1.0]


def _in_few_processes(score: Any, *arguments: Any, **named: Any) -> Any:
    return score(*arguments, **{**named, "num_processes": 2})
