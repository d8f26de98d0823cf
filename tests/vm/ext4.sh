#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A file system on a device: data is correct, checks succeed, and flushes reach the disk.
. /tests/nrs.sh

# Verifies data in mixed sizes with checksums, by direct I/O and through the page cache.
in_filesystem() {
	module
	lower nb0 memory_backed=1 cache_size=16
	client a /dev/nb0 svc
	policy svc fairshare
	[ "$(cat "/sys/block/$(basename "$(readlink -f /dev/mapper/a)")/queue/write_cache" \
		2>/dev/null || cat /sys/block/dm-0/queue/write_cache)" = 'write back' ]
	mkfs.ext4 -q -b 4096 /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	local sum size
	size=$(brief 4m 12m)
	local common=(
		--directory=/mnt/a --rw=randwrite --bssplit=4k/50:64k/50 --verify=crc32c --verify_fatal=1
		--do_verify=1 --minimal
	)
	fio --name=direct "${common[@]}" --size="$size" --direct=1 --ioengine=libaio --iodepth=16 \
		--numjobs=2 >/tmp/fio.txt || fail "direct: $(tail -n 2 /tmp/fio.txt)"
	fio --name=buffered "${common[@]}" --size="$size" --ioengine=psync --fsync=32 \
		--invalidate=1 >/tmp/fio.txt || fail "buffered: $(tail -n 2 /tmp/fio.txt)"
	sum=$(cat /mnt/a/direct* /mnt/a/buffered* | md5sum)
	umount /mnt/a
	e2fsck -fn /dev/mapper/a >/tmp/fsck.txt 2>&1 || fail "$(tail -n 5 /tmp/fsck.txt)"
	mount -t ext4 -o ro /dev/mapper/a /mnt/a
	[ "$(cat /mnt/a/direct* /mnt/a/buffered* | md5sum)" = "$sum" ]
	umount /mnt/a
	balanced a
}

# flushes: Prints the number of flushes that the disk has done.
flushes() {
	awk '{ print $16 }' /sys/block/nb0/stat
}

# Verifies that each fsync causes a flush below, also with a policy that queues requests, and with
# one slot.
fsync_path() {
	module
	lower nb0 memory_backed=1 cache_size=16
	client a /dev/nb0 svc
	policy svc fairshare
	echo 1 >"$(at svc slots)"
	local before
	before=$(flushes)
	fio --name=s --filename=/dev/mapper/a --rw=randwrite --bs=4k --io_size=1m --size=16m --fsync=8 \
		--numjobs=4 --ioengine=psync --direct=1 --minimal >/tmp/fio.txt
	[ $(($(flushes) - before)) -ge 32 ] || fail "$before flushes before, $(flushes) after"
	balanced a
}

# fsyncs NAME: Prints the requests that the disk gets for 100 fsyncs of a file system on the device
# NAME.
fsyncs() {
	local before
	mkfs.ext4 -q -F "/dev/mapper/$1"
	mount -t ext4 "/dev/mapper/$1" /mnt/a
	sync
	before=$(awk '{ print $5 + $16 }' /sys/block/nb0/stat)
	fio --name=s --directory=/mnt/a --rw=write --bs=4k --size=400k --fsync=1 --ioengine=psync \
		--minimal >/tmp/fio.txt
	echo $(($(awk '{ print $5 + $16 }' /sys/block/nb0/stat) - before))
	umount /mnt/a
}

# Verifies that fsync causes no more requests than through dm-linear.
fsync_requests() {
	module
	lower nb0 memory_backed=1 cache_size=16
	client a /dev/nb0 svc
	dm_create lin "0 $(sectors /dev/nb0) linear /dev/nb0 0"
	local plain ours
	mkdir -p /mnt/a
	plain=$(fsyncs lin)
	ours=$(fsyncs a)
	[ "$plain" -ge 200 ] && [ "$ours" -le $((plain + plain / 20)) ] ||
		fail "$ours requests, $plain through dm-linear"
}

try 40 "ext4 under fairshare: written, checked, read back" in_filesystem
try 30 "fsync reaches the disk" fsync_path
dm_only try 30 "fsync costs no more requests than through dm-linear" fsync_requests
summary
