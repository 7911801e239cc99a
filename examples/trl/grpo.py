"""GRPO in TRL, rewarded by Whetstone's judge.

whetstone data convert SET rows.parquet --export-format trl
python grpo.py rows.parquet --model MODEL
"""

import argparse

import torch
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from whetstone.integrations.trl import CodeReward


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows")
    parser.add_argument("--model", required=True)
    parser.add_argument("--extraction", default="program", help="where the program stands in a reply")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=1e-6)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--out", default="runs/trl")
    options = parser.parse_args()
    trainer = GRPOTrainer(
        model=options.model,
        # Keyword arguments are the sections `environment` and `judge` of a recipe.
        reward_funcs=CodeReward(environment={"extraction": options.extraction}),
        train_dataset=load_dataset("parquet", data_files=options.rows, split="train"),
        args=GRPOConfig(
            output_dir=options.out,
            max_steps=options.steps,
            learning_rate=options.lr,
            max_completion_length=options.tokens,
            per_device_train_batch_size=8,
            num_generations=8,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available(),
        ),
    )
    trainer.train()
    trainer.save_model(options.out)


if __name__ == "__main__":
    main()
