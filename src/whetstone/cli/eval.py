"""``whetstone eval``: measure a model on a benchmark, or compare two measurements."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from whetstone.errors import UserError

if TYPE_CHECKING:
    from whetstone.evaluate.benchmarks import Benchmark
    from whetstone.evaluate.plan import Plan
    from whetstone.recipe import WorkflowSection

EXAMPLES = """\
examples:
  whetstone eval --model models/SmolLM2-135M-Instruct --benchmark humaneval --data HumanEval.jsonl.gz --out he
  whetstone eval --model runs/tiny/checkpoints/step-40 --benchmark problems --data micro:heldout \\
      --recipe runs/tiny/recipe.yaml
  whetstone eval compare before after
"""


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "eval",
        help="measure a model on HumanEval, MBPP or any problem file; compare two measurements",
        description="Draw n replies to every problem, judge each in the sandbox, and report pass@k with 95% "
        "intervals. `whetstone eval compare A B` compares two output folders problem by problem.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(action="measure")
    _measuring(parser)
    _sampling(parser)
    _asking(parser)
    _machine(parser)
    actions = parser.add_subparsers(dest="action", metavar="compare")
    compare = actions.add_parser("compare", help="paired difference of two evaluations, with its interval")
    compare.add_argument("a", help="the --out folder of one evaluation")
    compare.add_argument("b", help="that of the other; the difference is b - a")


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    if args.action == "compare":
        from whetstone.evaluate.tables import print_comparison

        print_comparison(args.a, args.b)
        return 0
    return _measure(args)


def _measuring(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to measure")
    group.add_argument("--model", help="a model folder, a .gguf file or a hub id")
    group.add_argument("--revision", help="branch, tag or commit of a hub id")
    group.add_argument("--benchmark", help="humaneval, mbpp, or problems")
    group.add_argument(
        "--data",
        metavar="FILE",
        help="HumanEval.jsonl(.gz), sanitized-mbpp.json, or a problem file or set such as builtin:heldout",
    )
    group.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N problems")
    group.add_argument("--out", metavar="DIR", help="write evaluation.json and samples.jsonl there")


def _sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument("--n", type=int, default=8, help="replies per problem (default: 8)")
    group.add_argument("--k", type=_numbers, default=(1, 8), help="the k of pass@k (default: 1,8)")
    group.add_argument("--temperature", type=float, default=0.8, help="0 is greedy (default: 0.8)")
    group.add_argument("--top-p", type=float, default=1.0, help="default: 1")
    group.add_argument(
        "--max-tokens", type=int, help="longest reply, in tokens (default: the recipe's, or 512)"
    )
    group.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        help=r"end a reply at this text; repeatable; \n is a line break",
    )
    group.add_argument("--seed", type=int, default=0, help="of replies and intervals (default: 0)")


def _asking(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how problems are put to the model")
    group.add_argument(
        "--recipe", metavar="FILE", help="take the workflow, stop texts and length of a recipe"
    )
    group.add_argument(
        "--no-chat", action="store_true", help="plain text, for models without a chat template"
    )
    group.add_argument(
        "--prompt", help=r"template with {statement}, {starter} or {instruction}; \n is a line break"
    )
    group.add_argument("--prefix", help=r"text that every reply starts with; \n is a line break")
    group.add_argument("--system", help="system message")
    group.add_argument(
        "--extraction",
        choices=["last_fence", "first_fence", "all_fences", "whole"],
        help="where the program stands in the reply (default: last_fence; first_fence for humaneval, mbpp)",
    )
    group.add_argument(
        "--max-prompt-tokens", type=int, metavar="N", help="longer prompts count as failed (default: 2048)"
    )


def _machine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("machine")
    group.add_argument("--dtype", default="bfloat16", help="bfloat16 (default), float16 or float32")
    group.add_argument("--device", default="auto", help="auto (default), cpu, cuda, cuda:N")
    group.add_argument("--threads", type=int, default=0, metavar="N", help="of torch (default: one per core)")
    group.add_argument(
        "--workers", type=int, default=0, metavar="N", help="of the judge (default: one per core)"
    )
    group.add_argument(
        "--minimum-tier",
        choices=["root", "userns", "restricted"],
        default="restricted",
        help="weakest isolation to run with (default: restricted)",
    )


def _measure(args: argparse.Namespace) -> int:
    # Everything a person can get wrong is checked before torch is loaded.
    from whetstone.evaluate.benchmarks import load_benchmark

    if not args.model:
        raise UserError("--model is missing: a model folder, a .gguf file or a hub id")
    if not args.benchmark:
        raise UserError("--benchmark is missing: humaneval, mbpp, or problems")
    if min(args.limit, args.threads, args.workers) < 0:
        raise UserError("--limit, --threads and --workers are counts of at least 0")
    benchmark = load_benchmark(args.benchmark, args.data, limit=args.limit)
    workflow, plan = _workflow(args, benchmark), _plan(args)
    from whetstone.evaluate.measure import measure

    measure(
        benchmark,
        plan,
        workflow,
        model=args.model,
        revision=args.revision,
        dtype=args.dtype,
        device=args.device,
        threads=args.threads,
        workers=args.workers,
        minimum_tier=args.minimum_tier,
        out=args.out,
    )
    return 0


def _workflow(args: argparse.Namespace, benchmark: Benchmark) -> WorkflowSection:
    """The recipe's workflow, or the benchmark's own, with what the command line says on top."""
    from pydantic import ValidationError

    from whetstone.recipe import WorkflowSection, load_recipe

    if args.recipe:
        fields = load_recipe(args.recipe).workflow.model_dump()
    else:
        fields: dict[str, Any] = {
            "prompt": benchmark.prompt,
            "extraction": benchmark.extraction,
            "max_prompt_tokens": 2048,
        }
    given: dict[str, Any] = {
        "chat": False if args.no_chat else None,
        "prompt": _unescaped(args.prompt),
        "prefix": _unescaped(args.prefix),
        "system": args.system,
        "extraction": args.extraction,
        "max_prompt_tokens": args.max_prompt_tokens,
    }
    fields.update({key: value for key, value in given.items() if value is not None})
    try:
        return WorkflowSection.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']}") from None


def _plan(args: argparse.Namespace) -> Plan:
    from whetstone.evaluate.plan import Plan
    from whetstone.recipe import load_recipe

    sampling = load_recipe(args.recipe).sampling if args.recipe else None
    max_tokens = sampling.max_tokens if sampling else 512
    stop = tuple(_unescaped(text) or "" for text in args.stop or ())
    if "" in stop:
        raise UserError("--stop needs a text")
    return Plan(
        n=args.n,
        k=args.k,
        temperature=args.temperature,
        top_p=args.top_p,
        max_tokens=max_tokens if args.max_tokens is None else args.max_tokens,
        stop=stop or (sampling.stop if sampling else ()),
        seed=args.seed,
    )


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers such as 1,8; got {text!r}") from None


def _unescaped(text: str | None) -> str | None:
    return None if text is None else text.replace("\\n", "\n")
