# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Helpers shared by the scripts beside this file. Sourced, never run.

NRS_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
NRS_SCRIPTS=$NRS_TOP/scripts
NRS_CACHE=${NRS_CACHE:-$HOME/.cache/nrs}
mkdir -p "$NRS_CACHE"
NRS_CACHE=$(cd "$NRS_CACHE" && pwd -P)
NRS_T0=${NRS_T0:-$(date +%s)}
export NRS_CACHE NRS_T0

# log TEXT...: one progress line on stderr, with the seconds since the first script started.
log() {
	printf '[nrs +%ds] %s\n' "$(($(date +%s) - NRS_T0))" "$*" >&2
}

# die TEXT...: say why and stop.
die() {
	log "error: $*"
	exit 1
}

# usage: print the calling script's own header comment (the lines after the SPDX line up to the first non-comment).
usage() {
	sed -n '/^# SPDX/,/^[^#]/{/^# SPDX/d;/^#/!d;s/^# \{0,1\}//;p}' "$0"
}

# die_with_parent "$@": run this script again so that the kernel ends it when its parent ends.
die_with_parent() {
	[ "${NRS_PDEATH:-}" = "$$" ] && return
	NRS_PDEATH=$$ exec setpriv --pdeathsig TERM -- "$0" "$@"
}

# lock AREA: hold AREA's lock file, descriptor $lock_fd, until this process ends; says so when it has to wait.
lock() {
	local file=$NRS_CACHE/$1.lock
	mkdir -p "$(dirname "$file")"
	exec {lock_fd}>"$file"
	flock -n "$lock_fd" && return
	log "waiting for another run that holds $file"
	flock "$lock_fd"
}

# stamp_is FILE KEY: true if FILE holds exactly KEY.
stamp_is() {
	[ -f "$1" ] && [ "$(cat "$1")" = "$2" ]
}

# stamp FILE KEY: write KEY so that FILE is never seen half written.
stamp() {
	printf '%s\n' "$2" >"$1.tmp"
	mv -f "$1.tmp" "$1"
}

# publish TMP FINAL: put the finished file or directory TMP in the place of FINAL.
publish() {
	if [ -d "$2" ] && [ ! -L "$2" ]; then
		rm -rf "$2.old"
		mv "$2" "$2.old"
	fi
	mv -T "$1" "$2"
	rm -rf "$2.old"
}

# hash_of: the first 16 hex digits of the SHA-256 of standard input.
hash_of() {
	sha256sum | cut -c1-16
}

# progress LABEL LOGFILE: copy standard input to LOGFILE; every 10 s say how far it is.
progress() {
	local label=$1 file=$2 line='' last=$SECONDS lines=0 objs=0 rc
	: >"$file"
	while :; do
		rc=0
		IFS= read -r -t 10 line || rc=$?
		if [ "$rc" = 0 ]; then
			printf '%s\n' "$line" >>"$file"
			lines=$((lines + 1))
			case $line in
			*"  CC "* | *"  RUSTC "* | *"  AS "* | *"  CC ["* | *"  HOSTCC "*) objs=$((objs + 1)) ;;
			esac
		elif [ "$rc" -le 128 ]; then
			break
		fi
		if [ $((SECONDS - last)) -ge 10 ]; then
			last=$SECONDS
			if [ "$objs" -gt 0 ]; then
				log "$label: $objs objects compiled"
			else
				log "$label: $lines lines of output, last: ${line:0:90}"
			fi
		fi
	done
	[ -z "$line" ] || printf '%s\n' "$line" >>"$file"
}

# run_logged LABEL LOGFILE CMD...: run CMD with its output in LOGFILE and progress lines; stop with the log's tail if it fails.
run_logged() {
	local label=$1 file=$2
	shift 2
	mkdir -p "$(dirname "$file")"
	log "$label: started (log $file)"
	if ! "$@" 2>&1 </dev/null | progress "$label" "$file"; then
		tail -n 40 "$file" >&2
		die "$label failed, see $file"
	fi
	log "$label: done"
}

# copy_tree DIR: makes DIR a copy of the checkout, without what was built. A file whose content is the same keeps its time.
copy_tree() {
	rsync -rlp --checksum --delete --exclude=/.git --exclude=/build --exclude=/demo.svg --exclude=/cluster.svg --exclude=target "$NRS_TOP/" "$1/"
}

# shared_tree: makes $tree a copy of the checkout, where all checkouts build with cargo: one at a time, until its process
# ends or does flock -u "$tree_lock". A file has the time there when its content last changed, so cargo builds again only
# what differs from what was built there last. What cargo keeps is made anew when it has grown beyond 12 GiB. In the root
# only.
shared_tree() {
	lock tree
	tree=$NRS_CACHE/tree tree_lock=$lock_fd
	mkdir -p "$tree" "$CARGO_TARGET_DIR"
	copy_tree "$tree"
	if [ "$(du -sm "$CARGO_TARGET_DIR" | cut -f1)" -gt 12288 ]; then
		log "cargo: $CARGO_TARGET_DIR has grown beyond 12 GiB, made anew"
		rm -rf "$CARGO_TARGET_DIR"
	fi
}

# release_build: enters the shared tree, and sets what all release builds have in common, so that they share what is
# compiled: RUSTFLAGS, which are those of debian/rules, too; release, the arguments of cargo; and programs, where these are.
# Linked statically, they run in rescue systems and in the test machines too; they name no path of this machine. With a
# target named, build scripts and macros are not linked so, which they could not be. Who wants to keep a program copies it
# while the tree is held.
release_build() {
	local target
	shared_tree
	target=$(rustc -vV | sed -n 's/^host: //p')
	RUSTFLAGS=$(make -s -f "$tree/debian/rules" -C "$tree" print-rustflags)
	export RUSTFLAGS
	# shellcheck disable=SC2034
	release=(--quiet --release --locked --manifest-path "$tree/rust/host/Cargo.toml" --target "$target")
	# shellcheck disable=SC2034
	programs=$CARGO_TARGET_DIR/$target/release
}

# debian_mirror: the archive address, as this host's own apt configuration names it.
debian_mirror() {
	local codename uri
	if [ -n "${NRS_DEBIAN_MIRROR:-}" ]; then
		echo "$NRS_DEBIAN_MIRROR"
		return
	fi
	command -v apt-get >/dev/null || die "no apt on this host; set NRS_DEBIAN_MIRROR to a Debian archive"
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	uri=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
		awk -v c="$codename" '$1 == c && !u { u = $2 } END { print u }')
	[ -n "$uri" ] && [ "$(. /etc/os-release && echo "$ID")" = debian ] ||
		die "apt here names no Debian archive for '$codename'; set NRS_DEBIAN_MIRROR"
	echo "${uri%/}"
}

# trixie_sources: sources.list lines for everything the toolchain and the kernels come from.
trixie_sources() {
	local mirror suite key=/usr/share/keyrings/debian-archive-keyring.gpg
	mirror=$(debian_mirror)
	for suite in trixie trixie-updates trixie-backports; do
		echo "deb [signed-by=$key] $mirror $suite main"
	done
}

# debian_root LABEL LOG DIR PACKAGES [OPTION...]: makes DIR a minimal Debian 13 with PACKAGES, joined by commas, in which no service
# is started. OPTIONs are for mmdebstrap.
debian_root() {
	local label=$1 log=$2 dir=$3 packages=$4
	shift 4
	command -v mmdebstrap >/dev/null ||
		run_logged "$label: install mmdebstrap" "$NRS_CACHE/log/mmdebstrap-install.log" \
			sh -c 'apt-get update && apt-get install -y --no-install-recommends mmdebstrap'
	rm -rf --one-file-system "$dir.tmp"
	trixie_sources >"$dir.list"
	run_logged "$label: base system" "$log" unshare --mount --pid --fork --kill-child \
		mmdebstrap --mode=root --variant=apt --architectures=amd64 --include="$packages" \
		--aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io "$@" trixie "$dir.tmp" "$dir.list"
	rm -f "$dir.list"
	printf '#!/bin/sh\nexit 101\n' >"$dir.tmp/usr/sbin/policy-rc.d"
	chmod +x "$dir.tmp/usr/sbin/policy-rc.d"
	publish "$dir.tmp" "$dir"
}

# archive_sources: write the list of sources that archive_apt reads, outside of the root.
archive_sources() {
	mkdir -p "$NRS_CACHE/apt"
	trixie_sources >"$NRS_CACHE/apt/sources.list"
}

# archive_apt: make an apt state of its own for Debian's archive, with the options in $apt. One process
# at a time has it, until it ends.
archive_apt() {
	local dir=$NRS_CACHE/apt
	lock apt
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
	: >"$dir/status"
	# shellcheck disable=SC2034
	apt=(-q -o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=-
		-o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache"
		-o "Dir::State::status=$dir/status" -o APT::Sandbox::User=root)
}

# supported_series: prints the kernel series that the module is written for, newest first.
supported_series() {
	sed -n 's/^supported="\(.*\)"$/\1/p' "$NRS_TOP/debian/dkms/module.sh"
}

# is_trixie: true if this host itself is Debian 13.
is_trixie() {
	[ "$(. /etc/os-release && echo "${ID:-}-${VERSION_ID:-}")" = debian-13 ]
}
