#!/usr/bin/env bash
# Builds the extension module like the rest of the workspace, and tests the Python package: pytest, the examples of the docs,
# types, and that the stubs are those of the module.
#
#   scripts/python/test.sh [--build-only]    the package is in target/python afterwards (PYTHONPATH)
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
# With the examples: without what they depend on, cargo would compile 46 packages again, with fewer features.
cargo build --quiet --workspace --examples --lib
package=target/python/gristmill
rm -rf "$package"
mkdir -p target/python
cp -r crates/python/python/gristmill "$package"
for library in "$target"/debug/libgristmill_native.{so,dylib}; do
    [ ! -f "$library" ] || cp "$library" "$package/_native.abi3.so"
done
[ "${1:-}" != --build-only ] || exit 0

venv=target/venv-python
[ -d "$venv" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet -r scripts/python/requirements.txt
export PYTHONPATH=$PWD/target/python PYTHONDONTWRITEBYTECODE=1
python=$PWD/$venv/bin/python
"$python" -m pytest -q -p no:cacheprovider crates/python/tests
"$python" scripts/python/doctests.py
cd target/python
"$python" -m mypy --config-file ../../crates/python/pyproject.toml --cache-dir ../mypy -p gristmill
"$python" -m mypy.stubtest gristmill._native --mypy-config-file ../../crates/python/pyproject.toml
