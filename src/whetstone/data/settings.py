"""The problems that a run trains on and is evaluated on."""

from __future__ import annotations

from pydantic import model_validator

from whetstone.core.settings import Natural, NonEmpty, Section, Share


class _ReferenceCheck(Section):
    """A check before the first step: references of training problems are judged on this machine.

    sample: the number of problems whose references are judged; 0 judges none.
    accepted: the share of them that must pass; lower it for a set with references that are known to fail.
    """

    sample: Natural = 16
    accepted: Share = 1.0


class DataSection(Section):
    """Problem sets: a JSONL or Parquet file, a dataset folder (``FOLDER:train`` is a split of it), or a set
    that ships: ``builtin:train``, ``builtin:heldout``, ``micro:train``, ``micro:heldout``.

    train: the set to train on.
    heldout: the set to evaluate on; null evaluates on no held-out problems.
    build: the pipeline file (`whetstone data build`) that makes the folder of ``train``; it runs when the
        folder does not exist.
    difficulty: train only on problems whose ``meta.difficulty`` is one of these; empty trains on all.
    drop_long_prompts: leave out problems whose prompt has more than ``environment.max_prompt_tokens`` tokens,
        and report their number; otherwise one of them rejects the run. For a model in ``model.path``.
    max_problems: train on a seeded subset of at most so many; 0 takes all.
    references: the check of the training set before the first step.
    """

    build: NonEmpty | None = None
    train: str = "builtin:train"
    heldout: str | None = "builtin:heldout"
    difficulty: tuple[str, ...] = ()
    drop_long_prompts: bool = False
    max_problems: Natural = 0
    references: _ReferenceCheck = _ReferenceCheck()

    @model_validator(mode="after")
    def _built_where(self) -> DataSection:
        if self.build is not None and self.train.startswith(("builtin:", "micro:")):
            raise ValueError("`build` makes the folder of `train`; name it there, such as sets/mine:train")
        return self
