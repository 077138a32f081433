#!/usr/bin/env bash
# Whether each stage of .ci/run notices a mistake in what it tests: each row of mutations.tsv (stage, file, text, what
# replaces its first occurrence) is applied to a copy of the last commit, in which this stage alone must fail.
#
#   scripts/ci/mutations.sh [STAGE]
#
# Takes as long as .ci/run, because every stage is built in the copy.
set -euo pipefail
cd "$(dirname "$0")/../.."
copy=target/prove/stages rows=$PWD/scripts/ci/mutations.tsv failed=0
rm -rf "$copy/tree"
git worktree prune
git worktree add --quiet --detach "$copy/tree" HEAD
trap 'git worktree remove --force "$OLDPWD/$copy/tree"' EXIT
export CARGO_TARGET_DIR=$PWD/$copy/target
cd "$copy/tree"

while IFS=$'\t' read -r stage file text instead; do
    [ -z "${1:-}" ] || [ "$1" = "$stage" ] || continue
    TEXT=$text INSTEAD=$instead python3 - "$file" <<'PYTHON'
import os, sys
path = sys.argv[1]
text = open(path).read()
old, new = (os.environ[name].replace('\\n', '\n') for name in ('TEXT', 'INSTEAD'))
assert old in text, f'{path} does not contain {old!r}'
open(path, 'w').write(text.replace(old, new, 1))
PYTHON
    log=$CARGO_TARGET_DIR-$(tr -c 'a-z\n' - <<<"$stage").log
    if .ci/run "$stage" >"$log" 2>&1; then
        echo "$stage: NOT NOTICED: $file"
        failed=1
    elif grep -q "^== FAILED in: $stage$" "$log"; then
        echo "$stage: noticed: $file"
    else
        echo "$stage: did not run, see $log"
        failed=1
    fi
    git checkout --quiet -- "$file"
done <"$rows"
exit "$failed"
