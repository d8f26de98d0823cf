#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/debug-kernel.sh [--print]
#
# Builds the debug kernel: the source of the stock kernel (scripts/kernel.sh), clang,
# .config.fragment, and no other option that can be disabled. It is kept per release, configuration
# and compiler in $NRS_CACHE/debug; a build takes about 8 minutes on 2 cores. An interrupted build
# resumes. Out-of-tree modules: make -C $NRS_DBG_KBUILD M=... LLVM=1
#
#   --print   print shell variables (fails if the kernel is not built yet): NRS_DBG_REL release,
#             NRS_DBG_KBUILD build tree, NRS_DBG_VMLINUX image (ELF, for direct boot),
#             NRS_DBG_MODULES modules
set -euo pipefail
. "$(dirname "$0")/lib.sh"

fragment=$NRS_TOP/.config.fragment
case ${1:-} in
--help | -h) usage && exit ;;
--print | '') ;;
*) die "unknown argument '$1', see --help" ;;
esac

# Directory of the kernel of the present source, fragment and compiler. Comments in the fragment do
# not count.
vars=$("$NRS_SCRIPTS/kernel.sh" --print 2>/dev/null) || {
	[ "${1:-}" != --print ] || die "no kernel yet: run scripts/kernel.sh"
	"$NRS_SCRIPTS/kernel.sh"
	vars=$("$NRS_SCRIPTS/kernel.sh" --print)
}
eval "$vars"
toolchain=$(cat "$NRS_CACHE/kernel/$NRS_KREL/build.stamp")
hash=$({ grep -E '^(CONFIG|# CONFIG)' "$fragment" && echo "$toolchain"; } | hash_of)
version=${NRS_KREL%%[!0-9.]*}
release=$version-nrs-debug
dir=$NRS_CACHE/debug/$version-$hash
build=$dir/build

if [ "${1:-}" = --print ]; then
	[ -f "$dir/stamp" ] ||
		die "no debug kernel for this configuration yet: run scripts/debug-kernel.sh"
	printf 'NRS_DBG_REL=%q\nNRS_DBG_KBUILD=%q\nNRS_DBG_VMLINUX=%q\nNRS_DBG_MODULES=%q\n' \
		"$release" "$build" "$dir/vmlinux" "$dir/image/lib/modules/$release"
	exit
fi
[ ! -f "$dir/stamp" ] || exit 0
if [ -z "${NRS_IN_ROOT:-}" ]; then
	exec nice -n 10 "$NRS_SCRIPTS/in-root.sh" "$0"
fi
lock debug-kernel
[ ! -f "$dir/stamp" ] || exit 0

mkdir -p "$build" "$dir/log"
export KBUILD_BUILD_TIMESTAMP='2026-01-01' KBUILD_BUILD_USER=nrs KBUILD_BUILD_HOST=nrs
make=(make -C "$NRS_KSRC" O="$build" ARCH=x86_64 LLVM=1 KERNELRELEASE="$release" "-j$(nproc)")

# missing: Prints the options of the fragment that the final configuration does not have as
# requested.
missing() {
	grep -E '^(CONFIG|# CONFIG)' "$fragment" | while IFS= read -r line; do
		grep -qxF "$line" "$build/.config" && continue
		# "is not set" is also true if the option does not exist.
		case $line in
		'# CONFIG'*) grep -q "^$(cut -d' ' -f2 <<<"$line")=" "$build/.config" || continue ;;
		esac
		echo "  $line"
	done
}

if [ ! -f "$dir/configured" ]; then
	run_logged "debug kernel: configure" "$dir/log/config.log" "${make[@]}" \
		KCONFIG_ALLCONFIG="$fragment" allnoconfig
	lost=$(missing)
	[ -z "$lost" ] || die "these options of .config.fragment had no effect:"$'\n'"$lost"
	stamp "$dir/configured" "$hash"
fi
run_logged "debug kernel: compile (about 910 objects)" "$dir/log/build.log" "${make[@]}" \
	vmlinux modules
[ -f "$build/Module.symvers" ] || die "the build left no Module.symvers"
run_logged "debug kernel: modules" "$dir/log/modules.log" \
	"${make[@]}" modules_install INSTALL_MOD_PATH="$dir/image" INSTALL_MOD_STRIP=1 DEPMOD=true
depmod -b "$dir/image" "$release"
llvm-strip --strip-all -o "$dir/vmlinux.tmp" "$build/vmlinux"
mv "$dir/vmlinux.tmp" "$dir/vmlinux"
stamp "$dir/stamp" "$hash"
log "debug kernel: $release ready in $dir"
