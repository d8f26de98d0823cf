#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Requests that the system needs to make progress are never throttled: metadata and journal of a
# file system, swap.
. /tests/nrs.sh

# Verifies that a journal commit does not wait in a queue that is full for seconds on the same
# device.
journal() {
	module
	slow_lower nb0 10000000 memory_backed=1 cache_size=16
	client a /dev/nb0 svc
	# No later zeroing: ext4 does it with an open transaction, and with requests that are not marked
	# as metadata.
	mkfs.ext4 -q -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	policy svc fairshare
	echo 1 >"$(at svc slots)"
	fio --name=full --directory=/mnt/a --size=2m --rw=randread --bs=4k --direct=1 \
		--ioengine=libaio --iodepth=64 --numjobs=4 --minimal --create_only=1 >/dev/null
	fio --name=full --directory=/mnt/a --size=2m --rw=randread --bs=4k --direct=1 \
		--ioengine=libaio --iodepth=64 --numjobs=4 --minimal --time_based \
		--runtime=60 >/dev/null 2>&1 &
	# The I/O scheduler lets one user have half of the 256 tags.
	wait_for 20 '[ $(counter a held) -ge 120 ]' || fail "the queue is not full: $(status a)"
	local before started=$SECONDS
	before=$(counter a forced)
	# Metadata only; in the queue, each step would wait for more than 100 requests of 10 ms.
	mkdir /mnt/a/d{1..20}
	sync -f /mnt/a 2>/dev/null || sync
	say "sync took $((SECONDS - started)) s, forced $before before," \
		"$(counter a forced) after: $(status a)"
	[ "$(counter a forced)" -gt "$before" ] || fail "nothing was forced: $(status a)"
	[ "$(counter a held)" -ge 100 ] || fail "the queue was not full: $(status a)"
	[ $((SECONDS - started)) -lt 10 ]
}

# swapped: Starts swap on device a, and writes 24 MiB into a file in memory from a group limited to
# 12 MiB, so that half of it passes through the device. Sets $group.
swapped() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	mkswap /dev/mapper/a >/dev/null
	swapon /dev/mapper/a
	policy svc fairshare
	echo 1 >"$(at svc slots)"
	group=/sys/fs/cgroup/test.swap
	mkdir $group
	echo $((12 << 20)) >$group/memory.max
	mkdir -p /mnt/memory
	mount -t tmpfs -o size=32m memory /mnt/memory
	dd if=/dev/urandom of=/tmp/memory bs=1M count=24 2>/dev/null
	bash -c "echo \$\$ >$group/cgroup.procs && cat /tmp/memory >/mnt/memory/file"
}

# unswapped: Ends what swapped has started.
unswapped() {
	rm /mnt/memory/file /tmp/memory
	umount /mnt/memory
	swapoff /dev/mapper/a
}

# Verifies that swapped memory is read back unchanged.
swap() {
	local group
	swapped
	bash -c "echo \$\$ >$group/cgroup.procs && cmp /tmp/memory /mnt/memory/file" ||
		fail "the data is wrong, or not there: $(cat $group/memory.events)"
	say "$(grep -E 'pswp(in|out)' /proc/vmstat | tr '\n' ' ') $(status a)"
	[ "$(counter a forced)" -gt 0 ]
	[ "$(counter a failed)" = 0 ]
	[ "$(awk '$1 == "pswpout" { print $2 }' /proc/vmstat)" -gt 1000 ]
	unswapped
}

# Verifies that a limited user waits for its swapped pages, and that no other waits for swap to be
# written.
swap_in() {
	local group reads start
	swapped
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'change default rate=100000'
	set_to svc nrs_tbf_rule 'start slow uid={1001} rate=20'
	reads=$(counter a ost_read) start=${EPOCHREALTIME/./}
	bash -c "echo \$\$ >$group/cgroup.procs
		setpriv --reuid 1001 --clear-groups timeout 5 cat /mnt/memory/file" >/dev/null &&
		fail "read all: $(status a)"
	reads=$(($(counter a ost_read) - reads)) start=$((${EPOCHREALTIME/./} - start))
	say "$reads pages in $((start / 1000)) ms of a user with 20 requests per second: $(status a)"
	# Pages that are read ahead wait in the queue.
	[ "$reads" -ge 50 ] && [ "$reads" -le $((20 * start / 1000000 + 40)) ] || fail "$reads pages"
	set_to svc nrs_tbf_rule 'stop slow'
	unswapped
}

# Verifies that page cache writes by the kernel's own threads have no known owner.
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
long try 60 "swap under a tight limit of memory" swap
long try 60 "a limited user waits for its swapped pages" swap_in
long try 60 "writeback has no owner" writeback
summary
