"""OpenRLHF: the reward function of ``--reward.remote_url FILE.py``. Read in OpenRLHF 0.11.2.

Rows are those of ``whetstone data convert --export-format trl``: ``--data.input_key prompt``,
``--data.label_key problem``, ``--data.apply_chat_template``. OpenRLHF passes the decoded tokens of prompt and
reply, including special tokens. It does not support a missing reward: it logs the exception and stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whetstone.core.errors import UserError
from whetstone.environments.formats.family import THINK
from whetstone.integrations.rewards import Rewards, ScoredReply
from whetstone.integrations.settings import reward_settings

# The texts of end tokens of known models.
ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>", "<eos>", "<end_of_turn>",
        "<|end|>", "<|return|>", "<｜end▁of▁sentence｜>", "<|user|>", "<|endofturn|>")  # fmt: skip
# Characters of the prompt's end that locate the reply if the beginning of the prompt was cut off.
_TAIL = 200


class RewardFunction:
    """``reward_func`` of a file; keyword arguments are those of ``RewardSettings``.

    ``ends``: texts of end tokens, for a model whose end token is not in ``ENDS``.
    """

    def __init__(self, *, ends: Sequence[str] = ENDS, **settings: Any) -> None:
        self.rewards = Rewards(reward_settings(settings))
        self._ends = tuple(ends)

    def __call__(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[object], **others: Any
    ) -> dict[str, Any]:
        """Return ``rewards``, ``scores`` in [0, 1] and ``extra_logs``: numbers for one query, lists for
        several."""
        return self.result(self.rewards.score(self.replies(queries, prompts), labels))

    def replies(self, queries: Sequence[str], prompts: Sequence[str]) -> list[str]:
        """Return the replies in the queries. Raises UserError if a reply cannot be separated from its
        prompt."""
        if len(queries) != len(prompts):
            raise UserError(f"{len(queries)} queries and {len(prompts)} prompts: each query needs its prompt")
        return [self._reply(*pair) for pair in zip(queries, prompts, strict=True)]

    def result(self, scored: Sequence[ScoredReply]) -> dict[str, Any]:
        """Return the result for OpenRLHF. Raises NoReward if there is no verdict and ``no_reward`` is not
        set."""
        rewards = [self.rewards.number(one) for one in scored]
        accepted = [float(one.solved) for one in scored]
        judged = [float(one.reward is not None) for one in scored]
        if len(scored) == 1:
            logs = {"accepted": accepted[0], "judged": judged[0]}
            return {"rewards": rewards[0], "scores": accepted[0], "extra_logs": logs}
        return {
            "rewards": rewards,
            "scores": accepted,
            "extra_logs": {"accepted": accepted, "judged": judged},
        }

    def _reply(self, query: str, prompt: str) -> str:
        """Return the reply in a query without its end token."""
        opened = THINK if prompt.rstrip().endswith(THINK) else ""
        reply = _text_after(query, prompt)
        return opened + reply[: self._end_of(reply)]

    def _end_of(self, reply: str) -> int:
        """Return where the end tokens and blanks at the end of a reply begin."""
        # The text is not copied for each of them: a reply may consist of them.
        at = len(reply)
        while True:
            while at and reply[at - 1].isspace():
                at -= 1
            end = next((end for end in self._ends if end and reply.endswith(end, 0, at)), "")
            if not end:
                return at
            at -= len(end)


def _text_after(query: str, prompt: str) -> str:
    if query.startswith(prompt):
        return query[len(prompt) :]
    at = query.find(tail := prompt[-_TAIL:])
    if at < 0:
        raise UserError(
            f"the prompt's end {tail[-40:]!r} is not in the query, so the reply cannot be separated; the "
            "tokenizer changes the text it encodes: use an agent that passes the reply alone"
        )
    return query[at + len(tail) :]


reward_func = RewardFunction()
"""The reward function with default settings."""
