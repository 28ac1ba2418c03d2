#!/usr/bin/env bash
# Test on a Slurm cluster: one task per node, which starts a process for each of its GPUs.
#   sbatch --nodes=1 --gpus-per-node=8 --cpus-per-task=32 tools/slurm_test.sh CONFIG CHECKPOINT GPUS_PER_NODE [arguments of test.py]
# Submit from the folder that holds tools/. The nodes meet at PORT (29500) of the first.
#SBATCH --job-name=rope_dense
#SBATCH --ntasks-per-node=1
set -euo pipefail
if [ $# -lt 3 ] || [ -z "${SLURM_JOB_NODELIST:-}" ]; then
    echo "usage: sbatch --nodes=N --gpus-per-node=GPUS tools/slurm_test.sh CONFIG CHECKPOINT GPUS [arguments of test.py]" >&2
    exit 2
fi
read -r MASTER_ADDR < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR NNODES=$SLURM_JOB_NUM_NODES
# Slurm runs a copy of this file, so its own folder says nothing. Only a task knows its number.
exec srun --ntasks-per-node=1 bash -c 'NODE_RANK=$SLURM_NODEID exec bash "$@"' task \
    "$SLURM_SUBMIT_DIR/tools/dist_test.sh" "$@"
