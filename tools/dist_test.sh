#!/usr/bin/env bash
# Test on the GPUs of one or several machines.
#   bash tools/dist_test.sh CONFIG CHECKPOINT GPUS [arguments of test.py]
# Several machines: the same command on each, with NNODES, NODE_RANK (0 for the first), MASTER_ADDR and PORT set.
set -euo pipefail
if [ $# -lt 3 ]; then
    echo "usage: bash $0 CONFIG CHECKPOINT GPUS [arguments of test.py]" >&2
    exit 2
fi
config=$1 checkpoint=$2 gpus=$3
shift 3
exec python -m torch.distributed.run \
    --nnodes="${NNODES:-1}" \
    --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" \
    --master_port="${PORT:-29500}" \
    --nproc_per_node="$gpus" \
    "$(dirname "$0")/test.py" "$config" "$checkpoint" --launcher pytorch "$@"
