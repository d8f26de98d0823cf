#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: elevator-tags.sh [FUNCTION...]
#
# Tags of a disk with the I/O scheduler: a user with more requests queued than its share leaves tags
# to other users, even if kernel threads submit the requests.
NRS_FRONT=elevator
. /tests/nrs.sh

only=$*

# setup TAGS POLICY [KEY=VALUE...]: Creates a disk that takes 4 ms per request, of at most 128 KiB,
# and is served by POLICY. The default rule of tbf does not throttle.
setup() {
	module
	slow_lower nb0 4000000 max_sectors=256 "${@:3}"
	client a /dev/nb0 svc
	echo "$1" >/sys/block/nb0/queue/nr_requests
	policy svc "$2"
	[[ $2 != tbf* ]] || set_to svc nrs_tbf_rule 'change default rate=100000'
}

# rule TEXT: Starts a rule of svc.
rule() {
	set_to svc nrs_tbf_rule "start slow $1"
}

# polite UID SECONDS: Sets $rate to the requests per second of a user with one request at a time,
# who reads what no test writes.
polite() {
	load a as="$1" --iodepth=1 --offset=112m --time_based --runtime="$2" >/tmp/polite.txt
	rate=$(terse /tmp/polite.txt 8)
	rate=${rate%.*}
}

# undisturbed PART ALONE [UID]: Verifies that the user with one request at a time keeps PART of the
# rate ALONE beside requests that wait.
undisturbed() {
	polite "${3:-1002}" 5
	say "requests per second of user ${3:-1002}: alone $2, now $rate; deferred: $(deferred)"
	more "$1" "$rate" "$2" || fail "alone $2, now $rate per second: $(status)"
}

# nothing_left: Verifies that the disk has no request left, in its own counters and in nrs.
nothing_left() {
	local fields
	wait_for 20 '[ "$(counter a held)" = 0 ] && [ "$(deferred)" = 0 ]' || fail "$(status)"
	read -ra fields </sys/block/nb0/stat
	[ "${fields[8]}" = 0 ] || fail "in flight by /sys/block/nb0/stat: ${fields[8]}"
}

# greedy TAGS PART OPTION...: Runs a user with 1024 requests and these options beside a user with
# one request at a time, who keeps PART of its rate without the former.
greedy() {
	setup "$1" 'fairshare uid_fair'
	echo 8 >"$(at svc slots)"
	polite 1002 2
	begin a as=1001 --iodepth=256 --numjobs=4 "${@:3}"
	saturated $(($1 / 8)) a
	undisturbed "$2" "$rate"
}

# holds LEAST MOST: Verifies that LEAST to MOST requests come to be queued, and never more then.
holds() {
	local i n
	wait_for 20 "n=\$(counter a held) && [ \$n -ge $1 ] && [ \$n -le $2 ]" ||
		fail "$1 to $2: $(status)"
	for i in {1..50}; do
		n=$(counter a held)
		[ "$n" -le "$2" ] || fail "$n of at most $2"
	done
	say "requests queued: $n"
}

# Verifies the concurrency of users with 512 requests each on a disk with 256 tags, of which up to 8
# are in flight. Up to eight users leave one in nine of the others free, and one with one cgroup
# leaves a ninth of the rest.
divided() {
	setup 256 'fairshare uid_fair'
	echo 8 >"$(at svc slots)"
	local uid pid
	begin a as=1001 --iodepth=256 --numjobs=2
	holds 205 225
	for uid in 1002 1003; do begin a as=$uid --iodepth=256 --numjobs=2; done
	# While the first user has more than its part, the others leave less free.
	holds 205 247
	for pid in $(pidof fio); do
		[ "$(stat -c %u "/proc/$pid" 2>/dev/null)" = 1001 ] || kill -KILL "$pid"
	done
	holds 205 225
}

# Verifies that more tasks than tags, throttled to 2 requests per second, take no tags from others,
# whatever their user id, and continue when the queue is emptied.
throttled_tasks() {
	setup 32 'tbf uid'
	rule 'uid={1001} rate=2'
	local alone start
	polite 1002 2
	alone=$rate
	load a as=1001 --thread --numjobs=100 --ioengine=psync --io_size=4k >/tmp/crowd.txt &
	reader=$!
	wait_for 10 '[ "$(deferred)" -gt 60 ]' || fail "$(status)"
	undisturbed 0.6 "$alone"
	undisturbed 0.6 "$alone" 1013
	start=${EPOCHREALTIME/./}
	echo none >/sys/block/nb0/queue/scheduler
	start=$(((${EPOCHREALTIME/./} - start) / 1000))
	[ "$start" -le 500 ] || fail "unset after $start ms"
	wait $reader || fail "fio: status $?: $(cat /tmp/crowd.txt)"
	[ "$(terse /tmp/crowd.txt 6)" = 400 ] || fail "read $(terse /tmp/crowd.txt 6) KiB of 400"
}

# large NOMERGES: Verifies the same beside reads of 4 MiB that the block layer splits, or that must
# not merge. The disk's counters count each request once.
large() {
	setup 64 'tbf uid'
	# Eight pieces per second.
	rule 'uid={1001} rate=1MiB/s'
	local alone before reads
	echo "$1" >/sys/block/nb0/queue/nomerges
	polite 1002 2
	alone=$rate
	mkdir -p /sys/fs/cgroup/test.a
	(echo $BASHPID >/sys/fs/cgroup/test.a/cgroup.procs
		exec setpriv --reuid 1001 --clear-groups fio --name=large --filename=/dev/mapper/a \
			--rw=randread --bs=4m --direct=1 --ioengine=libaio --iodepth=8 --size=64m \
			--io_size=32m --norandommap --minimal >/tmp/large.txt) &
	reader=$!
	wait_for 10 '[ "$(deferred)" -gt 60 ]' || fail "$(status)"
	undisturbed 0.6 "$alone"
	before=$(deferred)
	[ "$before" -gt 60 ] || fail "not beside deferred requests: $before"
	set_to svc nrs_tbf_rule 'change slow rate=100GiB/s'
	wait $reader || fail "fio: status $?: $(cat /tmp/large.txt)"
	nothing_left
	# 32 MiB in pieces of at most 128 KiB.
	reads_in /sys/fs/cgroup/test.a/io.stat "$(</sys/block/nb0/dev)"
	[ "$reads" -ge 256 ] && [ "$reads" -le 272 ] || fail "io.stat counts $reads reads of 256"
	[ "$read_bytes" = $((32 << 20)) ] || fail "io.stat counts $read_bytes bytes of $((32 << 20))"
}

# Verifies the same beside data of no user that a kernel thread writes.
worker() {
	setup 64 'tbf uid' memory_backed=1
	rule 'uid={4294967295} rate=8'
	local alone fd
	polite 1002 2
	alone=$rate
	# The last close of a disk flushes it, by the task that closes.
	exec {fd}<>/dev/nb0
	echo $((64 << 20)) >/proc/sys/vm/dirty_bytes
	echo $((1 << 20)) >/proc/sys/vm/dirty_background_bytes
	dd if=/dev/zero of=/dev/nb0 bs=1M count=20 conv=notrunc 2>/dev/null
	wait_for 20 '[ "$(deferred)" -gt 60 ]' || fail "$(status)"
	undisturbed 0.6 "$alone"
	set_to svc nrs_tbf_rule 'change slow rate=100000'
	nothing_left
	[ "$(counter a anonymous)" -gt 60 ] || fail "no kernel thread wrote: $(status)"
}

# buffered DATA: Verifies that a group without a limit reads, and flushes files, nearly as fast as
# alone, beside a limited group that writes DATA (sequential or scattered) through the page cache of
# the same file system.
buffered() {
	module
	lower nb0 memory_backed=1 size=400 irqmode=2 completion_nsec=1000000 hw_queue_depth=64
	client a /dev/nb0 svc
	mkfs.ext4 -q -F -J size=8 -E lazy_itable_init=0,lazy_journal_init=0 /dev/nb0
	mkdir -p /mnt/a /sys/fs/cgroup/test.{a,b}
	mount -t ext4 /dev/nb0 /mnt/a
	dd if=/dev/zero of=/mnt/a/big bs=1M count=120 2>/dev/null
	dd if=/dev/zero of=/mnt/a/read bs=1M count=20 2>/dev/null
	dd if=/dev/zero of=/mnt/a/small bs=4k count=1 2>/dev/null
	umount /mnt/a
	mount -t ext4 /dev/nb0 /mnt/a
	echo $((200 << 20)) >/proc/sys/vm/dirty_bytes
	echo $((2 << 20)) >/proc/sys/vm/dirty_background_bytes
	local alone cost=1MB/s options=(--rw=write --bs=64k --io_size=120m)
	[ "$1" = sequential ] || options=(--rw=randwrite --bs=4k --io_size=20m --norandommap) cost=20
	policy svc 'tbf cgroup'
	set_to svc nrs_tbf_rule 'change default rate=100000'
	rule "cgroup={/test.a} rate=$cost"
	# in_b SECONDS: Sets $rate to the reads per second of group b.
	in_b() {
		(echo $BASHPID >/sys/fs/cgroup/test.b/cgroup.procs
			exec fio --name=b --filename=/mnt/a/read --rw=randread --bs=4k --direct=1 \
				--ioengine=psync --norandommap --time_based --runtime="$1" --minimal) >/tmp/b.txt
		rate=$(terse /tmp/b.txt 8)
		rate=${rate%.*}
	}
	in_b 2
	alone=$rate
	(echo $BASHPID >/sys/fs/cgroup/test.a/cgroup.procs
		exec fio --name=a --filename=/mnt/a/big --size=120m --ioengine=psync "${options[@]}" \
			--minimal >/dev/null) &
	wait_for 30 '[ "$(deferred)" -gt 100 ]' || fail "$(status)"
	in_b 5
	say "reads per second beside $1 writes: alone $alone, now $rate; deferred: $(deferred)"
	more 0.6 "$rate" "$alone" || fail "alone $alone, now $rate per second: $(status)"
	[ "$(deferred)" -gt 100 ] || fail "not beside deferred requests: $(deferred)"
	(echo $BASHPID >/sys/fs/cgroup/test.b/cgroup.procs
		exec timeout 10 dd if=/dev/zero of=/mnt/a/small bs=4k count=1 conv=notrunc,fsync) ||
		fail "a file of the group without limit is not flushed in 10 s"
	policy svc fifo
	wait
	umount /mnt/a
	nothing_left
}

# Verifies that the data of deferred writes is right after the scheduler, its service and the number
# of tags have changed.
changes() {
	module
	mkdir /sys/kernel/config/nrs/svc
	setup 16 'fairshare uid_fair' memory_backed=1
	echo 2 >"$(at svc slots)"
	writing a --uid=1001 --iodepth=256 --name=two --offset=32m --uid=1002 --iodepth=256
	local round
	for round in 1 2 3; do
		wait_for 10 '[ "$(deferred)" -gt 100 ]' || fail "$(status)"
		echo none >/sys/block/nb0/queue/scheduler
		scheduled nb0 svc
		wait_for 10 '[ "$(deferred)" -gt 100 ]' || fail "$(status)"
		adjust /sys/block/nb0/queue/iosched/service other
		adjust /sys/block/nb0/queue/iosched/service svc
		echo $((16 * round)) >/sys/block/nb0/queue/nr_requests
	done
	written
	nothing_left
}

# Verifies that 320 throttled cgroups of one user take no tags from others.
groups() {
	setup 256 'tbf uid'
	rule 'uid={1001} rate=4'
	local alone i
	polite 1002 2
	alone=$rate
	for ((i = 0; i < 320; i++)); do
		mkdir -p /sys/fs/cgroup/test.$i
		(echo $BASHPID >/sys/fs/cgroup/test.$i/cgroup.procs
			exec setpriv --reuid 1001 --clear-groups dd if=/dev/nb0 of=/dev/null bs=4k count=1 \
				skip=$((i * 8)) iflag=direct 2>/dev/null) &
	done
	wait_for 30 '[ "$(deferred)" -gt 100 ]' || fail "$(status)"
	undisturbed 0.6 "$alone"
	policy svc fifo
	wait
}

# Verifies that the deferred requests of a frozen cgroup are served, so that its tasks freeze.
frozen() {
	local group=/sys/fs/cgroup/test.a i
	setup 16 'tbf uid'
	rule 'uid={1001} rate=20'
	mkdir -p $group
	(echo $BASHPID >$group/cgroup.procs
		exec setpriv --reuid 1001 --clear-groups fio --name=frozen --filename=/dev/mapper/a \
			--rw=randread --bs=4k --direct=1 --ioengine=psync --thread --numjobs=60 --time_based \
			--runtime=60 --minimal >/dev/null) &
	wait_for 10 '[ "$(deferred)" -gt 40 ]' || fail "$(status)"
	echo 1 >$group/cgroup.freeze
	wait_for 10 "grep -q 'frozen 1' $group/cgroup.events" || fail "$(status)"
	[ "$(deferred)" = 0 ] || fail "$(status)"
	echo 0 >$group/cgroup.freeze
	wait_for 10 '[ "$(deferred)" -gt 40 ]' || fail "$(status)"
}

# Verifies that deferred requests fail when their disk goes, and that their tasks end.
removed() {
	setup 16 'tbf uid'
	rule 'uid={1001} rate=2'
	load a as=1001 --thread --numjobs=64 --ioengine=psync --io_size=4k >/tmp/removed.txt 2>&1 &
	reader=$!
	wait_for 10 '[ "$(deferred)" -gt 40 ]' || fail "$(status)"
	null_blk_remove nb0
	wait_for 10 "! kill -0 $reader 2>/dev/null" || fail "tasks of a removed disk wait"
}

# Verifies that request-based multipath, whose requests the scheduler sees while the driver has
# stopped the queue, waits for its own requests: none is deferred, and all complete with the right
# data, also after the path has failed.
multipath() {
	modprobe -a dm-multipath dm-round-robin
	setup 32 'tbf uid' memory_backed=1 mbps=1
	# The queue is run by tasks of the user and by kernel threads.
	rule 'uid={1001 4294967295} rate=4'
	dm_create mp "0 $(sectors /dev/nb0) multipath 3 queue_if_no_path queue_mode rq 0 1 1 \
		round-robin 0 1 1 /dev/nb0 1"
	chmod 666 /dev/mapper/mp
	verified mp --uid=1001 --iodepth=128 --size=1m &
	wait_for 20 '[ "$(counter a held)" -gt 24 ]' || fail "$(status)"
	[ "$(deferred)" = 0 ] || fail "$(status)"
	dm message mp 0 fail_path /dev/nb0
	set_to svc nrs_tbf_rule 'change slow rate=100000'
	wait_for 20 '[ "$(counter a held)" = 0 ]' || fail "$(status)"
	kill -0 $! || fail "ended without a path"
	dm message mp 0 reinstate_path /dev/nb0
	wait $!
	nothing_left
}

# Verifies that nothing is deferred beside io.cost, where a worker would wait for one cgroup, and
# that all users are served.
controlled() {
	local group=/sys/fs/cgroup/test.a
	setup 32 'tbf uid'
	rule 'uid={1001} rate=20'
	echo "$(</sys/block/nb0/dev) enable=1" >/sys/fs/cgroup/io.cost.qos
	mkdir -p $group
	(echo $BASHPID >$group/cgroup.procs
		load a as=1001 --thread --numjobs=100 --ioengine=psync --io_size=4k >/tmp/crowd.txt) &
	wait_for 10 '[ $(($(counter a held) + $(deferred))) -gt 28 ]' || fail "$(status)"
	[ "$(deferred)" = 0 ] || fail "$(status)"
	setpriv --reuid 1002 --clear-groups dd if=/dev/nb0 of=/dev/null bs=4k count=1 iflag=direct
	wait $! || fail "fio: status $?: $(cat /tmp/crowd.txt)"
	[ "$(terse /tmp/crowd.txt 6)" = 400 ] || fail "read $(terse /tmp/crowd.txt 6) KiB of 400"
	nothing_left
}

# stock CMD...: Runs a check on the stock kernel only: the debug kernel is too slow for rates, and
# has neither multipath nor io.cost.
stock() {
	[ -n "$debug" ] || "$@"
}

stock try 60 "one request at a time beside 100 throttled tasks, 32 tags" throttled_tasks
stock try 60 "three users with 512 requests each: tags of each, alone and together" divided
stock long try 60 "one request at a time beside a thousand, 256 tags" greedy 256 0.6
stock long try 60 "one request at a time beside a thousand of io_uring, 256 tags" greedy 256 0.6 \
	--ioengine=io_uring
stock long try 60 "one request at a time beside a thousand, 2048 tags" greedy 2048 0.8
stock long try 60 "one request at a time beside large requests" large 0
stock long try 60 "one request at a time beside requests that must not merge" large 2
stock long try 60 "one request at a time beside throttled kernel threads" worker
stock long try 90 "one request at a time beside 320 throttled cgroups of a user" groups
stock long try 90 "a file system beside buffered writes of a limited cgroup" \
	buffered sequential
stock long try 90 "a file system beside scattered buffered writes of a limited cgroup" \
	buffered scattered
long try 60 "deferred requests after changes of the scheduler" changes
try 60 "deferred requests of a removed disk" removed
try 60 "deferred requests of a frozen cgroup" frozen
stock try 60 "no deferred requests of request-based multipath" multipath
stock long try 60 "no deferred requests beside io.cost" controlled
echo 20 >/proc/sys/vm/dirty_ratio
echo 10 >/proc/sys/vm/dirty_background_ratio
remarks '^(requests|reads) (per second|queued)'
summary
