#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A kernel whose private structures differ from those that the module was built for gets no I/O
# scheduler, and the reason is logged. The test simulates such a kernel with other type information:
# a changed copy is mounted where the module reads it.
. /tests/nrs.sh

btf=/sys/kernel/btf/vmlinux own=/tmp/btf.own changed=/tmp/btf.changed

# expect PATTERN: Verifies the message of a newly loaded module about its I/O scheduler. The rest of
# the module works in any case.
expect() {
	local mark="layout $RANDOM$RANDOM" said
	echo "$mark" >/dev/kmsg
	load_nrs
	[ -d /sys/kernel/debug/nrs ]
	rmmod nrs
	said=$(dmesg | sed "1,/$mark\$/d" | sed -n 's/.*nrs: no I\/O scheduler: //p')
	# shellcheck disable=SC2053 # a pattern
	[[ $said == $1 ]] || fail "'$said' in place of '$1'"
}

# with NAME INSTEAD...: Writes type information in which each NAME is replaced by INSTEAD, of the
# same length.
with() {
	cp $own $changed
	while [ $# -gt 0 ]; do
		printf %s "$2" | dd of=$changed bs=1 conv=notrunc \
			seek="$(awk -v name="$1" '$2 == name { print $1 }' /tmp/strings)" 2>/dev/null
		shift 2
	done
}

differs() {
	cp $btf $own
	cp $own $changed
	strings -t d -n 8 $own >/tmp/all
	grep -E ' (elevator_(type|tags)|(init|exit)_hctx|insert_requests|blk_insert_t)$' \
		/tmp/all >/tmp/strings
	mount --bind $changed $btf
	expect ''
	with elevator_type elevator_Type
	expect 'struct elevator_type does not exist'
	with insert_requests insert_Requests
	expect 'struct elevator_mq_ops has no member insert_requests'
	# Swaps in another structure, with two numbers in it.
	with elevator_type elevator_tags elevator_tags elevator_type
	expect 'struct elevator_type: size is 8, built for *'
	# Swaps in the next member.
	with init_hctx exit_hctx exit_hctx init_hctx
	expect 'struct elevator_mq_ops: offset of init_hctx is 24, built for 16'
	with blk_insert_t blk_Insert_t
	expect "struct elevator_mq_ops: insert_requests is not \
void(struct blk_mq_hw_ctx *, struct list_head *, blk_insert_t)"
	head -c 100000 $own >$changed
	expect 'unknown BTF format'
	umount $btf
	mount -t tmpfs none ${btf%/*}
	expect 'the kernel has no BTF'
	umount ${btf%/*}
	expect ''
}

if [ -d /sys/module/nrs ]; then rmmod nrs; fi
try 60 "different structures: no I/O scheduler, with the reason" differs
umount $btf ${btf%/*} 2>/dev/null
summary
