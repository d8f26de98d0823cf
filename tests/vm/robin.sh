#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Round robin: crrn over clients, trr over targets, orr over objects in the order of offsets. The
# disk completes each request after 4 ms, so the disk limits the throughput, and the policy decides
# shares and order.
. /tests/nrs.sh

# three POLICY [QUANTUM]: Creates clients a, b and c with different addresses on one disk; a has
# eight times as many requests queued as the others.
three() {
	module
	slow_lower nb0 4000000 size=1024
	client a /dev/nb0 svc nid 10.0.0.1@tcp
	client b /dev/nb0 svc nid 10.0.0.2@tcp
	client c /dev/nb0 svc nid 10.0.0.3@o2ib
	echo 8 >"$(at svc slots)"
	[ -z "${2:-}" ] || set_to svc nrs_crrn_quantum "$2"
	policy svc "$1"
	begin a --numjobs=8 --iodepth=48
	begin b --iodepth=48
	begin c --iodepth=48 --rw=randwrite
	saturated 30 a b c
	gather 0.5 ended
}

# Verifies that each client gets the same number of requests per round, at any queue depth.
crrn() {
	three crrn 8
	gather 3 ended
	within 8 "${got[0]}" "${got[1]}" && within 8 "${got[1]}" "${got[2]}" || fail "${got[*]}"
}

# Verifies that a returning client gets only its share, and that no share is reserved for it
# meanwhile.
away() {
	three crrn
	dm suspend --nolockfs c
	# A suspend dispatches all clients' queued requests, eight times as many of a: until these are
	# done, the disk decides the order.
	wait_for 10 "awk '{ exit !(\$1 + \$2 <= 8) }' /sys/block/nb0/inflight" ||
		fail "at the disk: $(cat /sys/block/nb0/inflight)"
	gather 2 ended
	[ "${got[2]}" = 0 ] && within 8 "${got[0]}" "${got[1]}" || fail "without c: ${got[*]}"
	local two=$((got[0] + got[1]))
	dm resume c
	saturated c
	gather 2 ended
	within 8 "${got[0]}" "${got[1]}" && within 10 "${got[1]}" "${got[2]}" ||
		fail "with c: ${got[*]}"
	within 8 "$two" $((got[0] + got[1] + got[2]))
}

# Verifies that two clients of one target together get as much as the client of the other target.
trr() {
	module
	slow_lower nb0 8000000 size=1024
	slow_lower nb1 8000000 size=1024
	sharer a /dev/nb0 svc
	sharer b /dev/nb0 svc
	sharer c /dev/nb1 svc
	echo 8 >"$(at svc slots)"
	begin a --numjobs=4 --iodepth=48
	begin b --iodepth=48
	begin c --numjobs=2 --iodepth=48
	saturated a b c
	set_to svc nrs_trr_quantum 8
	policy svc trr
	gather 1 ended
	gather 3 ended
	within 10 $((got[0] + got[1])) "${got[2]}" || fail "trr: ${got[*]}"
	# Within a target requests are ordered by offset, so its clients get shares by queue depth.
	more 1.5 "${got[0]}" "${got[1]}" || fail "trr: ${got[*]}"
	set_to svc nrs_trr_quantum 'reg_quantum:1'
	gather 1 ended
	gather 3 ended
	within 10 $((got[0] + got[1])) "${got[2]}" || fail "trr, quantum 1: ${got[*]}"
}

# ascending SECONDS: Sets $ascending to the percentage of requests that reach the disk at a higher
# offset than the previous request.
ascending() {
	local dir=/sys/kernel/debug/tracing number
	number=$(tr : , </sys/block/nb0/dev)
	echo 4096 >$dir/buffer_size_kb
	echo >$dir/trace
	echo 1 >$dir/events/block/block_rq_issue/enable
	sleep "$1"
	echo 0 >$dir/events/block/block_rq_issue/enable
	# The number before "+" is the first sector.
	ascending=$(awk -v d="$number" '
		{
			for (i = 1; i < NF; i++) if ($i == "block_rq_issue:" && $(i + 1) == d) {
				for (j = i; j <= NF; j++) if ($j == "+") {
					at = $(j - 1) + 0
					if (n++ && at > last) up++
					last = at
				}
			}
		}
		END { print (n > 200 ? int(100 * up / (n - 1)) : -1) }
	' $dir/trace)
	echo >$dir/trace
	say "$ascending of 100 requests have a higher offset than the one before"
	[ "$ascending" -ge 0 ] || fail "few requests in the trace"
}

# Verifies four jobs with 64 random requests each: batches of 64 are dispatched in the order of
# their offsets, only for the operations in nrs_orr_supported.
orr() {
	module
	slow_lower nb0 4000000 size=1024
	client a /dev/nb0 svc
	# A single user may have half of the tags.
	[ "$front" = dm ] || echo 1024 >/sys/block/nb0/queue/nr_requests
	echo 4 >"$(at svc slots)"
	set_to svc "nrs_orr_quantum" 64
	begin a --numjobs=4 --iodepth=64
	saturated 200 a
	ascending 2
	[ "$ascending" -ge 40 ] && [ "$ascending" -le 60 ] || fail "fifo: $ascending"
	policy svc orr
	gather 0.5 ended
	ascending 2
	[ "$ascending" -ge 93 ] || fail "orr: $ascending"
	# Smaller batches end more often.
	set_to svc "nrs_orr_quantum" 'reg_quantum:8'
	gather 0.5 ended
	ascending 2
	[ "$ascending" -ge 78 ] && [ "$ascending" -le 93 ] || fail "orr, batches of 8: $ascending"
	set_to svc "nrs_orr_quantum" 64
	set_to svc "nrs_orr_supported" writes
	gather 0.5 ended
	ascending 2
	[ "$ascending" -le 60 ] || fail "orr, only writes: $ascending"
}

# grouped CGROUP DEVICE [OPTION...]: Starts a load in that cgroup.
grouped() {
	local group=/sys/fs/cgroup/test.$1
	shift
	mkdir -p "$group"
	(
		echo $BASHPID >"$group/cgroup.procs"
		begin "$@"
	)
}

# Verifies that streams of one object take turns at any queue depth: those of write hints, and those
# of cgroups, also for reads.
hints() {
	local name
	module
	slow_lower nb0 4000000 size=1024
	sharer a /dev/nb0 svc
	sharer b /dev/nb0 svc
	echo 8 >"$(at svc slots)"
	set_to svc nrs_orr_supported reads_and_writes
	set_to svc nrs_orr_quantum 8
	policy svc orr
	begin a --rw=randwrite --write_hint=short --iodepth=48
	begin b --rw=randwrite --write_hint=extreme --iodepth=48 --numjobs=4
	saturated 30 a b
	gather 0.5 ended
	gather 3 ended
	within 10 "${got[0]}" "${got[1]}" || fail "hints: ${got[*]}"
	killall fio
	wait_for 20 '! pidof fio >/dev/null' || fail "fio is still active"
	# Equal hints are one stream.
	begin a --rw=randwrite --write_hint=short --iodepth=48
	begin b --rw=randwrite --write_hint=short --iodepth=48 --numjobs=4
	saturated 30 a b
	gather 0.5 ended
	gather 3 ended
	[ "${got[1]}" -gt $((got[0] * 2)) ] || fail "one hint: ${got[*]}"
	killall fio
	wait_for 20 '! pidof fio >/dev/null' || fail "fio is still active"
	for name in c d; do sharer $name /dev/nb0 svc stream cgroup; done
	grouped one c --iodepth=48
	grouped two d --iodepth=48 --numjobs=4
	saturated 30 c d
	gather 0.5 ended
	gather 3 ended
	within 10 "${got[2]}" "${got[3]}" || fail "cgroups: ${got[*]}"
}

# Verifies that write hints pass through a device of type nrs: the disk below it tells streams
# apart.
hints_below() {
	module
	slow_lower nb0 4000000 size=1024
	scheduled nb0 low
	echo 1024 >/sys/block/nb0/queue/nr_requests
	echo 8 >"$(at low slots)"
	set_to low nrs_orr_supported reads_and_writes
	set_to low nrs_orr_quantum 8
	policy low orr
	client a /dev/nb0 svc
	client b /dev/nb0 svc
	echo 1024 >"$(at svc slots)"
	begin a --rw=randwrite --write_hint=short --iodepth=48
	begin b --rw=randwrite --write_hint=extreme --iodepth=48 --numjobs=4
	wait_for 30 "grep -q ' held: 2' $(at low clients)" || fail "$(cat "$(at low clients)")"
	gather 0.5 ended
	gather 3 ended
	within 10 "${got[0]}" "${got[1]}" || fail "${got[*]}"
}

dm_only try 30 "crrn: clients get equal shares at any queue depth" crrn
dm_only long try 40 "crrn: a client that returns" away
long try 60 "trr: targets get equal shares at any queue depth" trr
try 60 "orr: batches in the order of offsets" orr
remarks '^(ended|[0-9-]+ of)'
long try 60 "orr: streams of write hints and of cgroups" hints
dm_only try 60 "write hints reach the disk below" hints_below
summary
