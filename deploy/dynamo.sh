#!/bin/sh
# NVIDIA Dynamo in front of replicas of gristmill: if a replica is lost, its streams continue on another one.
#
#   python3 -m venv dynamo && . dynamo/bin/activate
#   pip install --no-deps ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1
#   pip install -r scripts/replicas/dynamo.txt
#   deploy/dynamo.sh frontend &
#   deploy/dynamo.sh worker --server http://127.0.0.1:8081 --tokenizer FOLDER &     (one for each replica)
#
# Frontend and workers find each other by files of this machine ($DYN_FILE_KV) and talk over TCP, without etcd or NATS.
# For several machines, see Dynamo's documentation of DYN_DISCOVERY_BACKEND, and set addresses in place of 127.0.0.1.
set -eu
export DYN_DISCOVERY_BACKEND=file DYN_REQUEST_PLANE=tcp DYN_EVENT_PLANE=zmq
export DYN_TCP_RPC_HOST=127.0.0.1 DYN_TCP_RESPONSE_STREAM_HOST=127.0.0.1
part=$1
shift
case $part in
frontend)
    # A stream moves to another replica at most three times. Blocks of the prefix cache have 16 tokens.
    exec python3 -m dynamo.frontend --http-host 127.0.0.1 --http-port 8080 --router-mode kv --migration-limit 3 \
        --kv-cache-block-size 16 "$@"
    ;;
worker) exec python3 "$(dirname "$0")/dynamo_worker.py" "$@" ;;
*)
    echo "$0: unknown part $part; write frontend or worker" >&2
    exit 2
    ;;
esac
