#!/usr/bin/env bash
# Makes one environment from nothing; called by the Makefile, which knows when it is needed.
#
#   requirements/install.sh PYTHON VENV FAMILY TORCH
#
# FAMILY  onedl or openmmlab: the pins in requirements/FAMILY.txt
# TORCH   what to install, e.g. torch==2.13.0, or "installed": keep the torch that PYTHON already has
#
# The environment is always built afresh, so an interrupted run leaves nothing to repair.
set -euo pipefail
base=$1 venv=$2 family=$3 torch=$4
here=$(dirname "$0") python=$venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK=1

fail() { printf 'set-up: %s\n' "$*" >&2; exit 1; }

command -v "$base" >/dev/null ||
    fail "'$base' is not on the path; install Python 3.11 or name another: make setup PYTHON=python3.12"
"$base" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' ||
    fail "'$base' is $("$base" --version 2>&1); the pinned packages are for Python 3.11 to 3.13: make setup PYTHON=..."
if [ "$torch" = installed ]; then
    torch_folder=$("$base" -c 'import torch; print(torch.__path__[0].rpartition("/")[0])') ||
        fail "TORCH=installed, but '$base' cannot import torch"
fi

"$base" -m venv --clear "$venv"
"$python" -m pip install --no-deps -r "$here/build.txt"
# Where torch is not importable yet, mmcv is built without its operators.
mmcv=$(grep -E '^(onedl-)?mmcv==' "$here/$family.txt")
"$python" -m pip install --no-deps --no-build-isolation --no-cache-dir "$mmcv"

if [ "$torch" = installed ]; then
    # Behind the environment's own packages on the path. --system-site-packages would miss a torch in a venv.
    echo "$torch_folder" > "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/installed-torch.pth"
else
    # shellcheck disable=SC2086  # PIP_ARGS is a list of options
    "$python" -m pip install ${PIP_ARGS:-} -c "$here/torch.txt" "$torch"
fi
"$python" -c 'import triton' 2>/dev/null || "$python" -m pip install --no-deps -r "$here/triton.txt"

# Without dependencies and build isolation nothing here can choose another torch.
"$python" -m pip install --no-deps --no-build-isolation -r "$here/$family.txt"
