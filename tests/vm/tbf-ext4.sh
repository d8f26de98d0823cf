#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A throttled user on a file system does not block other users: requests that the journal needs are
# never throttled.
. /tests/nrs.sh

# setup: Creates ext4 on a device on which user 1001 gets one request per second.
setup() {
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=2000000 cache_size=16 size=192
	client a /dev/nb0 svc
	mkfs.ext4 -q -b 4096 /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	mkdir /mnt/a/one /mnt/a/two
	chown 1001 /mnt/a/one
	chown 1002 /mnt/a/two
	sync
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'start one uid={1001} rate=1'
}

# as UID COMMAND...: Runs the command as that user.
as() {
	setpriv --reuid "$1" --regid 100 --clear-groups "${@:2}"
}

# Verifies that user 1002 can write and sync its own file while user 1001 writes through the page
# cache: 99 % of the syncs take less than a second.
beside() {
	setup
	local done p99
	as 1001 fio --name=limited --directory=/mnt/a/one --rw=randwrite --bs=16k --size=16m \
		--ioengine=psync --fallocate=none --time_based --runtime=600 >/dev/null 2>&1 &
	wait_for 20 '[ "$(du -s /mnt/a/one | cut -f1)" -ge 256 ]' || fail "user 1001 does not write"
	as 1002 fio --name=free --directory=/mnt/a/two --rw=randwrite --bs=4k --size=2m \
		--ioengine=psync --fsync=1 --fallocate=none --time_based --runtime=8 --output-format=json \
		--percentile_list=50:99 >/tmp/free.json || fail "$(tail -n 3 /tmp/free.json)"
	# Latencies of sync, ns: the last percentiles in fio's report.
	p99=$(awk '/"sync" :/ { on = 1 }
		on && /"99.000000"/ { gsub(/,/, ""); print $3; exit }' /tmp/free.json)
	done=$(awk '/"sync" :/ { on = 1 }
		on && /"total_ios"/ { gsub(/,/, ""); print $3; exit }' /tmp/free.json)
	say "fsync: $done in 8 s, 99 % within $((p99 / 1000000)) ms; $(dm status a | cut -d' ' -f4-)"
	[ "$done" -ge 20 ]
	[ "$p99" -lt 1000000000 ]
}

# Verifies that direct reads are throttled at the rate of the reader, not of the file's owner.
owner() {
	setup
	set_to svc nrs_tbf_rule 'change one rate=20'
	as 1002 fio --name=f --filename=/mnt/a/two/f --rw=write --bs=1m --size=8m \
		--fallocate=none >/dev/null
	sync
	local before after
	as 1001 fio --name=f --filename=/mnt/a/two/f --rw=randread --bs=4k --size=8m --direct=1 \
		--ioengine=libaio --iodepth=8 --time_based --runtime=60 >/dev/null 2>&1 &
	saturated a
	sleep 0.3
	before="${EPOCHREALTIME/./} $(counter a ost_read)"
	sleep 5
	after="${EPOCHREALTIME/./} $(counter a ost_read)"
	say "reads of another user's file: $before to $after"
	awk '{ r = ($4 - $2) * 1e6 / ($3 - $1); print r; exit !(r > 19 && r < 21) }' <<<"$before $after"
}

try 60 "buffered writes at one per second, another user's fsync" beside
long try 60 "the reader counts, not the owner" owner
remarks '^(fsync|reads)'
summary
