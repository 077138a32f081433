#!/bin/sh
# Installs gristmill @VERSION@ for one user: fetches the archive of this machine, verifies its SHA-256, which is in this script,
# and copies the program.
#
#   sh install.sh [FOLDER]
#
# FOLDER is ~/.local/bin by default. GRISTMILL_DOWNLOADS is another address or folder of the archives. Nothing is written
# before the archive is verified.
set -eu

VERSION='@VERSION@'
DOWNLOADS=${GRISTMILL_DOWNLOADS:-'@ADDRESS@'}
# System, machine, SHA-256 and file of each archive.
ARCHIVES='@ARCHIVES@'

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

fetch() {
    case $1 in
    http://* | https://*)
        if command -v curl >/dev/null 2>&1; then
            curl --fail --silent --show-error --location --output "$2" "$1"
        elif command -v wget >/dev/null 2>&1; then
            wget --quiet --output-document="$2" "$1"
        else
            fail "neither curl nor wget is installed; install one of them"
        fi
        ;;
    *) cp "$1" "$2" ;;
    esac
}

sha256() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum "$1" | cut -d ' ' -f 1
    elif command -v shasum >/dev/null 2>&1; then
        shasum -a 256 "$1" | cut -d ' ' -f 1
    else
        fail "neither sha256sum nor shasum is installed; install coreutils"
    fi
}

main() {
    folder=${1:-${HOME:?HOME is not set}/.local/bin}
    system=$(uname -s) machine=$(uname -m)
    line=$(echo "$ARCHIVES" | grep "^$system $machine " || true)
    [ -n "$line" ] || fail "there is no archive for $system on $machine; build gristmill with cargo"
    expected=$(echo "$line" | cut -d ' ' -f 3)
    file=$(echo "$line" | cut -d ' ' -f 4)

    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 1' HUP INT TERM
    fetch "$DOWNLOADS/$file" "$scratch/$file" || fail "$DOWNLOADS/$file: cannot be fetched; check the address"
    found=$(sha256 "$scratch/$file")
    if [ "$found" != "$expected" ]; then
        fail "$file: is damaged or forged (found SHA-256 $found, expected $expected); nothing was installed"
    fi
    tar -xzf "$scratch/$file" -C "$scratch"
    mkdir -p "$folder"
    # A program that runs keeps its file.
    cp "$scratch/${file%.tar.gz}/gristmill" "$folder/.gristmill.$$"
    chmod 755 "$folder/.gristmill.$$"
    mv "$folder/.gristmill.$$" "$folder/gristmill"
    echo "installed gristmill $VERSION into $folder"
    case :$PATH: in
    *:"$folder":*) ;;
    *) echo "add $folder to PATH, or run $folder/gristmill" ;;
    esac
}

# Called last: a script that arrives in part does nothing.
main "$@"
