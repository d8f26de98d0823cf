#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: rust-metadata.sh RELEASE HEADERS SOURCE BUILD
#
# Rebuilds the Rust metadata that Debian's header packages lack, for the kernel RELEASE: from
# HEADERS, the directory of its header package, and SOURCE, the unpacked source of the same version,
# into the empty directory BUILD. Then `make -C BUILD M=...` builds modules. Takes about 2 minutes
# on 2 cores. Used by scripts/kernel.sh and by the DKMS package.
set -eu
case ${1:---help} in
--help | -h) sed -n '/^# usage/,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p}' "$0" && exit ;;
esac
release=$1 headers=$2 source=$3 build=$4

die() {
	echo "rust-metadata: error: $*" >&2
	exit 1
}

# symbols FILE: Prints the options of a configuration, without the versions of the tools that wrote
# it.
symbols() {
	grep -E '^(CONFIG|# CONFIG)' "$1" |
		grep -vE 'CONFIG_(CC_VERSION_TEXT|PAHOLE_VERSION|BINDGEN_VERSION_TEXT)='
}

run() {
	make -C "$source" O="$build" ARCH=x86_64 KERNELRELEASE="$release" "-j$(nproc)" "$@" </dev/null
}

cp "$headers/.config" "$build/.config"
run olddefconfig
# A symbol that this toolchain cannot provide would change the module's ABI; the compiler's version
# text may differ.
symbols "$headers/.config" >"$build/wanted.config"
symbols "$build/.config" >"$build/made.config"
changed=$(diff "$build/wanted.config" "$build/made.config" | grep '^[<>]' || true)
rm "$build/wanted.config" "$build/made.config"
[ -z "$changed" ] || die "the toolchain does not reproduce the configuration of $release: $changed"
run modules_prepare
[ -f "$build/rust/libkernel.rmeta" ] || die "modules_prepare made no rust/libkernel.rmeta"
cp "$headers/Module.symvers" "$build/Module.symvers"
