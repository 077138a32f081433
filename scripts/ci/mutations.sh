#!/usr/bin/env bash
# Whether each stage of .ci/run notices a mistake in what it tests: each row of mutations.tsv (stage, file, text, what
# replaces its first occurrence, what the stage must print of it) is applied to a copy of the last commit, in which this stage
# must fail by the mistake.
#
#   scripts/ci/mutations.sh [STAGE]
#
# The copy in target/prove/stages stays, with what was built there: the first run takes as long as .ci/run.
set -euo pipefail
cd "$(dirname "$0")/../.."
copy=$PWD/target/prove/stages rows=$PWD/scripts/ci/mutations.tsv failed=0
git worktree prune
[ -d "$copy/tree" ] || git worktree add --quiet --detach "$copy/tree" HEAD
git -C "$copy/tree" checkout --quiet --force --detach "$(git rev-parse HEAD)"
# Below the tree, as scripts look for it there, and apart from it.
mkdir -p "$copy/target"
ln -sfn ../target "$copy/tree/target"
cd "$copy/tree"

while IFS=$'\t' read -r stage file text instead sign; do
    [ -z "${1:-}" ] || [ "$1" = "$stage" ] || continue
    TEXT=$text INSTEAD=$instead python3 - "$file" <<'PYTHON'
import os, sys
path = sys.argv[1]
text = open(path).read()
old, new = (os.environ[name].replace('\\n', '\n') for name in ('TEXT', 'INSTEAD'))
assert old in text, f'{path} does not contain {old!r}'
open(path, 'w').write(text.replace(old, new, 1))
PYTHON
    log=$copy/$(tr -c 'A-Za-z\n' - <<<"$stage").log start=$SECONDS
    if .ci/run "$stage" >"$log" 2>&1 </dev/null; then
        outcome="NOT NOTICED"
    elif ! grep -q "^== FAILED in: $stage$" "$log"; then
        outcome="did not run, see $log"
    elif ! grep -qF -- "$sign" "$log"; then
        outcome="failed without '$sign', see $log"
    else
        outcome=noticed
    fi
    echo "$stage: $outcome: $file ($((SECONDS - start)) s)"
    [ "$outcome" = noticed ] || failed=1
    git checkout --quiet -- "$file"
done <"$rows"
exit "$failed"
