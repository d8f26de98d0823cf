#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/root.sh [--print]
#
# Makes, or brings up to date, the toolchain root: a Debian 13 (trixie) system with the packages of
# scripts/packages.txt, in $NRS_CACHE/root. On a Debian 13 host that has these packages, the host
# itself serves. Nothing is done when the package list has not changed. scripts/in-root.sh runs
# commands inside.
#
#   --print   print the root's path and do nothing else (fails if there is none yet)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

root=$NRS_CACHE/root
stampfile=$NRS_CACHE/root.stamp
mapfile -t packages < <(grep -v '^#' "$NRS_SCRIPTS/packages.txt")
key=$(printf '%s\n' "${packages[@]}" | hash_of)

host_serves() {
	is_trixie && dpkg-query -W -f '${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
		awk -v want="${#packages[@]}" '$1 == "installed" { n++ } END { exit n != want }'
}

case ${1:-} in
--help | -h) usage && exit ;;
--print)
	# One that waits for an update of its packages serves meanwhile.
	if [ -f "$stampfile" ]; then echo "$root"; elif host_serves; then echo /; else exit 1; fi
	exit
	;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac

stamp_is "$stampfile" "$key" && exit
if host_serves; then
	log "root: this host is Debian 13 with all packages, it serves as the root"
	exit
fi
[ "$(id -u)" = 0 ] ||
	die "making a root needs the rights of root (or a Debian 13 host with: ${packages[*]})"
die_with_parent "$@"
lock root
stamp_is "$stampfile" "$key" && exit

# The base system: made aside, renamed when complete.
[ -d "$root" ] ||
	debian_root root "$NRS_CACHE/log/root-base.log" "$root" ca-certificates,debian-archive-keyring \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*'

# The packages: dpkg finishes here what an interrupted run left half installed.
cat >"$NRS_CACHE/root-install.tmp" <<'END'
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update
dpkg --configure -a
apt-get -y -f install
apt-get -y --no-install-recommends install "$@"
apt-get clean
END
run_logged "root: ${#packages[@]} packages" "$NRS_CACHE/log/root-packages.log" \
	env NRS_ROOT="$root" "$NRS_SCRIPTS/in-root.sh" --rw sh "$NRS_CACHE/root-install.tmp" \
	"${packages[@]}"
rm -f "$NRS_CACHE/root-install.tmp"
stamp "$stampfile" "$key"
log "root: ready in $root"
