"""``whetstone data difficulty``: measure a model's pass rate on each problem, and keep suitable problems."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console

from whetstone.cli.data_steps import StepFiles, write_step
from whetstone.cli.eval_tasks import Measurement, ReplyOptions, measure_benchmarks
from whetstone.cli.flags import command
from whetstone.cli.judge_options import Machine
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.progress import Progress
from whetstone.core.settings import NonEmpty
from whetstone.data.pass_rate import DifficultyStep, RateBounds, keep_by_pass_rate, parse_keep
from whetstone.evaluate.plan_file import DEFAULT_N
from whetstone.evaluate.replies.settings import EndpointSettings, ModelWeights

_EXAMPLES = """\
examples:
  whetstone data difficulty sets/clean --out sets/rated --model models/Qwen3-8B --n 8
  whetstone data difficulty sets/clean --out sets/rated --n 16 --keep 2..12 \\
      --endpoint http://127.0.0.1:8000/v1
  whetstone data difficulty sets/clean --out sets/rated --from-eval evals/clean

The replies are sampled and stored as by `whetstone eval`, in the folder OUT.eval. The same command resumes an
interrupted run, and another --keep needs no new replies. A problem without a judged reply is kept and marked.
"""


class Rating(RateBounds):
    """The pass rates to keep, and the folder of the replies."""

    samples: Annotated[
        NonEmpty | None,
        Flag("folder of the replies (default: OUT.eval); an interrupted run is resumed", "DIR"),
    ] = None
    restart: Annotated[bool, Flag("delete the replies in --samples first")] = False


@command(
    "difficulty",
    help="measure a model's pass rate on each problem; keep those that are solved sometimes",
    description="Sample n replies to every problem, judge them, and write the pass rate into "
    "meta.pass_rate. Keep the problems whose number of correct replies is within bounds.",
    epilog=_EXAMPLES,
)
def difficulty(
    files: StepFiles,
    rating: Rating,
    replies: ReplyOptions,
    model: ModelWeights,
    endpoint: EndpointSettings,
    machine: Machine,
) -> int:
    """Rate the problems. Raises UserError for unreadable input, failed requests and unwritable output."""
    from whetstone.evaluate.results import read_pass_rates

    files.check()
    folder = rating.from_eval
    if folder is None:
        # Invalid bounds must be reported before the model samples any replies.
        parse_keep(rating.keep, DEFAULT_N if replies.n is None else replies.n)
        folder = rating.samples or f"{files.out.rstrip('/')}.eval"
        measurement = Measurement(
            benchmark=("problems",), data=(files.set,), out=folder, restart=rating.restart
        )
        measure_benchmarks(measurement, replies, model, endpoint, machine)
    elif model.source or endpoint.endpoint:
        raise UserError("--from-eval uses measured pass rates; leave out --model and --endpoint")
    rates = read_pass_rates(folder)
    with Progress(Console()) as progress:
        step = keep_by_pass_rate(rates.by_id, parse_keep(rating.keep, rates.n))
        write_step(files, step, progress)
    return 0


def difficulty_step(files: StepFiles, step: DifficultyStep, machine: Machine) -> int:
    """Rate the problems with the settings of a pipeline step."""
    options = step.model_dump(exclude_none=True)
    return difficulty(
        files,
        Rating(keep=step.keep, from_eval=step.from_eval),
        ReplyOptions(
            **{name: options[name] for name in ("n", "temperature", "max_tokens", "seed") if name in options}
        ),
        ModelWeights(step.model or ""),
        EndpointSettings(endpoint=step.endpoint or ""),
        machine,
    )
