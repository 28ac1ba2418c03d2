"""What the tools share: arguments, configs, and checks that fail early with advice."""

import sys

from ..requirements_check import installation_advice, missing_packages

if missing := missing_packages():
    print(f'error: {installation_advice(missing)}', file=sys.stderr)
    sys.exit(2)
