#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/lustre.sh LUSTRE_SRC [KERNEL_BUILD [NRS_SYMVERS]]
#
# Builds lustre/, the policies of nrs for an unmodified Lustre, against LUSTRE_SRC, a source tree
# configured for the kernel. KERNEL_BUILD is the kernel's build directory (default: that of the
# running kernel). NRS_SYMVERS is the Module.symvers of the nrs.ko for this kernel (default: that of
# nrs-dkms for the running kernel); without it, modpost only warns about the symbols of nrs.
# Result: build/lustre/nrs_lustre.ko. Runs on the host, with its tools.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in
--help | -h) usage && exit ;;
'') die "LUSTRE_SRC is missing, see --help" ;;
esac
source=$(cd "$1" && pwd -P) kernel=${2:-/lib/modules/$(uname -r)/build} nrs=${3:-}
kept=/var/lib/nrs/kernels/$(uname -r)/Module.symvers
[ $# != 1 ] || [ ! -f "$kept" ] || nrs=$kept
[ -f "$source/config.h" ] || die "$source is not configured: it has no config.h"
[ -f "$kernel/Makefile" ] || die "no kernel build directory: $kernel"

out=$NRS_TOP/build/lustre
mkdir -p "$out"
cp "$NRS_TOP"/lustre/* "$out/"
headers="${KCFLAGS:-} -include $source/config.h -I$NRS_TOP/include"
for dir in include lustre/include lustre/include/uapi lnet/include lnet/include/uapi \
	libcfs/include include/uapi; do
	[ ! -d "$source/$dir" ] || headers+=" -I$source/$dir"
done
symbols=$nrs
for file in "$source"/Module.symvers "$source"/lustre/ptlrpc/Module.symvers; do
	[ ! -f "$file" ] || symbols+=" $file"
done
[ -n "$nrs" ] || missing=KBUILD_MODPOST_WARN=1
make -C "$kernel" M="$out" KCFLAGS="$headers" KBUILD_EXTRA_SYMBOLS="$symbols" ${missing:-} modules
log "lustre: $out/nrs_lustre.ko"
