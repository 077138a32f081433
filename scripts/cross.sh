#!/usr/bin/env bash
# Checks for other platforms, run on x86-64 Linux:
#
#   scripts/cross.sh build    build what `run` runs on emulated Arm CPUs
#   scripts/cross.sh run      run tests on emulated CPUs: 64-bit Arm with and without dot products, an x86-64 of 2006
#   scripts/cross.sh all      the same with the whole op suite, the kernels' unit tests and a model on Arm
#   scripts/cross.sh check    type-check and lint the published crates for macOS on Arm and for Windows
#   scripts/cross.sh unpack   only unpack the compiler (below), for `cargo xtask dist`
#
# An emulator shows that instructions are there and results right, never how fast they are. AVX2 and AVX-512 are not
# emulated: they are tested on machines that have them.
#
# For another target Rust needs its standard library: where rustup has added the target, that one. Otherwise, as root on
# Debian, the compiler of the package rustc-web is unpacked (not installed) into target/unpacked, with the library for
# Arm; for the other targets the library is type-checked from its source. Only then is RUSTC_BOOTSTRAP set, which
# -Zbuild-std asks for.
set -euo pipefail
cd "$(dirname "$0")/.."

ARM=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
unpacked=$PWD/target/unpacked
root=$unpacked/root
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

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

# Unpacks Debian's compiler, its lints and the library's source, with those dependencies that the system lacks, and the
# library for Arm, for which apt gets its own lists.
unpack() {
    [ -x "$root/usr/bin/rustc" ] && return
    local packages=(rustc-web rust-web-clippy rust-web-src) package
    local only=(--recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances)
    local foreign=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::Lists="$unpacked/lists"
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Acquire::Languages=none)
    rm -rf "$unpacked"
    mkdir -p "$unpacked"/{part,debs,lists/partial}
    apt-get update -qq
    apt-get "${foreign[@]}" -o APT::Sandbox::User=root update -qq
    for package in $(apt-cache depends "${only[@]}" "${packages[@]}" | grep '^[a-z]' | sort -u); do
        dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q ' installed$' || echo "$package"
    done | (cd "$unpacked/debs" && xargs apt-get -o APT::Sandbox::User=root download -qq)
    (cd "$unpacked/debs" && apt-get "${foreign[@]}" -o APT::Sandbox::User=root download -qq libstd-rust-web-dev)
    for package in "$unpacked"/debs/*.deb; do dpkg-deb --extract "$package" "$unpacked/part"; done
    mv "$unpacked/part" "$root"
    rm -rf "$unpacked"/{debs,lists}
}

# across TARGETS COMMAND ARGUMENTS...: cargo, with a standard library for each of the targets.
across() {
    local target targets=() added=1 there=1 settings=() library=() cargo=cargo command=$2
    for target in $1; do
        targets+=(--target "$target")
        [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] || added=
    done
    shift 2
    if [ -z "$added" ]; then
        unpack
        settings=(LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu" RUSTC="$root/usr/bin/rustc")
        [ "$command" = clippy ] && cargo=$root/usr/bin/cargo-clippy
        for target in "${targets[@]}"; do
            [ "$target" = --target ] || [ -d "$root/usr/lib/rustlib/$target" ] || there=
        done
        if [ -z "$there" ]; then
            settings+=(RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zno-codegen)
            library=(-Zbuild-std=std -Zbuild-std-features=panic-unwind)
        fi
    fi
    env "${settings[@]}" "$cargo" "$command" "${library[@]}" --profile cross "${targets[@]}" "$@"
}

# Reads what cargo built from its output: the path of the test binary NAME.
binary() {
    sed -n "s|.*Executable .*(\(.*/$1-[0-9a-f]*\)).*|\1|p" | head -1
}

# refuses COMPILER INSTRUCTION EMULATOR...: fails unless the instruction is illegal on the emulated CPU.
refuses() {
    local compiler=$1 instruction=$2 program=$scratch/illegal.$BASHPID code=0
    shift 2
    printf '.text\n.globl main\nmain:\n%s\nret\n.section .note.GNU-stack,"",%%progbits\n' "$instruction" |
        "$compiler" -x assembler -static - -o "$program"
    { "$@" "$program" || code=$?; } >/dev/null 2>&1
    [ "$code" -eq $((128 + 4)) ] && return
    echo "'$instruction' is not illegal on the emulated CPU (code $code): tests there would show nothing" >&2
    return 1
}

# tests NAME EMULATOR... BINARY ARGUMENTS...: runs tests, and prints one line of their outcome or the end of the failure.
tests() {
    local name=$1 log=$scratch/log.$BASHPID start=$SECONDS
    shift
    if ! "$@" >"$log" 2>&1; then
        tail -50 "$log"
        echo "$name: FAILED" >&2
        return 1
    fi
    printf '%s: %s; levels skipped: %s; %d s\n' "$name" "$(sed -n 's/^test result: //p' "$log")" \
        "$(grep -oE 'skipped: .* on [a-z0-9]+|[a-z0-9]+: skipped' "$log" | grep -oE 'portable|avx2|avxvnni|avx512|amx|neon' | sort -u | paste -sd' ')" \
        $((SECONDS - start))
}

# The tests of the SIMD levels and of the formats in them: binaries that `cargo test --no-run` names.
CPU_TESTS=(gristmill_kernels gristmill_cpu blocks encode)

# old ARGUMENTS...: an x86-64 CPU without AVX runs what `cargo test --workspace` builds, the levels' tests with these.
old() {
    need qemu-x86_64-static qemu-user-static
    local cpu=(qemu-x86_64-static -cpu core2duo) built name
    refuses cc 'vpaddd %ymm0, %ymm0, %ymm0' "${cpu[@]}"
    built=$(cargo test --workspace --no-run 2>&1) || { tail -50 <<<"$built"; return 1; }
    for name in "${CPU_TESTS[@]}"; do
        tests "x86-64 without AVX, $name" "${cpu[@]}" "$(binary "$name" <<<"$built")" --nocapture "$@"
    done
    tests "x86-64 without AVX, op suite" "${cpu[@]}" "$(binary levels <<<"$built")" "${PARTS[@]}" avx2::add avx512::add
    tests "x86-64 without AVX, a model" "${cpu[@]}" "$(binary models <<<"$built")" one_small_model
}

# Builds the op suite for Arm, and prints what cargo prints.
build() {
    need qemu-aarch64-static qemu-user-static aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    [ -e /usr/aarch64-linux-gnu/lib/crt1.o ] || need /none libc6-dev-arm64-cross
    across "$ARM" test --no-run -p gristmill-cpu --test levels
}

# arm TESTS...: Arm CPUs with and without dot products, the former with these parts of the op suite; both with a few cases of
# every part.
arm() {
    local built suite
    built=$(build 2>&1) || { tail -50 <<<"$built"; return 1; }
    refuses aarch64-linux-gnu-gcc $'.arch armv8.2-a+dotprod\nsdot v0.4s, v1.16b, v2.16b' "${WITHOUT[@]}"
    suite=$(binary levels <<<"$built")
    tests "Arm, op suite" "${WITH[@]}" "$suite" "$@"
    tests "Arm, a few cases" "${WITH[@]}" "$suite" "${FEW[@]}"
    tests "Arm without dot products, op suite" "${WITHOUT[@]}" "$suite" "${PARTS[@]}" neon::add
    tests "Arm without dot products, a few cases" "${WITHOUT[@]}" "$suite" "${FEW[@]}"
}

run() {
    # Before two of these ask apt for them.
    need qemu-x86_64-static qemu-user-static aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    local running=() one failed=0
    # Searching encoders take a minute each there.
    old --skip any_bits_encode --skip encoding_is_as_good_as_stated &
    running+=($!)
    # Meanwhile: each has ends in which one core waits.
    arm neon::matmul neon::gate_up neon::rope neon::rms_norm neon::route neon::embed neon::refuse &
    running+=($!)
    for one in "${running[@]}"; do wait "$one" || failed=1; done
    return "$failed"
}

all() {
    old
    arm neon::
    local cpu built name
    # The engine and a hundred packages below it.
    built=$(across "$ARM" test --no-run -p gristmill-conformance --test models 2>&1) || { tail -50 <<<"$built"; return 1; }
    tests "Arm, a model" "${WITH[@]}" "$(binary models <<<"$built")" one_small_model
    tests "Arm without dot products, a model" "${WITHOUT[@]}" "$(binary models <<<"$built")" one_small_model
    built=$(across "$ARM" test --no-run -p gristmill-kernels -p gristmill-cpu -p gristmill-transcode --lib --test blocks --test encode 2>&1) || { tail -50 <<<"$built"; return 1; }
    for cpu in max cortex-a53; do
        for name in "${CPU_TESTS[@]}"; do
            tests "Arm ($cpu), $name" qemu-aarch64-static -cpu "$cpu" -L /usr/aarch64-linux-gnu \
                "$(binary "$name" <<<"$built")" --nocapture
        done
    done
}

check() {
    # For Windows with Microsoft's library, since the other asks for tools even to check. Lints of style are left out:
    # they change with the compiler, which may be Debian's here.
    across "aarch64-apple-darwin x86_64-pc-windows-msvc" clippy --quiet \
        -p gristmill-kernels -p gristmill-cpu -p gristmill-transcode -p gristmill-cuda -p gristmill-metal -p gristmill-files \
        -p gristmill-text -p gristmill-model -p gristmill-engine -p gristmill-convert -p gristmill-lab \
        -p gristmill -- \
        -D unused -D clippy::correctness -D clippy::suspicious
    echo "the published crates type-check for macOS on Arm and for Windows on x86-64"
}

# Quick parts of the op suite with every format among them, for CPUs that have the portable level alone. All cases of
# attention and experts take minutes there.
PARTS=(portable::matmul_rows portable::embed portable::rope portable::rms_norm portable::refuse)
FEW=(--ignored few_cases_of_every_part)

# Arm CPUs with and without dot products.
WITH=(qemu-aarch64-static -cpu max -L /usr/aarch64-linux-gnu)
WITHOUT=(qemu-aarch64-static -cpu cortex-a53 -L /usr/aarch64-linux-gnu)

case ${1:-} in
build | run | all | check | unpack) "$1" ;;
*) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
esac
