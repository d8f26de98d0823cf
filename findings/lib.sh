# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Helpers of the findings: . "${0%/*}/lib.sh". A finding runs pinned public packages without nrs,
# prints what it sees, and fails if that is no longer so. Its header says what one would guess,
# what is so, and where to read it.
#
# Packages land in a temporary folder, or in $NRS_CACHE if that is set (`make findings` sets it).
set -euo pipefail
finding=$(basename "$0" .sh)

# holds TEXT VALUE LEAST MOST: Prints a figure, and remembers if it is out of bounds.
changed=0
holds() {
	local verdict=holds
	[ "$2" -ge "$3" ] 2>/dev/null && [ "$2" -le "$4" ] || verdict=changed changed=1
	printf '%s: %s: %s (%s to %s)\n' "$verdict" "$1" "${2:-nothing}" "$3" "$4"
}

# is TEXT VALUE EXPECTED: As holds, for a text.
is() {
	local verdict=holds
	[ "$2" = "$3" ] || verdict=changed changed=1
	printf '%s: %s: %s\n' "$verdict" "$1" "$2"
	[ $verdict = holds ] || printf '  was: %s\n' "$3"
}

# version NAME VALUE PINNED: Fails if the package is not the version that the finding is about.
version() {
	echo "version: $1 $2"
	[[ $2 = $3 ]] || { echo "changed: $1 $3 was expected" && exit 1; }
}

# temporary: Sets $dir to a folder that goes with the script, and $NRS_CACHE if it is not set.
temporary() {
	dir=$(mktemp -d)
	trap 'rm -rf --one-file-system "$dir"' EXIT
	export NRS_CACHE=${NRS_CACHE:-$dir/cache}
	mkdir -p "$NRS_CACHE/log"
}

# guest [OPTION...]: Runs this script again in a virtual machine of scripts/vm.sh, with Debian's
# kernel and without nrs, and returns there, with the helpers of tests/vm/lib.sh.
guest() {
	local top
	if [ -d /guest ]; then
		. /tests/lib.sh
		version Linux "$(uname -r)" '7.3.*'
		return
	fi
	top=$(cd "${0%/*}/.." && pwd)
	temporary
	"$top/scripts/vm.sh" --kernel stock --module none --name "finding-$finding" --timeout 600 \
		--file "${0%/*}/lib.sh:/guest/lib.sh" "$@" -- "$0"
	exit
}

# system PACKAGE,...: Makes $root a minimal Debian 13 with the packages, in the temporary folder.
system() {
	local packages=$1
	temporary
	root=$dir/root
	# shellcheck source=scripts/lib.sh
	. "${0%/*}/../scripts/lib.sh"
	debian_root findings "$NRS_CACHE/log/finding-$finding.log" "$root" "$packages"
}

# number DISK: Prints MAJOR:MINOR.
number() {
	cat "/sys/block/$1/dev"
}

# group NAME CMD...: Runs a command in a cgroup.
group() {
	mkdir -p "/sys/fs/cgroup/$1"
	(
		echo "$BASHPID" >"/sys/fs/cgroup/$1/cgroup.procs"
		shift
		"$@"
	)
}

# counted GROUP FIELD DISK...: Prints the sum of a field of the group's io.stat over the disks.
counted() {
	local group=$1 field=$2 sum=0 name value
	shift 2
	for name; do
		value=$(sed -n "s/^$(number "$name") .*$field=\([0-9]*\).*/\1/p" \
			"/sys/fs/cgroup/$group/io.stat")
		sum=$((sum + ${value:-0}))
	done
	echo $sum
}

# took CMD...: Sets $took to the milliseconds that a command needs.
took() {
	local start=${EPOCHREALTIME/./}
	"$@"
	took=$(((${EPOCHREALTIME/./} - start) / 1000))
}

# reads FILE COUNT [SIZE]: Reads COUNT blocks of SIZE (1 MiB), one at a time, past the page cache.
reads() {
	dd if="$1" of=/dev/null bs="${3:-1M}" count="$2" iflag=direct 2>/dev/null
}

# finish: Ends the finding with its verdict.
finish() {
	exit $changed
}
