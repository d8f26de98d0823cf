#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Round robin: crrn over clients, trr over targets, orr over objects with offsets in order. The disk completes each request
# after 4 ms, so it decides how much is done, and the policy for whom and in which order.
. /tests/nrs.sh

# three POLICY [QUANTUM]: clients a, b and c with addresses of their own on one disk; a has eight times as much waiting as
# each other.
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

# Each gets as many requests per round, however many it has waiting.
crrn() {
	three crrn 8
	gather 3 ended
	within 8 "${got[0]}" "${got[1]}" && within 8 "${got[1]}" "${got[2]}" || fail "${got[*]}"
}

# A smaller quantum is that of the batches that begin from then on; the instance stays.
crrn_changes() {
	local quantum round
	three crrn 8
	for quantum in 'reg_quantum:4 hp_quantum:99' 1; do
		set_to svc nrs_crrn_quantum "$quantum"
		# What is queued has its batches.
		gather 1.5 ended
		gather 3 ended
		within 8 "${got[0]}" "${got[1]}" && within 8 "${got[1]}" "${got[2]}" || fail "quantum $quantum: ${got[*]}"
	done
	# More changes than there may be instances, none of which drains.
	for ((round = 1; round <= 20; round++)); do
		echo "$round" >"$(at svc nrs_crrn_quantum)"
	done
	! grep -q 'state: stopping' "$(at svc nrs_policies)" || fail "$(cat "$(at svc nrs_policies)")"
	awk '/name: crrn/ { on = 1 } on && /queued:/ { exit !($2 >= 100) }' "$(at svc nrs_policies)" || fail "$(cat "$(at svc nrs_policies)")"
}

# A client that has been away gets no more than its part when it comes back, and none is kept for it meanwhile.
away() {
	three crrn
	dm suspend --nolockfs c
	# A suspend sends down what all clients have queued, eight times as much of a: until that is done the disk decides.
	wait_for 10 "awk '{ exit !(\$1 + \$2 <= 8) }' /sys/block/nb0/inflight" || fail "at the disk: $(cat /sys/block/nb0/inflight)"
	gather 2 ended
	[ "${got[2]}" = 0 ] && within 8 "${got[0]}" "${got[1]}" || fail "without c: ${got[*]}"
	local two=$((got[0] + got[1]))
	dm resume c
	saturated c
	gather 2 ended
	within 8 "${got[0]}" "${got[1]}" && within 10 "${got[1]}" "${got[2]}" || fail "with c: ${got[*]}"
	within 8 "$two" $((got[0] + got[1] + got[2]))
}

# The high-priority head goes round for itself.
crrn_high() {
	three crrn
	set_to svc nrs_crrn_quantum 'hp_quantum:2'
	begin a --prioclass=1 --prio=0 --numjobs=4 --iodepth=48
	begin b --prioclass=1 --prio=0 --iodepth=48
	wait_for 20 "awk '/^high/ { high = 1 } high && /name: crrn/ { on = 1 } on && /queued:/ { exit !(\$2 >= 200) }' '$(at svc nrs_policies)'" ||
		fail "$(cat "$(at svc nrs_policies)")"
	# Regular ones get one of eleven; of the rest each of the two gets half.
	gather 3 ended
	within 20 "${got[0]}" "${got[1]}" && more 8 "${got[0]}" "${got[2]}" || fail "${got[*]}"
}

# Two clients of one target get together what the one of the other target gets.
trr() {
	module
	slow_lower nb0 4000000 size=1024
	slow_lower nb1 4000000 size=1024
	client a /dev/nb0 svc
	client b /dev/nb0 svc
	client c /dev/nb1 svc
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
	# Within a target in the order of offsets, so each of its clients by what it has waiting.
	more 1.5 "${got[0]}" "${got[1]}" || fail "trr: ${got[*]}"
	set_to svc nrs_trr_quantum 'reg_quantum:1'
	gather 1 ended
	gather 3 ended
	within 10 $((got[0] + got[1])) "${got[2]}" || fail "trr, quantum 1: ${got[*]}"
}

# ascending SECONDS: of hundred requests, how many reach the disk with a higher offset than the one before, in $ascending.
ascending() {
	local dir=/sys/kernel/debug/tracing number
	number=$(tr : , </sys/block/nb0/dev)
	echo 4096 >$dir/buffer_size_kb
	echo >$dir/trace
	echo 1 >$dir/events/block/block_rq_issue/enable
	sleep "$1"
	echo 0 >$dir/events/block/block_rq_issue/enable
	# What stands before "+" is the first sector.
	ascending=$(awk -v d="$number" '{ for (i = 1; i < NF; i++) if ($i == "block_rq_issue:" && $(i + 1) == d) {
			for (j = i; j <= NF; j++) if ($j == "+") { at = $(j - 1) + 0; if (n++ && at > last) up++; last = at }
		} } END { print (n > 200 ? int(100 * up / (n - 1)) : -1) }' $dir/trace)
	echo >$dir/trace
	say "$ascending of 100 requests have a higher offset than the one before"
	[ "$ascending" -ge 0 ] || fail "hardly any requests in the trace"
}

# Four jobs with 64 random requests each: batches of 64 go down in the order of their offsets, of those operations only that
# nrs_orr_supported names.
orr() {
	module
	slow_lower nb0 4000000 size=1024
	client a /dev/nb0 svc
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
	# With smaller batches there are more ends of batches.
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

orr_writes() {
	module
	slow_lower nb0 4000000 size=1024
	client a /dev/nb0 svc
	echo 4 >"$(at svc slots)"
	set_to svc nrs_orr_quantum 64
	policy svc orr
	begin a --numjobs=4 --iodepth=64 --rw=randwrite
	saturated 200 a
	ascending 2
	[ "$ascending" -le 60 ] || fail "not supported: $ascending"
	set_to svc nrs_orr_supported reg_supported:reads_and_writes
	set_to svc nrs_orr_offset_type logical
	gather 0.5 ended
	ascending 2
	[ "$ascending" -ge 93 ] || fail "supported: $ascending"
}

# What orr does not take is served by fifo, beside it.
declined() {
	module
	slow_lower nb0 4000000 size=1024
	client a /dev/nb0 svc
	client b /dev/nb0 svc
	echo 4 >"$(at svc slots)"
	policy svc orr
	begin a --numjobs=2 --iodepth=32
	begin b --rw=randwrite --iodepth=16
	saturated a b
	gather 2 ended
	[ "${got[0]}" -ge 100 ] && [ "${got[1]}" -ge 100 ] || fail "${got[*]}"
	awk '/name: fifo/ { on = 1 } on && /queued:/ { exit !($2 >= 4) }' "$(at svc nrs_policies)" || fail "$(cat "$(at svc nrs_policies)")"
}

try 30 "crrn: clients get the same, whatever waits" crrn
long try 30 "crrn: the quantum changes" crrn_changes
long try 40 "crrn: a client that was away" away
long try 40 "crrn: the high-priority head" crrn_high
long try 60 "trr: targets get the same, whatever waits" trr
try 60 "orr: batches in the order of offsets" orr
long try 40 "orr: writes, where they are supported" orr_writes
long try 40 "orr: what it does not take is served" declined
remarks '^(ended|[0-9-]+ of)'
summary
