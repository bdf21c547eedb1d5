"""python -m minibptt is the command minibptt. Read after cli.py."""

import sys

from .cli import main

sys.exit(main())
