"""`rope-dense report`, from a clone of the repository."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rope_dense_command import command

main = command('report')

if __name__ == '__main__':
    sys.exit(main())
