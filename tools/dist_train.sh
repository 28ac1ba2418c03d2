#!/usr/bin/env bash
# Train on the GPUs of one or several machines.
#   bash tools/dist_train.sh CONFIG GPUS [arguments of train.py]
# Several machines: the same command on each, with NNODES, NODE_RANK (0 for the first), MASTER_ADDR and PORT set.
set -euo pipefail
if [ $# -lt 2 ]; then
    echo "usage: bash $0 CONFIG GPUS [arguments of train.py]" >&2
    exit 2
fi
config=$1 gpus=$2
shift 2
exec python -m torch.distributed.run \
    --nnodes="${NNODES:-1}" \
    --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" \
    --master_port="${PORT:-29500}" \
    --nproc_per_node="$gpus" \
    "$(dirname "$0")/train.py" "$config" --launcher pytorch "$@"
