# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Helpers of the scripts in this directory. Sourced, never run.

NRS_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
NRS_SCRIPTS=$NRS_TOP/scripts
NRS_CACHE=${NRS_CACHE:-$HOME/.cache/nrs}
mkdir -p "$NRS_CACHE"
NRS_CACHE=$(cd "$NRS_CACHE" && pwd -P)
NRS_T0=${NRS_T0:-$(date +%s)}
export NRS_CACHE NRS_T0

# log TEXT...: Prints a progress line on stderr, with the seconds since the first script started.
log() {
	printf '[nrs +%ds] %s\n' "$(($(date +%s) - NRS_T0))" "$*" >&2
}

# die TEXT...: Prints the error and exits with status 1.
die() {
	log "error: $*"
	exit 1
}

# usage: Prints the calling script's header comment (from the line after SPDX to the first line that
# is not a comment).
usage() {
	sed -n '/^# SPDX/,/^[^#]/{/^# SPDX/d;/^#/!d;s/^# \{0,1\}//;p}' "$0"
}

# die_with_parent "$@": Runs this script again so that the kernel terminates it when its parent
# exits.
die_with_parent() {
	[ "${NRS_PDEATH:-}" = "$$" ] && return
	NRS_PDEATH=$$ exec setpriv --pdeathsig TERM -- "$0" "$@"
}

# lock AREA: Acquires AREA's lock file, descriptor $lock_fd, until this process exits; logs when it
# has to wait.
lock() {
	local file=$NRS_CACHE/$1.lock
	mkdir -p "$(dirname "$file")"
	exec {lock_fd}>"$file"
	flock -n "$lock_fd" && return
	log "waiting for the lock $file, held by another run"
	flock "$lock_fd"
}

# stamp_is FILE KEY: Returns true if FILE contains exactly KEY.
stamp_is() {
	[ -f "$1" ] && [ "$(cat "$1")" = "$2" ]
}

# stamp FILE KEY: Writes KEY to FILE atomically.
stamp() {
	printf '%s\n' "$2" >"$1.tmp"
	mv -f "$1.tmp" "$1"
}

# publish TMP FINAL: Replaces FINAL by the finished file or directory TMP.
publish() {
	if [ -d "$2" ] && [ ! -L "$2" ]; then
		rm -rf "$2.old"
		mv "$2" "$2.old"
	fi
	mv -T "$1" "$2"
	rm -rf "$2.old"
}

# hash_of: Prints the first 16 hex digits of the SHA-256 of standard input.
hash_of() {
	sha256sum | cut -c1-16
}

# progress LABEL LOGFILE: Copies standard input to LOGFILE; logs the progress every 10 s.
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

# run_logged LABEL LOGFILE CMD...: Runs CMD with its output in LOGFILE and progress lines; if CMD
# fails, prints the end of the log and exits.
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

# copy_tree DIR: Makes DIR a copy of the checkout, without the files that git ignores. Files with
# unchanged content keep their time.
copy_tree() {
	rsync -rlp --checksum --delete --exclude=/.git --filter=':- .gitignore' "$NRS_TOP/" "$1/"
}

# shared_tree: Makes $tree a copy of the checkout, in which cargo builds for all checkouts. Holds
# the lock of the tree until this process exits or calls flock -u "$tree_lock". The time of a file
# is that of its last change of content, so cargo rebuilds only what differs from the last build
# there. Removes cargo's target directory when it exceeds 12 GiB. Runs in the root only.
shared_tree() {
	lock tree
	tree=$NRS_CACHE/tree tree_lock=$lock_fd
	mkdir -p "$tree" "$CARGO_TARGET_DIR"
	copy_tree "$tree"
	if [ "$(du -sm "$CARGO_TARGET_DIR" | cut -f1)" -gt 12288 ]; then
		log "cargo: $CARGO_TARGET_DIR exceeds 12 GiB, removed"
		rm -rf "$CARGO_TARGET_DIR"
	fi
}

# release_build: Enters the shared tree, and sets the common variables of all release builds, so
# that they share compiled crates: RUSTFLAGS, equal to those of debian/rules; release, the arguments
# of cargo; and programs, the directory of the programs. The programs are statically linked, so that
# they also run in rescue systems and in the test machines, and contain no path of this machine.
# Because a target is named, the flags do not apply to build scripts and macros, which cannot be
# statically linked. Copy a program while the lock of the tree is held.
release_build() {
	local target
	shared_tree
	target=$(rustc -vV | sed -n 's/^host: //p')
	RUSTFLAGS=$(make -s -f "$tree/debian/rules" -C "$tree" print-rustflags)
	export RUSTFLAGS
	# shellcheck disable=SC2034
	release=(
		--quiet --release --locked --manifest-path "$tree/rust/host/Cargo.toml" --target "$target"
	)
	# shellcheck disable=SC2034
	programs=$CARGO_TARGET_DIR/$target/release
}

# debian_mirror: Prints the address of the Debian archive in this host's apt configuration.
debian_mirror() {
	local codename uri
	if [ -n "${NRS_DEBIAN_MIRROR:-}" ]; then
		echo "$NRS_DEBIAN_MIRROR"
		return
	fi
	command -v apt-get >/dev/null ||
		die "no apt-get on this host: set NRS_DEBIAN_MIRROR to a Debian archive"
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	uri=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
		awk -v c="$codename" '$1 == c && !u { u = $2 } END { print u }')
	[ -n "$uri" ] && [ "$(. /etc/os-release && echo "$ID")" = debian ] ||
		die "apt here names no Debian archive for '$codename'; set NRS_DEBIAN_MIRROR"
	echo "${uri%/}"
}

# trixie_sources: Prints the sources.list lines of the toolchain and the kernels.
trixie_sources() {
	local mirror suite key=/usr/share/keyrings/debian-archive-keyring.gpg
	mirror=$(debian_mirror)
	for suite in trixie trixie-updates trixie-backports; do
		echo "deb [signed-by=$key] $mirror $suite main"
	done
}

# debian_root LABEL LOG DIR PACKAGES [OPTION...]: Makes DIR a minimal Debian 13 with PACKAGES,
# joined by commas, in which no service is started. Passes each OPTION to mmdebstrap.
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
		--aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io "$@" trixie \
		"$dir.tmp" "$dir.list"
	rm -f "$dir.list"
	printf '#!/bin/sh\nexit 101\n' >"$dir.tmp/usr/sbin/policy-rc.d"
	chmod +x "$dir.tmp/usr/sbin/policy-rc.d"
	publish "$dir.tmp" "$dir"
}

# archive_sources: Writes the list of sources that archive_apt reads, outside the root.
archive_sources() {
	mkdir -p "$NRS_CACHE/apt"
	trixie_sources >"$NRS_CACHE/apt/sources.list"
}

# archive_apt: Creates a separate apt state for Debian's archive, and sets $apt to the options. One
# process at a time holds the state, until it exits.
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

# supported_series: Prints the supported kernel series, newest first.
supported_series() {
	sed -n 's/^supported="\(.*\)"$/\1/p' "$NRS_TOP/debian/dkms/module.sh"
}

# is_trixie: Returns true if this host is Debian 13.
is_trixie() {
	[ "$(. /etc/os-release && echo "${ID:-}-${VERSION_ID:-}")" = debian-13 ]
}
