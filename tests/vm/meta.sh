#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What the system needs to make progress is never held back: metadata and journal of a filesystem, swap.
. /tests/nrs.sh

# The queue is full for seconds; a journal commit on the same device does not wait in it.
journal() {
	module
	slow_lower nb0 10000000 memory_backed=1 cache_size=16
	client a /dev/nb0 svc
	# No zeroing later: ext4 does that with a transaction open, and with requests that are not marked as metadata.
	mkfs.ext4 -q -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	policy svc fairshare
	echo 1 >"$(at svc slots)"
	fio --name=full --directory=/mnt/a --size=2m --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=64 --numjobs=4 --minimal \
		--create_only=1 >/dev/null
	fio --name=full --directory=/mnt/a --size=2m --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=64 --numjobs=4 --minimal \
		--time_based --runtime=60 >/dev/null 2>&1 &
	# The I/O scheduler lets one user have half of 256 tags.
	wait_for 20 '[ $(counter a held) -ge 120 ]' || fail "the queue is not full: $(status a)"
	local before started=$SECONDS
	before=$(counter a forced)
	# Metadata only; in the queue it would take its turn behind more than 100 requests of 10 ms, for each of its steps.
	mkdir /mnt/a/d{1..20}
	sync -f /mnt/a 2>/dev/null || sync
	say "sync took $((SECONDS - started)) s, forced $before before, $(counter a forced) after: $(status a)"
	[ "$(counter a forced)" -gt "$before" ] || fail "nothing was forced: $(status a)"
	[ "$(counter a held)" -ge 100 ] || fail "the queue was not full: $(status a)"
	[ $((SECONDS - started)) -lt 10 ]
}

# 24 MiB in a group that may have 12: half of it has to go through the device and come back right.
swap() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	mkswap /dev/mapper/a >/dev/null
	swapon /dev/mapper/a
	policy svc fairshare
	echo 1 >"$(at svc slots)"
	local group=/sys/fs/cgroup/test.swap
	mkdir $group
	echo $((12 << 20)) >$group/memory.max
	mkdir -p /mnt/memory
	mount -t tmpfs -o size=32m memory /mnt/memory
	dd if=/dev/urandom of=/tmp/memory bs=1M count=24 2>/dev/null
	bash -c "echo \$\$ >$group/cgroup.procs; cat /tmp/memory >/mnt/memory/file; cmp /tmp/memory /mnt/memory/file" ||
		fail "the data is wrong, or not there: $(cat $group/memory.events)"
	say "$(grep -E 'pswp(in|out)' /proc/vmstat | tr '\n' ' ') $(status a)"
	[ "$(counter a forced)" -gt 0 ]
	[ "$(counter a failed)" = 0 ]
	[ "$(awk '$1 == "pswpout" { print $2 }' /proc/vmstat)" -gt 1000 ]
	rm /mnt/memory/file /tmp/memory
	umount /mnt/memory
	swapoff /dev/mapper/a
}

# Writes of the page cache come from the kernel's own threads: nobody knows for whom.
writeback() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare uid_fair'
	dd if=/dev/zero of=/dev/mapper/a bs=64k count=64 2>/dev/null
	sync
	mkfs.ext4 -q /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	dd if=/dev/zero of=/mnt/a/file bs=64k count=64 2>/dev/null
	wait_for 45 '[ $(counter a anonymous) -gt 0 ]' || fail "$(status a)"
	umount /mnt/a
}

try 60 "a journal commit does not wait in a full queue" journal
try 60 "swap under a tight limit of memory" swap
long try 60 "writeback has no owner" writeback
summary
