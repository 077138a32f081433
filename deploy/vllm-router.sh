#!/bin/sh
# vLLM's router in front of replicas of gristmill: prompts with a known beginning go to the replica that has read it.
#
#   pip install vllm-router
#   deploy/vllm-router.sh http://127.0.0.1:8081 http://127.0.0.1:8082 http://127.0.0.1:8083
#
# Start the replicas with --drain-delay 3: the router checks them every second, and drops one that ends before it refuses
# connections.
# --balance-abs-threshold is half of the replicas' --parallel (8): with the router's own value (64), prompts that begin
# alike all go to one replica.
set -eu
exec vllm-router --host 127.0.0.1 --port 8080 --policy cache_aware --balance-abs-threshold 4 \
    --balance-rel-threshold 1.2 --health-check-endpoint /ready --health-check-interval-secs 1 \
    --health-failure-threshold 1 --health-success-threshold 1 --worker-urls "$@"
