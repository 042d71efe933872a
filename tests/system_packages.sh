#!/bin/sh
# Installs the Debian packages named as arguments where their programs are missing; quick when they are there.
set -eu

present() {
    case "$1" in
        binutils) command -v nm >/dev/null && command -v readelf >/dev/null ;;
        libc6-dev) [ -e /usr/include/stdio.h ] ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

missing=""
for package in "$@"; do
    present "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    sudo=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo="sudo"
else
    echo "the tests need these packages; run as root: apt-get install$missing" >&2
    exit 1
fi
$sudo apt-get update -q
# shellcheck disable=SC2086 # the names are meant to be split
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
