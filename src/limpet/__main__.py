"""`python -m limpet` is the command `limpet`."""

import sys

from limpet.cli import main

sys.exit(main())
