"""A model that fits in a pocket and a problem that it can learn: `python tiny.py FOLDER`, then see grpo.py.

Its whole vocabulary are a few statements, so each reply is a program of one word, and GRPO on a CPU learns in
seconds which of them prints what the problem asks for. Writes FOLDER/model and FOLDER/problems.jsonl.
"""

import sys
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from whetstone import Problem
from whetstone.core.problem import StdinCase, StdinTests
from whetstone.data.files import write_problems

WORDS = ["<unk>", "<pad>", "<eos>", "print(1)", "print(2)", "print(3)", "pass", "exit(1)"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def main(folder: Path) -> None:
    set_seed(0)
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        pad_token="<pad>",
        eos_token="<eos>",
        chat_template=TEMPLATE,
    )
    tokenizer.save_pretrained(folder / "model")
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        pad_token_id=1,
        eos_token_id=2,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    tests = StdinTests([StdinCase("", "2\n")])
    write_problems(folder / "problems.jsonl", [Problem("tiny/two", "Print the number two.", tests)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
