#!/usr/bin/env bash
# GRPO in OpenRLHF, rewarded by Whetstone's judge. Usage: train.sh SET MODEL
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rows=${ROWS:-rows.parquet}
[ -e "$rows" ] || whetstone data convert "$1" "$rows" --export-format trl

# By URL instead of in the process: start `whetstone judge rewards --port 8090` and give http://HOST:8090/ here.
python -m openrlhf.cli.train_ppo_ray \
    --reward.remote_url "$here/reward.py" \
    --actor.model_name_or_path "$2" \
    --data.prompt_dataset "$rows" \
    --data.input_key prompt --data.label_key problem --data.apply_chat_template \
    --data.max_len 10240 --rollout.max_new_tokens 8192 --rollout.n_samples_per_prompt 8 \
    --algo.advantage.estimator group_norm \
    --ckpt.output_dir runs/openrlhf
