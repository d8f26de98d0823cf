#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: with `nodelalloc`, an fsync of one file writes another user's data, charged to no group
# guess: Data in the page cache are charged to the cgroup that has dirtied the file, not to the task
#        that starts the writeback; a mount option for the allocation of blocks changes nothing.
# so:    With delayed allocation, the default, it is so. Without, new blocks are in the transaction
#        at once, and a commit writes the data of all files in it first: the journal's thread does,
#        without a group. `io.max` of the writer limits nothing then.
# read:  fs/ext4/inode.c (ext4_normal_submit_inode_data_buffers has a writeback_control of no
#        group), fs/jbd2/commit.c (journal_submit_data_buffers)
. "${0%/*}/lib.sh"
guest --icount

null_blk_create nb0 size=64 irqmode=1 memory_backed=1
# committed OPTION: Sets $own to what group a is charged for 128 KiB that it writes to one file,
# after group b has written a byte to another file with fsync, and then after sync.
committed() {
	mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nb0
	mkdir -p /mnt/a
	mount -o "$1" /dev/nb0 /mnt/a
	sync
	before=$(counted a wbytes nb0)
	group a dd if=/dev/zero of=/mnt/a/one bs=4k count=32 2>/dev/null
	group b dd if=/dev/zero of=/mnt/a/two bs=1 count=1 conv=fsync 2>/dev/null
	sync
	own=$(($(counted a wbytes nb0) - before))
	umount /mnt/a
}
group a true
committed delalloc
is "bytes charged to the writer of 131072, delalloc" "$own" 131072
committed nodelalloc
is "bytes charged to the writer of 131072, nodelalloc" "$own" 0
finish
