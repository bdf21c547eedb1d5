"""python -m minibptt is the command minibptt."""

import sys

from .cli import main

sys.exit(main())
