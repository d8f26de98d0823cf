#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: io.max on the members of a RAID 5 limits a group's reads, and none of its writes
# guess: A bio keeps its cgroup on the way down, as through dm-linear or RAID 1, so a limit on each
#        member binds reads and writes.
# so:    Aligned reads keep it. Writes go through the stripe cache, whose bios belong to the root
#        cgroup: io.stat of the group shows the whole write on the array, and no write on a member,
#        and 4 MiB under `wbps=1048576` of each member take less than half a second.
# read:  drivers/md/raid5.c (ops_run_io sets up the bios of a stripe without a cgroup;
#        raid5_read_one_chunk clones the reader's bio)
. "${0%/*}/lib.sh"
guest --icount --more

modprobe -a dm-raid raid456
members=(nb0 nb1 nb2)
for name in "${members[@]}"; do null_blk_create $name size=64 irqmode=1 memory_backed=1; done
dm_create array "0 $((96 << 11)) raid raid5_ls 2 128 nosync 3 - /dev/nb0 - /dev/nb1 - /dev/nb2"
mkdir /sys/fs/cgroup/a
for name in "${members[@]}"; do
	echo "$(number $name) rbps=1048576 wbps=1048576" >/sys/fs/cgroup/a/io.max
done
# writes: Writes 4 MiB to the array.
writes() {
	dd if=/dev/zero of=/dev/dm-0 bs=64k count=64 oflag=direct 2>/dev/null
}
took group a writes
holds "ms for 4 MiB written, wbps=1 MiB/s of each of three members" "$took" 0 1000
is "bytes written, io.stat of the group on the array" "$(counted a wbytes dm-0)" 4194304
is "the same on the members" "$(counted a wbytes "${members[@]}")" 0
holds "bytes written, io.stat of the root on the members" \
	"$(counted . wbytes "${members[@]}")" 6291456 12582912
took group a reads /dev/dm-0 96 64k
holds "ms for 6 MiB read, rbps=1 MiB/s of each of three members" "$took" 1700 2600
finish
