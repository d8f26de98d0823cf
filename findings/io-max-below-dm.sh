#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: a limit of requests per second (io.max) counts other requests above and below dm-linear
# guess: `riops=32` means 32 reads per second of a process, wherever in the stack it stands; and
#        io.stat and diskstats count the same reads for both devices.
# so:    On the disk, a read is split at the disk's max_sectors before it is counted; on the volume
#        it is counted whole. With 64 KiB per request, eight reads of 1 MiB take 4.2 s under the
#        limit of the disk, and 0.2 s under the same limit of the volume. io.stat and
#        /sys/block/*/stat differ sixteenfold in the same way, although both queues show the same
#        max_sectors_kb.
# read:  block/blk-mq.c (blk_mq_submit_bio splits first), block/blk-core.c
#        (submit_bio_noacct charges before dm splits), drivers/md/dm.c
. "${0%/*}/lib.sh"
guest --icount

null_blk_create nb0 size=64 max_sectors=128 irqmode=1
dm_create volume "0 $((64 << 11)) linear /dev/nb0 0"
is "max_sectors_kb of disk and volume" \
	"$(cat /sys/block/{nb0,dm-0}/queue/max_sectors_kb | xargs)" "64 64"
mkdir /sys/fs/cgroup/a
group a reads /dev/dm-0 16
is "16 reads of 1 MiB in io.stat of the volume" "$(counted a rios dm-0)" 16
is "the same in io.stat of the disk" "$(counted a rios nb0)" 256
for name in nb0 dm-0; do
	echo "$(number $name) riops=32" >/sys/fs/cgroup/a/io.max
	took group a reads /dev/$name 8
	if [ $name = nb0 ]; then
		holds "ms for 8 reads of 1 MiB, riops=32 of the disk" $took 3800 4600
	else
		holds "ms for 8 reads of 1 MiB, riops=32 of the volume" $took 100 400
	fi
	echo "$(number $name) riops=max" >/sys/fs/cgroup/a/io.max
done
finish
