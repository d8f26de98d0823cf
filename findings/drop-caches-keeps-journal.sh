#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: after `sync` and `drop_caches`, a new directory of ext4 is still in memory
# guess: `sync; echo 3 >/proc/sys/vm/drop_caches` makes what was just created cold: all of it is
#        clean then, so listing it reads the disk.
# so:    Without a journal it is so. With one, sync writes the blocks to the journal only. They stay
#        dirty in their places until a checkpoint, or writeback of the block device, and cannot be
#        dropped: the listing reads nothing. Measure cold metadata after a new mount.
# read:  fs/jbd2/transaction.c (jbd2_journal_try_to_free_buffers), fs/jbd2/checkpoint.c
. "${0%/*}/lib.sh"
guest --icount

null_blk_create nb0 size=64 irqmode=1 memory_backed=1
# listed FEATURE: Sets $cold and $new to the requests that read a directory of 100 files after sync
# and drop_caches, and after another mount.
listed() {
	mkfs.ext4 -q -O "$1" -E lazy_itable_init=0 /dev/nb0
	mkdir -p /mnt/a
	mount /dev/nb0 /mnt/a
	mkdir /mnt/a/new
	touch /mnt/a/new/{1..100}
	sync
	echo 3 >/proc/sys/vm/drop_caches
	list
	cold=$reads
	umount /mnt/a
	mount /dev/nb0 /mnt/a
	list
	new=$reads
	umount /mnt/a
}
list() {
	local before
	read -r before _ </sys/block/nb0/stat
	ls -l /mnt/a/new >/dev/null
	read -r reads _ </sys/block/nb0/stat
	reads=$((reads - before))
}
listed has_journal
holds "reads of a directory after sync and drop_caches, with a journal" "$cold" 0 0
holds "reads of it after another mount" "$new" 2 100
listed ^has_journal
holds "reads of a directory after sync and drop_caches, without a journal" "$cold" 2 100
finish
