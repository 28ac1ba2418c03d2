#!/usr/bin/env bash
# Compiles mmcv with its operators into a wheel, unless the wheel is there already, and prints its path.
#
#   requirements/build_mmcv.sh PYTHON REQUIREMENT WHEELS
#
# PYTHON       interpreter that has torch and requirements/build.txt
# REQUIREMENT  exact requirement, e.g. onedl-mmcv==2.3.6
# WHEELS       folder of finished wheels; inside it one folder per torch build and kind of operators
#
# Environment: FORCE_CUDA (1 or 0) overrides the choice made from torch and nvcc; MAX_JOBS limits the compilers
# that run at once; CFLAGS replaces the options chosen for a fast compile.
set -euo pipefail
python=$1 requirement=$2 wheels=$3

torch_version=$("$python" -c 'import torch; print(torch.__version__)')
has_nvcc='import torch; from torch.utils.cpp_extension import CUDA_HOME; print(int(bool(torch.version.cuda and CUDA_HOME)))'
export FORCE_CUDA=${FORCE_CUDA:-$("$python" -c "$has_nvcc")}
# mmcv compiles for CUDA whenever it sees a device, even without nvcc.
[ "$FORCE_CUDA" = 1 ] || export CUDA_VISIBLE_DEVICES=
export MAX_JOBS=${MAX_JOBS:-$(getconf _NPROCESSORS_ONLN)}
# Without debug information and with -O1 the compile takes a fraction of the time and memory.
export CFLAGS=${CFLAGS:--g0 -O1}

[ "$FORCE_CUDA" = 1 ] && kind=cuda || kind=cpu
python_tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
name=${requirement%%==*} version=${requirement##*==}
folder=$wheels/torch-$torch_version-$kind
pattern=$folder/${name//-/_}-$version-$python_tag-*.whl

if compgen -G "$pattern" >/dev/null; then
    compgen -G "$pattern" | head -n 1
    exit
fi

mkdir -p "$folder"
partial=$(mktemp -d "$folder/partial.XXXXXX")
log=$folder/${name//-/_}-$version.log
trap 'rm -rf "$partial"' EXIT
echo "compiling $requirement ($kind operators, torch $torch_version, $MAX_JOBS at once); log: $log" >&2

# The log keeps everything; the terminal sees every tenth of ninja's "[n/m]" lines.
build() {
    "$python" -m pip wheel -v --no-cache-dir --no-build-isolation --no-deps --no-binary "$name" \
        --wheel-dir "$partial" "$1" 2>&1 | tee "$log" | awk '
            match($0, /^ *\[[0-9]+\/[0-9]+\]/) {
                split(substr($0, RSTART, RLENGTH), part, /[^0-9]+/)
                if (part[2] % 10 == 0 || part[2] == part[3]) { print "  file " part[2] " of " part[3]; fflush() }
            }' >&2
}

# Most of the time goes into torch's headers, which each of the nearly 60 files of bindings includes. One file that
# includes them all parses the headers once. (The files in cpu/ define the same names and stay apart.)
join_bindings() {
    "$python" -m pip download -q --no-cache-dir --no-build-isolation --no-deps --no-binary "$name" \
        --dest "$partial" "$requirement" >&2 &&
        tar -xzf "$partial"/*.tar.gz -C "$partial" && cd "$partial"/*/mmcv/ops/csrc/pytorch &&
        mkdir bindings && mv ./*.cpp bindings && printf '#include "%s"\n' bindings/*.cpp > bindings.cpp &&
        cd ../../../.. && pwd
}

if ! { sources=$(join_bindings) && build "$sources"; }; then
    echo "compiling the bindings as one file failed; compiling them one by one" >&2
    if ! build "$requirement"; then
        echo "the compile failed; the first complaints in $log:" >&2
        grep -E -m 10 'FAILED|[Ee]rror|Killed' "$log" | cut -c 1-300 >&2
        exit 1
    fi
fi
mv "$partial"/*.whl "$folder/"
compgen -G "$pattern" | head -n 1
