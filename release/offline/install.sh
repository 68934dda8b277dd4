#!/bin/sh
# Installs Koord @VERSION@ on a node without a network, from the directory that this file is in; see README.
# Everything is checked before anything is changed. Ends with 0 done, 1 failed, 2 wrong usage, 3 refused. What failed is
# undone; what cannot be undone, koordctl's record tells of, and while it is there the programs stay.
set -eu

VERSION=@VERSION@
PYTHONS='@PYTHONS@'
GLIBC=@GLIBC@
SYSTEMD=252
RECORD=/var/lib/koord/install/record.jsonl
DEFAULTS=/etc/default/koord
HOME_OF_ALL=/opt/koord
ENVIRONMENTS_UNIT=/etc/systemd/system/koord-qosd.service
PROXY=koord-runtime-proxy.service
QOSD=koord-qosd.service
NOT_WIRED='this node could not be wired, see above'

here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
deb=$here/koord_@DEBIAN_VERSION@_amd64.deb
environment=$HOME_OF_ALL/$VERSION

say() { echo "install.sh: $*"; }
refuse() { echo "install.sh: refused, nothing was changed: $*" >&2; exit 3; }
fail() { echo "install.sh: failed: $*" >&2; exit 1; }

usage() {
    echo "usage: install.sh [--dry-run | --remove | --purge]"
    echo "  --dry-run  check this machine and say what would be done"
    echo "  --remove   point kubelet back at its runtime and remove Koord; edited configuration stays"
    echo "  --purge    the same, and remove configuration"
}

# Is dotted version $1 at least $2?
at_least() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

check_machine() {
    [ "$(id -u)" = 0 ] || refuse "only root can install a node's services"
    [ -d /run/systemd/system ] || refuse "this machine was not started by systemd"
    systemd=$(systemctl --version | { read -r _ number _ && echo "$number"; }) || refuse "systemd says no version"
    at_least "$systemd" "$SYSTEMD" || refuse "systemd $systemd is older than $SYSTEMD"
    [ "$(uname -m)" = x86_64 ] || refuse "these files are for x86_64, and this machine is $(uname -m)"
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || refuse "the C library is not glibc"
    at_least "${libc#glibc }" "$GLIBC" || refuse "$libc is older than $GLIBC"
    (cd "$here" && sha256sum -c SHA256SUMS >/dev/null 2>&1) || refuse "a file of the bundle is damaged or missing"
}

debian_12() {
    command -v dpkg >/dev/null && [ -r /etc/os-release ] || return 1
    (. /etc/os-release && [ "${ID:-}-${VERSION_ID:-}" = debian-12 ])
}

@HAND_OVER@
# koordctl does not remember that kubelet was to be left alone, but its record of a whole installation tells.
about_kubelet() {
    if grep -qx '{"type":"complete"}' "$RECORD" 2>/dev/null && ! grep -qF '"step":{"type":"kubelet"' "$RECORD"; then
        echo --no-kubelet
    fi
}

# Options of koordctl install that the operator wants, such as KOORDCTL_INSTALL=--no-daemon; the package asks by itself.
wishes() {
    # shellcheck disable=SC1090
    if [ -e "$DEFAULTS" ]; then . "$DEFAULTS"; fi
    echo "${KOORDCTL_INSTALL-}"
}

# --- Debian 12: packages ---------------------------------------------------------------------------------------------

state_of() { dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null || true; }

installed_version() { [ "$(state_of "$1")" = installed ] && dpkg-query --show --showformat='${Version}' "$1"; }

# Whatever state an interrupted dpkg left it in.
known() { case $(state_of "$1") in '' | not-installed) return 1 ;; esac; }

present() { known "$1" && [ "$(state_of "$1")" != config-files ]; }

# The bundle's packages that Python needs and this node lacks, one path a line.
lacking() {
    if installed_version python3.11 >/dev/null; then return; fi
    for file in "$here"/debian/*.deb; do
        name=$(dpkg-deb --field "$file" Package)
        version=$(dpkg-deb --field "$file" Version)
        if present=$(installed_version "$name") && dpkg --compare-versions "$present" ge "$version"; then
            case $name in
                *python3.11*) dpkg --compare-versions "$present" eq "$version" || return 1 ;;
            esac
        else
            echo "$file"
        fi
    done
}

names_of() { for file in "$@"; do dpkg-deb --field "$file" Package; done; }

# Where Koord was there before, the node keeps it, in the old version or the new: dpkg says which.
undo_packages() {
    if [ -n "$there" ]; then return; fi
    say "undoing"
    if known koord; then dpkg "$undo" koord || fail "koord could not be removed, see above"; fi
    # shellcheck disable=SC2086 # package names, one word each
    if [ -n "$brought" ]; then dpkg --purge $brought || fail "left installed:" $brought; fi
}

# What the operator wrote before, stays.
way_to_undo() {
    if known koord || [ -e /etc/koord ] || [ -e /var/lib/koord ]; then echo --remove; else echo --purge; fi
}

install_packages() {
    if [ -f "$ENVIRONMENTS_UNIT" ] && [ ! -L "$ENVIRONMENTS_UNIT" ]; then
        refuse "$ENVIRONMENTS_UNIT is there and not of a package. If Koord was installed from a" \
            "virtual environment, run koordctl uninstall first, else remove that file"
    fi
    files=$(lacking) || refuse "parts of a newer Python 3.11 are here: install python3.11 from where they came"
    there=$(if present koord; then echo yes; fi)
    undo=$(way_to_undo)
    brought=
    IFS='
'
    # shellcheck disable=SC2086 # one path a line
    set -- $files
    unset IFS
    if [ -n "$dry_run" ]; then
        for file in "$@" "$deb"; do say "would run: dpkg --install $file"; done
        return
    fi
    if [ $# -gt 0 ]; then
        for name in $(names_of "$@"); do
            if ! known "$name"; then brought="$brought $name"; fi
        done
        dpkg --install "$@" || { undo_packages; fail "Python could not be installed"; }
    fi
    dpkg --install "$deb" || { undo_packages; fail "the package could not be installed"; }
    wire || { undo_packages; fail "$NOT_WIRED"; }
    # shellcheck disable=SC2086
    if [ -n "$brought" ] && command -v apt-mark >/dev/null; then apt-mark auto $brought >/dev/null; fi
}

# The package has tried, and ends well whatever came of it. Where it left a record, koordctl brings that to its end.
wire() {
    if [ -z "$there" ] && [ ! -e "$RECORD" ]; then return 1; fi
    # shellcheck disable=SC2046 # an option or none
    koordctl install --yes --package $(about_kubelet)
}

# --- elsewhere: a virtual environment --------------------------------------------------------------------------------

suits() {
    "$1" -I -c 'import sys, asyncio, ctypes, hashlib, sqlite3, ssl, venv
sys.exit("%d.%d" % sys.version_info[:2] not in sys.argv[1].split())' "$PYTHONS" 2>/dev/null
}

find_python() {
    for version in $PYTHONS ''; do
        found=$(command -v "python${version:-3}") && suits "$found" && { echo "$found"; return; }
    done
    return 1
}

# /usr/bin's links lead by way of "current", so the running proxy starts what is there by then.
switch_to() {
    ln -sfn "$1" "$HOME_OF_ALL/current.new"
    mv -T "$HOME_OF_ALL/current.new" "$HOME_OF_ALL/current"
}

# koordctl takes the directory that its Python was called in for its environment.
koordctl_of() { directory=$1; shift; "$HOME_OF_ALL/$directory/bin/python" -I -m koordctl "$@"; }

works() { koordctl_of "$1" --version >/dev/null 2>&1; }

undo_environment() {
    say "undoing"
    rm -rf "$environment"
    if [ ! -e "$RECORD" ]; then rm -f "$HOME_OF_ALL/current"; fi
    rmdir "$HOME_OF_ALL" 2>/dev/null || true
}

is_current() { [ "$(readlink "$HOME_OF_ALL/current")" = "$VERSION" ]; }

install_environment() {
    options=$(wishes) || refuse "$DEFAULTS is not understood"
    python=$(find_python) || refuse "it needs one of Python $PYTHONS with venv, ssl and sqlite3, and none is here"
    if [ -n "$dry_run" ]; then
        say "would make $environment with $python, without a network, and run: koordctl install"
        return
    fi
    if [ ! -e "$RECORD" ] || ! is_current || ! works "$VERSION"; then make_environment; fi
    if [ -e "$RECORD" ]; then
        upgrade_environment
    else
        switch_to "$VERSION"
        # shellcheck disable=SC2086 # options, one word each
        koordctl_of current install --yes $options || not_wired
    fi
}

not_wired() {
    if [ -e "$RECORD" ]; then
        fail "$NOT_WIRED. Not all of it was undone, so the programs stay: run this again, or with --remove"
    fi
    undo_environment
    fail "$NOT_WIRED"
}

# Whatever an earlier run left there is made anew.
make_environment() {
    rm -rf "$environment"
    "$python" -m venv --without-pip "$environment" || { undo_environment; fail "no virtual environment"; }
    for pip in "$here"/wheelhouse/pip-*.whl; do :; done
    "$environment/bin/python" "$pip/pip" install --quiet --no-index --no-cache-dir \
        --find-links "$here/wheelhouse" "koord[node]==$VERSION" ||
        { undo_environment; fail "the wheels cannot be installed"; }
}

# The running proxy hands over and ends by itself, as with the Debian package. What else is new, koordctl finds out.
upgrade_environment() {
    before=$(main_pid "$PROXY")
    switch_to "$VERSION"
    if systemctl --quiet is-active "$PROXY"; then hand_over "$PROXY" || say "$PROXY did not hand over"; fi
    systemctl try-restart "$QOSD" || say "$QOSD did not start, see: journalctl -u $QOSD"
    # shellcheck disable=SC2046
    koordctl_of current install --yes $(about_kubelet) || fail "not all of the new version is in place, see above"
    if [ "$before" != 0 ] && [ "$(main_pid "$PROXY")" = "$before" ]; then
        fail "$PROXY goes on with the former version, which stays, see: journalctl -u $PROXY. Then run this again"
    fi
    for former in "$HOME_OF_ALL"/*; do
        case ${former##*/} in "$VERSION" | current) ;; *) rm -rf "$former" ;; esac
    done
}

# ---------------------------------------------------------------------------------------------------------------------

remove() {
    [ "$(id -u)" = 0 ] || refuse "only root can remove a node's services"
    if command -v dpkg >/dev/null && { present koord || { [ "$1" = purge ] && known koord; }; }; then
        dpkg "--$1" koord || fail "see above"
        say "Python's packages stay; those that nothing else needs go with: apt-get autoremove"
    elif [ -d "$HOME_OF_ALL" ] || [ -e "$RECORD" ]; then
        remove_environment "$1"
    else
        refuse "Koord is not installed"
    fi
}

remove_environment() {
    if [ -e "$RECORD" ] && ! works current; then
        fail "this node is wired, and no koordctl in $HOME_OF_ALL works. Run install.sh first, which makes one"
    fi
    if [ "$1" = purge ]; then set -- --purge; else set --; fi
    if [ -e "$HOME_OF_ALL/current" ]; then koordctl_of current uninstall --yes "$@" || fail "see above"; fi
    rm -rf "$HOME_OF_ALL"
}

dry_run=
case ${1:-} in
    --help | -h) usage; exit 0 ;;
    --remove | --purge) remove "${1#--}"; say "removed"; exit 0 ;;
    --dry-run) dry_run=yes ;;
    '') ;;
    *) usage >&2; exit 2 ;;
esac

check_machine
if debian_12; then install_packages; else install_environment; fi
if [ -z "$dry_run" ]; then say "Koord $VERSION is active: koordctl doctor"; fi
