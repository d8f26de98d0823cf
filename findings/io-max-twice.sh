#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: the same limit (io.max) on a volume and on its disk halves the rate of a serial reader
# guess: A reader under 4 MiB/s on the volume and 4 MiB/s on the disk below gets 4 MiB/s.
# so:    With one request at a time it gets 2 MiB/s: each layer delays the request after the other
#        has let it go, and an idle layer saves no credit. With 32 at a time it gets the 4 MiB/s.
# read:  block/blk-throttle.c (tg_dispatch_time, throtl_start_new_slice)
. "${0%/*}/lib.sh"
guest --icount

null_blk_create nb0 size=64 irqmode=1
dm_create volume "0 $((64 << 11)) linear /dev/nb0 0"
mkdir /sys/fs/cgroup/a
# limit DISK RATE: Sets a limit of bytes per second.
limit() {
	echo "$(number "$1") rbps=$2" >/sys/fs/cgroup/a/io.max
}
limit nb0 $((4 << 20))
took group a reads /dev/dm-0 16
holds "ms for 16 MiB, limit of the disk" "$took" 3800 4300
limit dm-0 $((4 << 20))
took group a reads /dev/dm-0 16
holds "ms for 16 MiB, limit of both, one read at a time" "$took" 7600 8600
took group a fio --name=x --filename=/dev/dm-0 --rw=read --bs=64k --size=16m --direct=1 \
	--ioengine=libaio --iodepth=32 --minimal >/dev/null
holds "ms for 16 MiB, limit of both, 32 reads at a time" "$took" 3800 5200
finish
