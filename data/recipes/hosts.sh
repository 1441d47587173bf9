#!/usr/bin/env bash
# Several hosts by hand: run this on each of them, with the same HEAD and NODES.
#
#   HEAD=host-one NODES=2 ./hosts.sh              on every host, in any order
#   INTERFACE=eth1 HEAD=… NODES=… ./hosts.sh      where a host has several networks
#   IS_HOST=1 HEAD=… NODES=… ./hosts.sh           on HEAD, and IS_HOST=0 elsewhere, where
#                                                 HEAD does not know its own address
#   DRY_RUN=1 …                                   print the command, start nothing
#
# HEAD is a name or address that all hosts reach; its port 29400 must be open. PER_NODE
# is the number of ranks on a host: its GPUs, or 1 on a machine without any.
set -euo pipefail

: "${HEAD:?wanted HEAD=the host where the ranks meet}"
: "${NODES:?wanted NODES=how many hosts}"
PER_NODE=${PER_NODE:-1}
PORT=${PORT:-29400}
if [ -n "${INTERFACE:-}" ]; then
  export NCCL_SOCKET_IFNAME=$INTERFACE GLOO_SOCKET_IFNAME=$INTERFACE
fi

words=(
  python3 -m torch.distributed.run
  --nnodes="$NODES" --nproc-per-node="$PER_NODE"
  --rdzv-backend=c10d --rdzv-endpoint="$HEAD:$PORT" --rdzv-id="${JOB:-gpu-lab}"
  --max-restarts="${RESTARTS:-0}" ${IS_HOST:+--rdzv-conf="is_host=$IS_HOST"}
  -m gpu_lab.bench.ddp
  'all_reduce={"sizes": [4096, 1048576, 67108864]}'
  gradients scaling
  'slow={"run": "scaling", "slow": 2.0}'
)
if [ -n "${DRY_RUN:-}" ]; then
  printf '%q ' "${words[@]}"
  echo
else
  exec "${words[@]}"
fi
