"""One episode with a server of code problems: print the prompt, send the reply from stdin, print the reward.

python client.py http://127.0.0.1:8000 < reply.txt
"""

import argparse
import sys

from openenv.core.generic_client import GenericEnvClient


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--problem", help="the id of a problem; without it, the server draws one")
    options = parser.parse_args()
    with GenericEnvClient(base_url=options.url).sync() as env:
        begun = env.reset(problem_id=options.problem) if options.problem else env.reset()
        for message in begun.observation["messages"]:
            print(f"{message['role']}: {message['content']}\n")
        ended = env.step({"reply": sys.stdin.read()})
        print(f"reward {ended.reward}: {ended.observation['explanation']}")


if __name__ == "__main__":
    main()
