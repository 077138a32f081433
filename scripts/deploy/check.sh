#!/bin/sh
# Checks the files of deploy: the manifests against the schemas of Kubernetes, with no unknown field, and the syntax of the
# Containerfile. The schemas and the parser are in Python packages; nothing else is asked. Where the packages cannot be had,
# nothing is known, which is said and does not fail.
set -eu
cd "$(dirname "$0")/../.."
venv=target/deploy
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement scripts/deploy/packages.txt; then
    echo "deploy: SKIPPED, the packages of scripts/deploy/packages.txt cannot be installed"
    exit 0
fi
"$venv/bin/kubernetes-validate" --strict --quiet deploy/kubernetes/*.yaml
# Debian's versions of packages are not pinned: each has the newest fixes.
"$venv/bin/hadolint" --ignore DL3008 deploy/Containerfile
