#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: the kernel flushes the page cache of a block device in bios of 4 KiB
# guess: Folios are large in 2026, and writeback builds bios of up to max_sectors: 16 MiB written
#        with `dd bs=1M` arrive as some sixteen bios.
# so:    They arrive as 4,096 bios of 4 KiB. The plug list of the flusher merges them again, so it
#        is seen only where merging is off (nomerges=2), above device-mapper, or by a scheduler that
#        delays bios one by one.
# read:  block/fops.c (blkdev_writepages), fs/buffer.c (__block_write_full_folio)
. "${0%/*}/lib.sh"
guest --icount

null_blk_create nb0 size=64 irqmode=1
# written NOMERGES: Prints the requests and merges of 16 MiB through the page cache.
written() {
	echo "$1" >/sys/block/nb0/queue/nomerges
	local before
	before=$(awk '{ print $5, $6 }' /sys/block/nb0/stat)
	dd if=/dev/zero of=/dev/nb0 bs=1M count=16 2>/dev/null
	sync
	echo "$before $(awk '{ print $5, $6 }' /sys/block/nb0/stat)" |
		awk '{ print $3 - $1, $4 - $2 }'
}
read -r requests merged < <(written 0)
holds "requests, merges allowed" "$requests" 100 400
is "requests and merges together" $((requests + merged)) 4096
is "requests without merging" "$(written 2 | cut -d' ' -f1)" 4096
finish
