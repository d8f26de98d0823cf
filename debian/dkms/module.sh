#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: module.sh [--check] RELEASE
#
# Builds nrs.ko for the kernel RELEASE in the current directory, a copy of the module's source, as
# DKMS runs it. Debian's header packages lack the kernel's Rust metadata, which is therefore rebuilt
# first, from linux-source of exactly that kernel's version, and kept in
# /var/lib/nrs/kernels/RELEASE.
#
#   --check   only check: if a package is missing, print one line that names it, and fail
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
state=/var/lib/nrs/kernels
# Supported kernel series, newest first: the kernel's Rust interfaces change with each series.
supported="7.3 7.2"

die() {
	echo "nrs: error: $*" >&2
	exit 1
}

check=
case ${1:---help} in
--help | -h) sed -n '/^# usage/,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p}' "$0" && exit ;;
--check) check=1 && shift ;;
esac
[ $# = 1 ] || die "RELEASE is missing, see --help"
release=$1
dir=$state/$release
headers=$(readlink -f "/lib/modules/$release/build" || true)
unset ARCH KBUILD_OUTPUT KERNELRELEASE LLVM MAKEFLAGS

# version_of PACKAGE: Prints the version of an installed package; nothing if it is not installed.
version_of() {
	dpkg-query -W -f '${db:Status-Status} ${Version}\n' "$1" 2>/dev/null |
		awk '$1 !~ /^(not-installed|config-files|half-installed)$/ { print $2 }'
}

[ -n "$headers" ] && [ -f "$headers/.config" ] ||
	die "no headers of kernel $release: apt install linux-headers-$release"
series=$(echo "$release" | sed -E 's/^([0-9]+\.[0-9]+).*/\1/')
case " $supported " in *" $series "*) ;; *)
	die "no module for kernel $release: unsupported series" \
		"(supported: $(echo "$supported" | sed 's/ / and /'), of trixie-backports)" ;;
esac
grep -qx CONFIG_RUST=y "$headers/.config" ||
	die "no module for kernel $release: it has no CONFIG_RUST=y"
version=$(version_of "linux-headers-$release")
[ -n "$version" ] ||
	die "the headers of $release are not from the package linux-headers-$release:" \
		"only Debian's kernels are supported"
[ -d /usr/lib/rustlib/src ] || ls -d /usr/src/rustc-*/library >/dev/null 2>&1 ||
	die "the sources of Rust's library are missing: apt install rust-src"

# Key of finished metadata: another kernel version or another compiler causes a rebuild.
key=$(printf '%s\n' "$version" "$(rustc --version)" "$(bindgen --version)" \
	"$(gcc --version | head -n 1)" "$(cat "$here/rust-metadata.sh")" | sha256sum | cut -c1-16)
tarball=/usr/src/linux-source-$series.tar.xz

# Returns true if the metadata is complete (made), or if its source was unpacked (unpacked).
made() {
	[ "$(cat "$dir/stamp" 2>/dev/null)" = "$key" ]
}
unpacked() {
	[ "$(cat "$dir/version" 2>/dev/null)" = "$version" ]
}
if ! made && ! unpacked; then
	have=$(version_of "linux-source-$series")
	why="no module for kernel $release: its source"
	install="apt install linux-source-$series=$version"
	[ -n "$have" ] && [ -f "$tarball" ] || die "$why is missing: $install"
	[ "$have" = "$version" ] || die "$why has version $have, not $version: $install"
fi
[ -z "$check" ] || exit 0

mkdir -p "$state"
exec 9>"$state/lock"
flock 9

# Removes the metadata of removed kernels.
for other in "$state"/*/; do
	[ -e "/lib/modules/$(basename "$other")/build" ] || rm -rf "$other"
done

if ! made; then
	mkdir -p "$dir"
	if ! unpacked; then
		rm -rf "$dir/source" "$dir/version"
		mkdir "$dir/source"
		# A seventh of the source is enough: build system, headers, and the sources of the metadata.
		top=linux-source-$series
		set -- --exclude="$top/Documentation/*.*" --exclude="$top/tools/testing" \
			--exclude="$top/tools/perf" --exclude="$top/arch/[!x]*/*.[chS]" \
			--exclude="$top/arch/*.dts*" --exclude="$top/drivers/gpu/*.h"
		for part in block crypto drivers fs init io_uring ipc lib mm net samples sound virt; do
			set -- "$@" --exclude="$top/$part/*.[cS]"
		done
		echo "nrs: unpacking $tarball"
		tar -C "$dir/source" --strip-components=1 -xJf "$tarball" --no-same-owner --anchored "$@"
		echo "$version" >"$dir/version"
	fi
	echo "nrs: Rust metadata of $release"
	rm -rf "$dir/stamp" "$dir/build"
	mkdir "$dir/build"
	"$here/rust-metadata.sh" "$release" "$headers" "$dir/source" "$dir/build"
	find "$dir/build/rust" -name '*.o' -delete
	echo "$key" >"$dir/stamp"
fi
echo "nrs: module for $release"
make -C "$dir/build" M="$PWD" ARCH=x86_64 "-j$(nproc)" modules
# For modules that call nrs.
cp Module.symvers "$dir/"
