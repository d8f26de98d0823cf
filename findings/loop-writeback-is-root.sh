#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: writeback of a loop device is its user's if it lies on a disk, and root's on a file
# guess: The driver carries the cgroup of each request to its worker, for memory and for I/O, so
#        `io.stat` and `io.max` of the user apply below it, on a file and on a disk.
# so:    On a disk they do. On a file of ext4 the dirty pages are in the user's memory.stat, but the
#        root is charged for their writeback: the worker's change of the file's times attaches the
#        inode first, to the worker's own group. With `--direct-io=on` the user is charged.
# read:  drivers/block/loop.c (loop_process_work sets the active groups), fs/fs-writeback.c
#        (__inode_attach_wb: the group of the folio, without one that of the current task)
. "${0%/*}/lib.sh"
guest --icount

modprobe loop
null_blk_create nb0 size=64 irqmode=1 memory_backed=1
# written FILE DIRECT: Writes 256 KiB to a loop device on the file, in group a, past its own cache.
written() {
	losetup --direct-io="$2" /dev/loop0 "$1"
	before=$(counted a wbytes nb0)
	group a dd if=/dev/zero of=/dev/loop0 bs=4k count=64 oflag=direct 2>/dev/null
	dirty=$(awk '$1 == "file_dirty" { print $2 }' /sys/fs/cgroup/a/memory.stat)
	sync
	losetup -d /dev/loop0
	charged=$(($(counted a wbytes nb0) - before))
}
group a true
written /dev/nb0 off
is "bytes charged to the group, on a disk" "$charged" 262144
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nb0
mkdir -p /mnt/a
mount /dev/nb0 /mnt/a
dd if=/dev/zero of=/mnt/a/file bs=1M count=8 2>/dev/null
umount /mnt/a
mount /dev/nb0 /mnt/a
written /mnt/a/file off
is "bytes of dirty pages of the group, on a file" "$dirty" 262144
holds "bytes charged to the group, on a file" "$charged" 0 16384
written /mnt/a/file on
holds "bytes charged to the group, on a file, --direct-io=on" "$charged" 262144 278528
finish
