#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Lifecycle of a device under load: suspend, resume, new tables, removal, an interrupted suspend.
. /tests/nrs.sh
only=$*

# moves DEVICE: Verifies that requests of the device keep completing.
moves() {
	local seen
	seen=$(counter "$1" ended)
	wait_for 20 "[ \$(counter $1 ended) -gt $((seen + ${2:-20})) ]" ||
		fail "$1 makes no progress: $(dm status "$1")"
}

setup() {
	module
	# Slow enough that requests are queued at all times.
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=2000000
	client a /dev/nb0 svc
	policy svc fairshare
	echo 2 >"$(at svc slots)"
}

# suspends [--noflush]: Suspends and resumes several times with requests queued.
suspends() {
	setup
	writing a
	local before
	for _ in $(seq "$(slow 6 2)"); do
		saturated a
		dm suspend "$@" a
		[ "$(counter a held)" = 0 ] || fail "queued over a suspend: $(dm status a)"
		before=$(counter a ended)
		[ "$(counter a ended)" = "$before" ] || fail "requests end while suspended"
		dm message a 0 service slots 2
		dm resume a
		moves a
	done
	# Requests are queued again, not passed on as while draining.
	saturated a
	written
	balanced a
}

# Verifies that a suspend ends the throttle of queued requests, with and without flush. At the rate
# of the policy the requests would take 50 s.
suspends_throttled() {
	local how
	setup
	policy svc 'tbf uid'
	echo 'change default rate=2' >"$(at svc nrs_tbf_rule)"
	begin a as=1001 --iodepth=100
	for how in '' --noflush; do
		wait_for 20 '[ "$(counter a held)" -ge 90 ]' || fail "$(dm status a)"
		# shellcheck disable=SC2086 # no word if empty
		timeout "$(slow 10 40)" dmsetup suspend $how a
		[ "$(counter a held)" = 0 ] || fail "queued over a suspend: $(dm status a)"
		dm resume a
	done
}

reload() {
	setup
	writing a
	local i
	for i in 1 2 3; do
		saturated a
		dm load a --table "0 $(sectors /dev/nb0) nrs /dev/nb0 0 svc 2 nid 10.0.0.$i@tcp"
		# The old and the new table coexist, each a client of the service.
		[ "$(grep -c '^- client: ' "$(at svc clients)")" = 2 ] || fail "$(cat "$(at svc clients)")"
		moves a
		dm resume a
		[ "$(grep -c '^- client: ' "$(at svc clients)")" = 1 ] || fail "$(cat "$(at svc clients)")"
		dm table a | grep -q "nid 10.0.0.$i@tcp" || fail "$(dm table a)"
		moves a
	done
	# Moves the device to another service, which removes the first one.
	dm load a --table "0 $(sectors /dev/nb0) nrs /dev/nb0 0 other"
	dm resume a
	[ ! -d /sys/kernel/debug/nrs/svc ]
	[ -d /sys/kernel/debug/nrs/other ]
	moves a
	written
	balanced a
	[ "$(grep -c '^- client: ' "$(at other clients)")" = 1 ]
}

# Verifies that the shown table creates the same device again.
table_again() {
	setup
	local words first
	for words in '' ' 2 nid 10.0.0.1@tcp' \
		' 10 opportunity off size 4096 jobid job.7 nid 3@gni jobid_name %u:%e'; do
		dm load a --table "0 $(sectors /dev/nb0) nrs /dev/nb0 0 svc$words"
		dm resume a
		first=$(dm table a)
		dm load a --table "$first"
		dm resume a
		[ "$(dm table a)" = "$first" ] || fail "$first became $(dm table a)"
	done
}

remove_busy() {
	setup
	writing a
	saturated a
	refused EBUSY dm remove a
	moves a
	written
	dm_remove a
	[ ! -d /sys/kernel/debug/nrs/svc ]
	rmmod nrs
}

remove_force() {
	setup
	load a --numjobs=2 --time_based --runtime=60 --continue_on_error=none >/dev/null 2>&1 &
	local fio=$!
	saturated a
	dm remove --force a || true
	# The load gets errors and exits.
	wait_for 20 "! kill -0 $fio 2>/dev/null" || fail "fio is still active"
	wait "$fio" && fail "fio saw no error"
	wait_for 10 "[ ! -d /sys/kernel/debug/nrs/svc ]" || fail "the service still exists"
	dm remove a 2>/dev/null || true
	rmmod nrs
}

# Verifies that a suspend that cannot finish, because the suspended device below holds its requests,
# is undone when interrupted.
undo() {
	module
	lower nb0 memory_backed=1
	dm_create lin "0 $(sectors /dev/nb0) linear /dev/nb0 0"
	client a /dev/mapper/lin svc
	echo 4 >"$(at svc slots)"
	writing a
	moves a
	dm suspend --nolockfs lin
	saturated a
	set -m
	dm suspend --nolockfs a &
	local suspend=$!
	set +m
	# Draining dispatches all queued requests, which stay in the device below.
	wait_for 10 '[ $(counter a held) = 0 ]' || fail "$(dm status a)"
	# Not INT: background processes of a shell ignore it, and so do their children.
	kill -TERM -- "-$suspend"
	wait "$suspend" && fail "the suspend succeeded"
	[ "$(dm info -c --noheadings -o suspended a)" = Active ] || fail "$(dm info a)"
	dm resume lin
	moves a
	# Requests are scheduled again: they are queued while the device below is suspended.
	dm suspend --nolockfs lin
	saturated a
	dm resume lin
	written
	balanced a
}

# Verifies flushes in a second target: they have no sector, and must not be taken for requests
# before the target's start.
two_targets() {
	module
	lower nb0 memory_backed=1 cache_size=16
	local half=$(($(sectors /dev/nb0) / 2))
	dm_create a "0 $half nrs /dev/nb0 $half svc
$half $half nrs /dev/nb0 0 svc"
	policy svc fairshare
	dd if=/dev/zero of=/dev/mapper/a bs=64k count=32 seek=$((half / 128 - 16)) \
		conv=fsync,notrunc 2>/dev/null
	dd if=/dev/zero of=/dev/mapper/a bs=4k count=8 seek=$((half / 8 + 100)) \
		conv=fsync,notrunc 2>/dev/null
	# The middle of the device is where the end of the disk meets its start.
	verified a --offset=$((half * 512 - 1048576)) --size=2m --bs=64k --fsync=4
	balanced a
	[ "$(dm status a | grep -c nrs)" = 2 ]
}

# Verifies that discards and zeroing are passed through.
other_operations() {
	module
	lower nb0 memory_backed=1 discard=1
	client a /dev/nb0 svc
	policy svc fairshare
	verified a --size="$(slow 4m 256k)"
	blkdiscard -o 0 -l 2097152 /dev/mapper/a
	blkdiscard -z -o 2097152 -l 1048576 /dev/mapper/a
	[ "$(head -c 3145728 /dev/mapper/a | tr -d '\0' | wc -c)" = 0 ]
	balanced a
}

# Verifies that credits throttle submitters, and that a suspend, a kill, and disabling the credits
# release them.
held_back() {
	module
	slow_lower nb0 8000000
	client a /dev/nb0 svc
	echo 2 >"$(at svc slots)"
	local credits loads i
	begin a --iodepth=32 --numjobs=4
	wait_for 20 '[ "$(counter a held)" -ge 100 ]' || fail "$(dm status a)"
	credits=$(sed -n 's/^credits: //p' "$(at svc nrs_concurrency)")
	[ "$credits" -gt 0 ] && [ "$credits" -le 32 ] || fail "$credits credits"
	[ "$(counter a credits)" = "$credits" ] || fail "$credits credits: $(dm status a)"
	set_to svc nrs_enforce_credits 1
	# Each of the four submitters may take the last credit.
	wait_for 20 "[ \"\$(counter a held)\" -le $((credits + 4)) ]" ||
		fail "$credits credits: $(dm status a)"
	for ((i = 0; i < 20; i++)); do
		moves a 5
		[ "$(counter a held)" -le $((credits + 4)) ] || fail "$credits credits: $(dm status a)"
	done
	[ "$(sed -n 's/^waits: //p' "$(at svc nrs_concurrency)")" -gt 0 ]
	dm suspend a
	[ "$(counter a held)" = 0 ] || fail "queued over a suspend: $(dm status a)"
	dm resume a
	moves a
	set_to svc nrs_enforce_credits 0
	wait_for 20 '[ "$(counter a held)" -ge 100 ]' || fail "$(dm status a)"
	set_to svc nrs_enforce_credits 1
	wait_for 20 "[ \"\$(counter a held)\" -le $((credits + 4)) ]" ||
		fail "$credits credits: $(dm status a)"
	loads=$(pidof fio)
	kill -9 $loads
	wait_for 20 '[ "$(counter a held)" = 0 ] && ! pidof fio' || fail "$(dm status a)"
	balanced a
}

# concurrency NAME: Sets $number to a value of nrs_concurrency; starts no process.
concurrency() {
	local line
	while read -r line; do
		[ "${line%%:*}" != "$1" ] || number=${line#*: }
	done </sys/kernel/debug/nrs/svc/nrs_concurrency
}

# stands: Waits until a submitter has just been throttled.
stands() {
	local number before
	concurrency waits
	before=$number
	until [ "$number" -gt "$before" ]; do concurrency waits; done
}

# at_once COUNT CMD...: Verifies that CMD lets COUNT requests of a be queued, without the timeout of
# a submitter. If one times out by chance while CMD runs, sets $late.
at_once() {
	local count=$1 number before
	shift
	stands
	concurrency over
	before=$number
	"$@"
	concurrency over
	until [ "$(counter a held)" -ge "$count" ]; do concurrency over; done
	[ "$number" = "$before" ] || late="$*"
}

# Verifies that throttled submitters continue at once when credits rise or are disabled; requests
# complete too slowly to wake them. One of three rounds must pass without a timeout.
credits_rise() {
	local late
	for _ in 1 2 3; do
		late=''
		raise_credits
		[ -n "$late" ] || return 0
		say "$late: a submitter timed out"
		clean_up
	done
	fail "$late: no submitter is woken"
}

raise_credits() {
	module
	lower nb0
	lower nb1
	client a /dev/nb0 svc
	client b /dev/nb1 svc
	policy svc 'tbf uid'
	echo 'change default rate=1KiB/s' >"$(at svc nrs_tbf_rule)"
	echo 2 >"$(at svc slots)"
	begin b as=2000 --iodepth=4
	wait_for 20 '[ "$(counter b held)" -ge 1 ]' || fail "$(dm status b)"
	set_to svc nrs_enforce_credits 1
	begin a as=1000 --iodepth=128
	wait_for 20 '[ "$(counter a held)" -ge 8 ]' || fail "$(dm status a)"
	# The debug kernel is too slow for this check.
	if [ -z "$debug" ]; then at_once 16 dm suspend b; else dm suspend b; fi
	at_once 32 set_to svc slots 4
	at_once 100 set_to svc nrs_enforce_credits 0
}

# Verifies that requests of a submitter that was throttled while its device was lost fail like all
# others, and do not pass.
lost_meanwhile() {
	local passed least
	# Slow enough that requests are queued at all times, whatever the cost of submission.
	hangs 8000000
	dm load a --table "0 $(sectors /dev/nb0) nrs /dev/mapper/lin 0 svc 2 on_timeout fail"
	dm resume a
	begin a --iodepth=32 --numjobs=4
	wait_for 20 '[ "$(counter a held)" -ge 100 ]' || fail "$(dm status a)"
	# A request that is about to be queued is counted as passed for a moment.
	least=$(counter a passed)
	for _ in 1 2 3 4; do
		passed=$(counter a passed)
		[ "$passed" -ge "$least" ] || least=$passed
	done
	set_to svc nrs_enforce_credits 1
	stands
	dm suspend --nolockfs --noflush lin
	passed=$(counter a passed)
	[ "$passed" -le "$least" ] || fail "$passed passed, $least before: $(dm status a)"
	wait_for 20 '[ "$(counter a held)" = 0 ]' || fail "$(dm status a)"
	sleep 2
	[ "$(counter a held)" = 0 ] || fail "$(dm status a)"
	dm resume lin
}

try 60 "suspends during writes" suspends
try 60 "a suspend ends a throttle" suspends_throttled
try 60 "credits throttle submitters" held_back
try 30 "throttled submitters continue when credits rise" credits_rise
long try 30 "requests of throttled submitters fail with their device" lost_meanwhile
debug_long try 60 "suspends without flush" suspends --noflush
debug_long try 60 "new tables under load" reload
debug_long try 20 "the shown table creates the same device" table_again
debug_long try 30 "remove is refused under load" remove_busy
debug_long try 60 "forced removal under load" remove_force
try 60 "an interrupted suspend is undone" undo
debug_long try 30 "two targets in a table, with flushes" two_targets
debug_long try 30 "discard and zeroing" other_operations
summary
