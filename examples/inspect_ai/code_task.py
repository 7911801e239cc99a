"""An evaluation of code with Whetstone's judge, for the command of inspect_ai.

inspect eval examples/inspect_ai/code_task.py -T problems=SET --model MODEL
"""

from inspect_ai import Task, task

from whetstone.integrations.inspect_ai import code_dataset, whetstone_scorer


@task
def code(problems: str, workers: int = 0) -> Task:
    """Evaluate a file of problems, or FOLDER:SPLIT. ``workers`` 0: one for each core."""
    return Task(dataset=code_dataset(problems), scorer=whetstone_scorer(judge={"workers": workers}))
