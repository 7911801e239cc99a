"""The options of ``whetstone eval``, and what their words mean."""

from __future__ import annotations

import argparse
import json
from typing import Any

from whetstone.cli.judge_environment import add_environment_option
from whetstone.cli.judge_options import add_workers_option
from whetstone.errors import UserError
from whetstone.workflow.official_prompts import OFFICIAL_PROMPTS


def add_measuring_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a measurement."""
    _what(parser)
    add_reply_options(parser)


def add_reply_options(parser: argparse.ArgumentParser) -> None:
    """Declare who writes replies and how they are drawn, asked for and judged; not what is measured."""
    _model(parser)
    _sampling(parser)
    _asking(parser)
    add_endpoint_options(parser)
    _machine(parser)


def add_grading_option(parser: Any, default: str | None = "ours") -> None:
    """Declare ``--harness``, the users' word; in this code a harness is what runs in a sandbox."""
    parser.add_argument(
        "--harness",
        dest="grading",
        choices=["ours", "official"],
        default=default,
        help="whose rules decide: ours (default), or official, those of the graders of LiveCodeBench and "
        "EvalPlus (for livecodebench, humanevalplus, mbppplus)",
    )


def option_named(key: str) -> str:
    """The command line's word for a setting; of a list, its number is left out."""
    return "--" + key.partition(".")[0].replace("_", "-")


def benchmark_files(data: list[str] | None, names: list[str]) -> dict[str, str | None]:
    """Each of the benchmarks ``names``, with what --data gives for it, if anything.

    ``NAME=PATH`` is for benchmark NAME, or for all parts of it (``NAME:PART``); ``PATH`` for the only one.
    """
    files: dict[str, str | None] = dict.fromkeys(names)
    for text in data or ():
        name, equals, path = text.partition("=")
        meant = [known for known in names if equals and name in {known, known.partition(":")[0]}]
        if meant:
            files.update(dict.fromkeys(meant, path))
        elif len(files) == 1:
            files[names[0]] = text
        else:
            raise UserError(f"--data {text}: with several benchmarks, say which: NAME=PATH")
    return files


def unescaped(text: str | None) -> str | None:
    r"""The text with line breaks where it says ``\n``."""
    return None if text is None else text.replace("\\n", "\n")


def _what(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to measure")
    group.add_argument(
        "--benchmark", metavar="NAMES", help="with commas between; `whetstone eval benchmarks` lists them"
    )
    group.add_argument(
        "--plan",
        metavar="FILE",
        help="benchmarks, and how each is asked and sampled, from a YAML file, or a plan that ships "
        "(`whetstone eval plans` lists them); what else is given holds for all of them",
    )
    group.add_argument(
        "--data",
        action="append",
        metavar="[NAME=]FILE",
        help="the benchmark's file or folder as it is published, for `problems` a problem file or a set such "
        "as builtin:heldout; NAME= says which benchmark's, if there are several; without, the hub is asked",
    )
    add_grading_option(group, default=None)
    group.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N problems")
    group.add_argument(
        "--out", metavar="DIR", help="a folder DIR/BENCHMARK each: manifest, samples.jsonl, evaluation.json"
    )
    group.add_argument("--restart", action="store_true", help="drop what is in --out instead of going on")
    group.add_argument(
        "--json", action="store_true", help="the results as one JSON object; all else goes to stderr"
    )
    group.add_argument(
        "--price",
        metavar="READ,WRITTEN",
        help="of a million tokens of prompts, and of replies, such as 0.15,0.60: the summary has the cost",
    )


def _model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", help="a model folder, a .gguf file or a hub id; with --endpoint, the name it serves"
    )
    group.add_argument("--revision", help="branch, tag or commit of a hub id")


def _sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument("--n", type=int, help="replies per problem (default: 8)")
    group.add_argument("--k", type=_numbers, help="the k of pass@k, such as 1,8 (default: 1 and n)")
    group.add_argument("--temperature", type=float, help="0 is greedy (default: 0.8)")
    group.add_argument("--top-p", type=float, help="default: 1")
    group.add_argument("--top-k", type=int, help="default: 0, all tokens")
    group.add_argument(
        "--max-tokens",
        type=int,
        help="longest reply, in tokens, thinking included (default: the recipe's, or 512)",
    )
    group.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        help=r"end a reply at this text; repeatable; \n is a line break",
    )
    group.add_argument("--seed", type=int, help="of the replies (default: 0)")


def _asking(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how problems are put to the model")
    group.add_argument(
        "--recipe", metavar="FILE", help="take the workflow, stop texts and length of a recipe"
    )
    group.add_argument(
        "--no-chat", action="store_true", help="plain text, for models without a chat template"
    )
    group.add_argument(
        "--prompt",
        help=r"template with {problem}, {statement}, {starter} or {instruction}; \n is a line break; or the "
        "name of an official one: " + ", ".join(OFFICIAL_PROMPTS),
    )
    group.add_argument(
        "--shots",
        metavar="FILE",
        help="examples shown before the problem: problems with references, or the folder of examples of "
        "LiveCodeBench's repository (lcb_runner/prompts/few_shot_examples/generation)",
    )
    group.add_argument("--prefix", help=r"text that every reply starts with; \n is a line break")
    group.add_argument("--system", help="system message")
    group.add_argument(
        "--extraction",
        choices=["program", "last_fence", "first_fence", "all_fences", "whole"],
        help="where the program stands in the reply (default: program, chosen by what the tests need)",
    )
    group.add_argument(
        "--max-prompt-tokens", type=int, metavar="N", help="longer prompts count as failed (default: 2048)"
    )


def add_endpoint_options(parser: argparse.ArgumentParser) -> None:
    """Declare the endpoint, and how patiently it is asked."""
    group = parser.add_argument_group("an endpoint instead of a model in this process")
    group.add_argument(
        "--endpoint", metavar="URL", help="an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"
    )
    group.add_argument("--concurrency", type=int, metavar="N", help="requests at once (default: 32)")
    group.add_argument(
        "--request-timeout", type=float, metavar="S", help="longest wait for one reply (default: 7200)"
    )
    group.add_argument(
        "--silence",
        type=float,
        metavar="S",
        help="ask again after so long without a byte (default: 300; of a server that does not stream its "
        "replies, and the time of --max-tokens at 10 a second)",
    )
    group.add_argument(
        "--patience",
        type=float,
        metavar="S",
        help="give up what a server that answers nothing for so long is asked (default: 300)",
    )
    group.add_argument(
        "--body",
        type=_json_object,
        metavar="JSON",
        help='more fields of every request, such as \'{"chat_template_kwargs": {"enable_thinking": false}}\'',
    )
    group.add_argument(
        "--thinking",
        action="store_true",
        help="replies begin inside their thinking (the chat template opens it and no parser takes it out)",
    )


def endpoint_settings(args: argparse.Namespace) -> dict[str, Any]:
    """What these options say, for ``evaluate.replies.endpoint.Settings``: those that were given."""
    given = {
        "concurrency": args.concurrency,
        "timeout_s": args.request_timeout,
        "silence_s": args.silence,
        "patience_s": args.patience,
        "body": args.body,
        "thinks": args.thinking or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _machine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("machine")
    group.add_argument(
        "--dtype",
        help="bfloat16, float16, float32 or auto (default): bfloat16 where the device has it natively",
    )
    group.add_argument("--device", help="auto (default), cpu, cuda, cuda:N")
    group.add_argument("--threads", type=int, metavar="N", help="of torch (default: one per core)")
    add_workers_option(group)
    group.add_argument(
        "--minimum-tier",
        choices=["root", "userns", "restricted"],
        default="restricted",
        help="weakest isolation to run with (default: restricted)",
    )
    add_environment_option(group)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers such as 1,8; got {text!r}") from None


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object; got {text}")
    return value
