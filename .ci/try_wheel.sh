#!/usr/bin/env bash
# Tries the wheel in dist/ where no other copy of the package can be imported; called by `make dist`.
#
#   .ci/try_wheel.sh PYTHON
#
# PYTHON  of the environment that has what the package needs
set -euo pipefail
python=$PWD/$1 clone=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset PYTHONPATH

"$python" -m venv --without-pip "$folder/venv"
"$python" -m pip --python "$folder/venv/bin/python" install --quiet --no-deps --no-index dist/*.whl
export PATH=$folder/venv/bin:$PATH
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
installed=$site/rope_dense
# The folders of the dependencies come behind the wheel's. Their .pth files, of which one is the editable install
# of the clone, have no effect there.
"$python" -c 'import sys; print(*(path for path in sys.path if path.endswith("-packages")), sep="\n")' > "$site/rest.pth"

# What reproduces tables stays in the clone.
diff -r --exclude=__pycache__ --exclude=.mim "$clone/rope_dense" "$installed"
test ! -e "$installed/../research"
for path in configs tools model-index.yml docs/clients; do
    diff -r --exclude=__pycache__ "$clone/$path" "$installed/.mim/$path"
done
for page in "$clone"/docs/*.md; do cmp "$page" "$installed/.mim/docs/$(basename "$page")"; done

mkdir "$folder/empty"
cd "$folder/empty"
rope-dense --help
! rope-dense research make-shapes shapes 2> said
grep -q '^error: rope-dense research is not installed: run it in a clone' said
config=$installed/.mim/configs/demo/deim_quick_shapes.py
python - "$config" > /dev/null <<'END'
"""Write a data set and weights; find the recipe of own data by its name."""
import sys

import torch

import rope_dense
from rope_dense.data.generated.shape_files import ShapesSettings, write_shapes
from rope_dense.project.model import random_model
from rope_dense.project.load import load_config
from rope_dense_command import command

assert rope_dense.__file__.startswith(sys.prefix), rope_dense.__file__
write_shapes('shapes', ShapesSettings(1, 1, (64, 64), layouts=('coco',)))
own = 'own.data_root=shapes/coco own.backbone=tiny own.weights=None'.split()
assert command('print_recipe')(['realtime', '--cfg-options', *own]) == 0
torch.save(random_model(load_config(sys.argv[1])).state_dict(), 'weights.pth')
END
rope-dense predict "$config" weights.pth shapes/coco/val2017 --score 0 --out results
grep -q '"score"' results/predictions.json
echo "the wheel works: $(basename "$clone"/dist/*.whl)"
