#!/usr/bin/env bash
# Makes an environment of mmcv with operators compiled on this machine, which uses all other packages of the
# environment BASE where they are; called by the Makefile, which knows when it is needed.
#
#   requirements/install_compiled.sh BASE VENV FAMILY
#
# FAMILY  onedl or openmmlab: whose mmcv, by the pin in requirements/FAMILY.txt
#
# The compiled operators, the slow part, are kept as a wheel in .wheels/ and used again.
set -euo pipefail
base=$1 venv=$2 family=$3
here=$(dirname "$0") python=$venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK=1

fail() { printf 'set-up: %s\n' "$*" >&2; exit 1; }

command -v "${CC:-gcc}" >/dev/null && command -v "${CXX:-c++}" >/dev/null ||
    fail "no C and C++ compiler (gcc and g++); install both, or leave OPERATORS=compiled out"
header=$("$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
[ -f "$header" ] ||
    fail "$header is missing; install the development files of Python (python3-dev or python3-devel)"

wheel=$("$here/build_mmcv.sh" "$base/bin/python" "$(grep -E '^(onedl-)?mmcv==' "$here/$family.txt")" .wheels)
"$base/bin/python" -m venv --without-pip --clear "$venv"
# BASE's folders come behind the environment's own; the .pth files in them have no effect here.
"$base/bin/python" -c 'import sys; print(*(path for path in sys.path if path.endswith("-packages")), sep="\n")' \
    > "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
"$python" -m pip install --no-deps --ignore-installed "$wheel"
"$python" -c 'import torch, mmcv._ext' ||
    fail "mmcv was installed without its compiled operators; remove $wheel and try again"
