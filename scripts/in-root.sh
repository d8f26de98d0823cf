#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/in-root.sh [--rw | --shared] CMD [ARG...]
#
# Runs CMD in the toolchain root (scripts/root.sh) in its own mount and process namespaces, and
# returns the exit status of CMD. The checkout, the cache directory, the current directory and /tmp
# have the same paths inside as outside; the rest of the root is read-only. The network is the
# host's. When this script ends, all processes of CMD end. cargo builds in $NRS_CACHE/target, so
# that all checkouts share the crates of the registry.
#
#   --rw      make the root writable (for package installation)
#   --shared  run CMD in $NRS_CACHE/tree, a copy of the checkout; unchanged sources are not rebuilt,
#             whichever checkout built them
set -euo pipefail
. "$(dirname "$0")/lib.sh"

rw='' shared=''
case ${1:-} in
--help | -h | '') usage && exit ;;
--rw) rw=1 && shift ;;
--shared) shared=1 && shift ;;
esac

if [ -n "${NRS_IN_ROOT:-}" ]; then
	[ -z "$shared" ] || { shared_tree && cd "$tree"; }
	exec "$@"
fi
# The copy is made inside the root.
[ -z "$shared" ] || set -- "$NRS_SCRIPTS/in-root.sh" --shared "$@"
die_with_parent ${rw:+--rw} "$@"

# Environment of CMD: Debian's PATH and tools, no settings of another toolchain.
unset RUSTC RUSTUP_HOME RUSTUP_TOOLCHAIN RUSTFLAGS CARGO_TARGET_DIR MAKEFLAGS MAKELEVEL MFLAGS \
	LD_PRELOAD TMPDIR
host_cargo=${CARGO_HOME:-$HOME/.cargo}
root=${NRS_ROOT:-$("$NRS_SCRIPTS/root.sh" --print)} ||
	die "no toolchain root yet: run scripts/root.sh"
mkdir -p "$NRS_CACHE/cargo"
for f in config.toml config; do
	if [ -f "$host_cargo/$f" ] && ! cmp -s "$host_cargo/$f" "$NRS_CACHE/cargo/$f"; then
		cp "$host_cargo/$f" "$NRS_CACHE/cargo/$f"
	fi
done
export CARGO_TARGET_DIR=$NRS_CACHE/target
export CARGO_HOME=$NRS_CACHE/cargo PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export NRS_IN_ROOT=1 LC_ALL=C.UTF-8
if [ "$root" = / ]; then
	exec "$@"
fi
[ "$(id -u)" = 0 ] || die "entering $root needs root privileges"
export HOME=/root

# Runs as process 1 of the namespace: $1 root, $2 rw, $3 checkout, $4 cache, $5 git directory,
# $6 start directory, then CMD.
enter='
set -eu
root=$1 rw=$2 top=$3 cache=$4 git=$5 cwd=$6
shift 6
mount --bind "$root" "$root"
for f in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
	[ -e "$f" ] || continue
	[ -e "$root$f" ] || { mkdir -p "$root${f%/*}" && : >"$root$f"; }
	# The installation of a package may replace the file, which fails for a mount point.
	if [ -n "$rw" ]; then
		cp --remove-destination "$f" "$root$f"
	else
		mount --bind "$f" "$root$f"
	fi
done
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=700 home "$root/root"
mount --bind /tmp "$root/tmp"
# Mount points are made while the root is writable.
for d in "$top" "$cache" "$git" "$cwd"; do [ -d "$root$d" ] || mkdir -p "$root$d"; done
[ -n "$rw" ] || mount -o remount,bind,ro "$root"
for d in "$top" "$cache" "$git" "$cwd"; do
	case $d/ in /tmp/* | //) continue ;; esac
	mount --bind "$d" "$root$d"
done
status=0
trap "exit 130" INT
trap "exit 143" TERM
env --default-signal=INT,QUIT,TERM chroot "$root" \
	sh -c "cd \"\$1\" && shift && exec \"\$@\"" sh "$cwd" "$@" || status=$?
exit $status
'
cwd=$(pwd -P)
[ -d "$root/usr" ] || die "$root is not a system root"
# A directory of the host's own system does not exist inside, so CMD starts in /.
case $cwd/ in "$NRS_TOP"/* | "$NRS_CACHE"/* | /tmp/*) ;; *) cwd=/ ;; esac

# That of a worktree is in another checkout.
git=$(git -C "$NRS_TOP" rev-parse --path-format=absolute --git-common-dir 2>/dev/null) ||
	git=$NRS_TOP

setpriv --pdeathsig KILL -- unshare --mount --pid --fork --kill-child=KILL --propagation private \
	bash -c "$enter" nrs-root "$root" "$rw" "$NRS_TOP" "$NRS_CACHE" "$git" "$cwd" \
	"$@" <&0 &
child=$!
trap 'kill -KILL $child 2>/dev/null; exit 130' INT
trap 'kill -KILL $child 2>/dev/null; exit 143' TERM HUP
status=0
wait "$child" || status=$?
exit "$status"
