#!/usr/bin/env bash
# Runs every fuzz target for SECONDS (60) on stable Rust; a crash fails the script and leaves its input in fuzz/artifacts.
#
#   scripts/fuzz.sh [SECONDS [TARGET]]
#   scripts/fuzz.sh build               only build the targets
#
# cargo-fuzz asks for nightly because of its sanitizers. Coverage alone, which is what guides libFuzzer, needs only
# these code generation options. Memory errors are not what is sought here: the parsers have no unsafe code.
# Needs a C++ compiler for libFuzzer itself.
set -euo pipefail
seconds=${1:-60}
cd "$(dirname "$0")/../fuzz"
targets=${2:-$(basename -s .rs fuzz_targets/*.rs)}

host=$(rustc -vV | sed -n 's/^host: //p')
build=${CARGO_TARGET_DIR:-../target}/fuzz
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
coverage+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
coverage+=" -Cllvm-args=-sanitizer-coverage-trace-compares"

# The versions of the workspace; cargo drops what is not needed here and adds libFuzzer.
cp ../Cargo.lock Cargo.lock

# One target: what it found, or the end of its log.
fuzz() {
    local target=$1 found=$build/corpus/$1 log=$build/$1.log # `found`: what the fuzzer learns; the seeds stay as they are
    mkdir -p "$found" "artifacts/$target" "corpus/$target"
    if ! "$build/$host/release/$target" "$found" "corpus/$target" -max_total_time="$seconds" -timeout=5 \
        -rss_limit_mb=512 -malloc_limit_mb=256 -max_len=16384 -artifact_prefix="artifacts/$target/" \
        -print_final_stats=1 >"$log" 2>&1; then
        tail -50 "$log"
        echo "fuzz $target: FAILED; to repeat, in fuzz/: $build/$host/release/$target artifacts/$target/FILE" >&2
        return 1
    fi
    local runs coverage_points
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    coverage_points=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
    # A fuzzer that never ran would otherwise look like success.
    if [ "${runs:-0}" -lt $((seconds * 10)) ]; then
        tail -50 "$log"
        echo "fuzz $target: FAILED; only ${runs:-0} executions" >&2
        return 1
    fi
    echo "fuzz $target: $runs executions, $coverage_points, no crash"
}

bins=()
for target in $targets; do bins+=(--bin "$target"); done
# With --target, build scripts and macros are compiled without these flags.
RUSTFLAGS=$coverage cargo build --quiet --release --target "$host" --target-dir "$build" "${bins[@]}"
[ "$seconds" != build ] || exit 0

# As many side by side as there are cores: each has one thread.
echo "fuzz" $targets": $seconds s each"
failed=0
for target in $targets; do
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n || failed=1
    fuzz "$target" &
done
while [ -n "$(jobs -p)" ]; do wait -n || failed=1; done
exit "$failed"
