#!/usr/bin/env bash
# What holds elsewhere, found out on an x86-64 Linux machine:
#
#   scripts/elsewhere.sh run      run tests on emulated CPUs: 64-bit Arm with and without dot products, an x86-64 of 2006
#   scripts/elsewhere.sh check    type-check and lint the published crates for macOS on Arm and for Windows
#
# An emulator shows that instructions are there and results right, never how fast they are. `run` tests x86-64 with what
# `cargo test --workspace` builds.
#
# For another target Rust needs its standard library: where rustup has added the target, that one. Otherwise, as root on
# Debian, the compiler of the package rustc-web is unpacked (not installed) into target/elsewhere, and builds the library
# from its source. Only then is RUSTC_BOOTSTRAP set, which -Zbuild-std asks for.
set -euo pipefail
cd "$(dirname "$0")/.."

arm=aarch64-unknown-linux-gnu
root=$PWD/target/elsewhere/root

# need COMMAND PACKAGE [COMMAND PACKAGE...]: Debian's packages of commands that are missing.
need() {
    local missing=()
    while [ $# -gt 0 ]; do
        command -v "$1" >/dev/null || missing+=("$2")
        shift 2
    done
    [ ${#missing[@]} -eq 0 ] && return
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Unpacks Debian's compiler, its lints and the library's source, with those dependencies that the system lacks.
unpack() {
    [ -x "$root/usr/bin/rustc" ] && return
    local packages=(rustc-web rust-web-clippy rust-web-src) debs=target/elsewhere/debs package
    local only=(--recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances)
    apt-get update -qq
    rm -rf target/elsewhere/part "$debs"
    mkdir -p target/elsewhere/part "$debs"
    for package in $(apt-cache depends "${only[@]}" "${packages[@]}" | grep '^[a-z]' | sort -u); do
        dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q ' installed$' || echo "$package"
    done | (cd "$debs" && xargs apt-get -o APT::Sandbox::User=root download -qq)
    for package in "$debs"/*.deb; do dpkg-deb --extract "$package" target/elsewhere/part; done
    rm -rf "$debs"
    mv target/elsewhere/part "$root"
}

# for_target TARGET COMMAND ARGUMENTS...: cargo, with a standard library for the target.
for_target() {
    local target=$1 command=$2
    shift 2
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
        cargo "$command" --target "$target" "$@"
        return
    fi
    unpack
    local cargo=cargo
    [ "$command" = clippy ] && cargo=$root/usr/bin/cargo-clippy
    LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu RUSTC=$root/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
        "$cargo" "$command" -Zbuild-std=std,panic_abort,test --target "$target" "$@"
}

# Reads what cargo built from its output: the path of the test binary NAME.
binary() {
    sed -n "s|.*Executable .*(\(.*/$1-[0-9a-f]*\)).*|\1|p" | head -1
}

# refuses COMPILER INSTRUCTION EMULATOR...: fails unless the instruction is illegal on the emulated CPU.
refuses() {
    local compiler=$1 instruction=$2 program=target/elsewhere/illegal code=0
    shift 2
    mkdir -p target/elsewhere
    printf '.text\n.globl main\nmain:\n%s\nret\n.section .note.GNU-stack,"",%%progbits\n' "$instruction" |
        "$compiler" -x assembler -static - -o "$program"
    { "$@" "$program" || code=$?; } >/dev/null 2>&1
    [ "$code" -eq $((128 + 4)) ] && return
    echo "'$instruction' is not illegal on the emulated CPU (code $code): tests there would show nothing" >&2
    return 1
}

# tests NAME EMULATOR... BINARY ARGUMENTS...: runs tests, and prints one line of their outcome or the end of the failure.
tests() {
    local name=$1 log=target/elsewhere/log start=$SECONDS
    shift
    if ! "$@" >"$log" 2>&1; then
        tail -50 "$log"
        echo "$name: FAILED" >&2
        return 1
    fi
    printf '%s: %s; levels skipped: %s; %d s\n' "$name" "$(sed -n 's/^test result: //p' "$log")" \
        "$(grep -oE 'skipped: .* on [a-z0-9]+|[a-z0-9]+: skipped' "$log" | grep -oE 'portable|avx2|avx512|neon' | sort -u | paste -sd' ')" \
        $((SECONDS - start))
}

run() {
    need qemu-aarch64-static qemu-user-static aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    [ -e /usr/aarch64-linux-gnu/lib/libc.so.6 ] || need /none libc6-dev-arm64-cross

    local old=(qemu-x86_64-static -cpu core2duo) built
    refuses cc 'vpaddd %ymm0, %ymm0, %ymm0' "${old[@]}"
    built=$(cargo test --workspace --no-run 2>&1)
    tests "x86-64 without AVX, kernels" "${old[@]}" "$(binary gristmill_kernels <<<"$built")" --nocapture
    tests "x86-64 without AVX, op suite" "${old[@]}" "$(binary ops <<<"$built")" "${PARTS[@]}" avx2::add avx512::add
    tests "x86-64 without AVX, a model" "${old[@]}" "$(binary models <<<"$built")" one_small_model

    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    local new=(qemu-aarch64-static -cpu max -L /usr/aarch64-linux-gnu)
    local plain=(qemu-aarch64-static -cpu cortex-a53 -L /usr/aarch64-linux-gnu)
    refuses aarch64-linux-gnu-gcc $'.arch armv8.2-a+dotprod\nsdot v0.4s, v1.16b, v2.16b' "${plain[@]}"
    built=$(for_target "$arm" test --no-run --profile emulated -p gristmill-kernels -p gristmill-conformance \
        --lib --test ops --test models 2>&1) || { tail -50 <<<"$built"; return 1; }
    tests "Arm, kernels" "${new[@]}" "$(binary gristmill_kernels <<<"$built")" --nocapture
    tests "Arm, op suite" "${new[@]}" "$(binary ops <<<"$built")" neon::
    tests "Arm, a model" "${new[@]}" "$(binary models <<<"$built")" one_small_model
    tests "Arm without dot products, kernels" "${plain[@]}" "$(binary gristmill_kernels <<<"$built")" --nocapture simd format::tests::unpacking
    tests "Arm without dot products, op suite" "${plain[@]}" "$(binary ops <<<"$built")" "${PARTS[@]}" neon::add
    tests "Arm without dot products, a model" "${plain[@]}" "$(binary models <<<"$built")" one_small_model
}

check() {
    local target
    for target in aarch64-apple-darwin x86_64-pc-windows-gnu; do
        # Lints of style change with the compiler, which may be Debian's here.
        for_target "$target" clippy --quiet -p gristmill-kernels -p gristmill-engine -p gristmill -- \
            -D unused -D clippy::correctness -D clippy::suspicious
        echo "$target: the published crates type-check"
    done
}

# The parts of the op suite that differ most from level to level, for CPUs that have the portable level alone.
PARTS=(portable::matmul_rows portable::attention portable::rope portable::rms_norm portable::refuse)

case ${1:-} in
run | check) "$1" ;;
*) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
esac
