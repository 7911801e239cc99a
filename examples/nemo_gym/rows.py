"""Write the rows of a problem set for NeMo-Gym.

python rows.py SET > rows.jsonl
"""

import json
import sys

from whetstone.integrations.nemo_gym import code_rows

for row in code_rows(sys.argv[1]):
    print(json.dumps(row))
