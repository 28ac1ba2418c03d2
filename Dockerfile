# CUDA image with the package, its environment and mmcv's operators compiled for the GPU.
#   docker build -t rope_dense .
#   docker run --gpus all --shm-size 8g -v DATA:/rope_dense/data rope_dense tools/train.py CONFIG
# It has not been built by the maintainers yet.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends \
        build-essential git make python3 python3-dev python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /rope_dense
COPY . .
# The GPUs that mmcv's operators are compiled for; torch's default index has CUDA builds.
ARG TORCH_CUDA_ARCH_LIST="8.0;8.6;8.9;9.0"
ENV FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST=${TORCH_CUDA_ARCH_LIST}
RUN make setup PYTHON=python3
ENTRYPOINT [".venv/bin/python"]
