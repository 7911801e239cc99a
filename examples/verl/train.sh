#!/usr/bin/env bash
# GRPO in verl, rewarded by Whetstone's judge. Usage: train.sh SET MODEL [key=value …]
set -euo pipefail
set=$1 model=$2
shift 2
rows=${ROWS:-rows}
# A dataset folder gives train.parquet and validation.parquet; a single file gives train.parquet alone.
[ -e "$rows" ] || whetstone data convert "$set" "$rows" --export-format verl-whole
validation=$rows/validation.parquet
[ -e "$validation" ] || validation=$rows/train.parquet

# One reward worker a node: it scores all replies at once, with a judge on every core of its node.
python -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="$rows/train.parquet" data.val_files="$validation" \
    data.train_batch_size=64 data.max_prompt_length=2048 data.max_response_length=8192 \
    actor_rollout_ref.model.path="$model" \
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.use_dynamic_bsz=True \
    reward.num_workers=1 \
    reward.custom_reward_function.path=pkg://whetstone.integrations.verl \
    reward.custom_reward_function.name=compute_score \
    trainer.logger='[console]' "$@"
