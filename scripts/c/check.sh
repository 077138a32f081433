#!/usr/bin/env bash
# Checks the C interface: that gristmill.h is made of the sources, and that programs in C and Go run with the built-in model,
# under AddressSanitizer and valgrind.
#
#   scripts/c/check.sh [--write | --tools-only]
#
# --write: write gristmill.h instead. It installs cbindgen into target/tools, and as root on Debian valgrind and Go.
set -euo pipefail
cd "$(dirname "$0")/../.."

CBINDGEN=0.29.4
export PATH=$PWD/target/tools/bin:$PATH
[ "$(cbindgen --version 2>/dev/null)" = "cbindgen $CBINDGEN" ] ||
    cargo install --quiet --locked --debug --root target/tools --target-dir target/tools/build cbindgen@$CBINDGEN
missing=()
command -v valgrind >/dev/null || missing+=(valgrind libc6-dbg)
command -v go >/dev/null || missing+=(golang-go)
if [ ${#missing[@]} -gt 0 ]; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
[ "${1:-}" != --tools-only ] || exit 0

header=crates/c/gristmill.h
made=$(mktemp)
trap 'rm -f "$made"' EXIT
cbindgen --quiet --config crates/c/cbindgen.toml --output "$made" crates/c
if [ "${1:-}" = --write ]; then
    cp "$made" $header
    exit
fi
diff -u $header "$made" || { echo "$header: differs from crates/c/src; run scripts/c/check.sh --write" >&2; exit 1; }

# With the whole workspace, so that libraries are not compiled again with other features.
cargo build --quiet --workspace --examples --bins --lib
library=$PWD/target/debug out=target/c model=$PWD/crates/cli/model/gristmill-stories.gguf
mkdir -p $out
export LD_LIBRARY_PATH=$library
warnings=(-std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -pedantic -g -O1 -Icrates/c)
link=(-L"$library" -lgristmill -lm -pthread)

cc "${warnings[@]}" crates/c/examples/chat.c -o $out/chat "${link[@]}"
echo '#include "gristmill.h"' | c++ -std=c++11 -Wall -Wextra -Werror -pedantic -Icrates/c -fsyntax-only -x c++ -
cc "${warnings[@]}" -fsanitize=address,undefined crates/c/tests/api.c -o $out/api-asan "${link[@]}"
cc "${warnings[@]}" crates/c/tests/api.c -o $out/api "${link[@]}"

story=$($out/chat "$model" "Once upon a time" 12)
[ ${#story} -gt 20 ] || { echo "chat.c printed: $story" >&2; exit 1; }
echo "chat.c: $story"
ASAN_OPTIONS=detect_leaks=1 $out/api-asan "$model"
# The CPU that valgrind emulates has AVX2. It runs one thread at a time: in turns, or a request ends before another thread cancels it.
valgrind --quiet --fair-sched=yes --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite $out/api "$model"
story=$(cd crates/c/examples/go && CGO_CFLAGS="-I$PWD/../.." CGO_LDFLAGS="-L$library -lgristmill" GOFLAGS=-mod=mod GO111MODULE=off \
    go run main.go "$model" "Once upon a time")
[ ${#story} -gt 40 ] || { echo "main.go printed: $story" >&2; exit 1; }
echo "main.go: $story"
