"""A server of code problems for OpenEnv's clients, rewarded by Whetstone's judge.

PROBLEMS=SET uvicorn --app-dir examples/openenv server:app --host 127.0.0.1 --port 8000
python examples/openenv/client.py http://127.0.0.1:8000 < reply.txt
"""

import os

from whetstone.integrations.openenv import code_app

app = code_app(os.environ["PROBLEMS"])
