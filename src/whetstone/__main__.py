"""``python -m whetstone`` is the ``whetstone`` command."""

import sys

from whetstone.cli.main import main

sys.exit(main())
