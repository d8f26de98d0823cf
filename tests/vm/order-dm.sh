#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# nrs_pop=overlap: requests to a range keep their order if one of them writes, whatever the policy, the users, the CPUs and
# the priorities, and whatever happens meanwhile. nrs-test overlap (scripts/build-tools.sh) submits and checks.
. /tests/nrs.sh

storm=/tmp/storm.txt
policies=(fifo crrn orr trr 'tbf opcode' delay 'fairshare uid_fair' qbm)
[ -n "${NRS_LONG:-}" ] || policies=(fifo 'tbf opcode' 'fairshare uid_fair')

# setup LEVEL [NANOSECONDS [CPTS]]: a disk that remembers, few slots.
setup() {
	# What the check before wrote is not what this one waits for.
	rm -f $storm
	module
	slow_lower nb0 "${2:-300000}" memory_backed=1
	if [ -n "${3:-}" ]; then
		mkdir /sys/kernel/config/nrs/svc
		echo "$3" >/sys/kernel/config/nrs/svc/cpts
	fi
	client a /dev/nb0 svc
	# What waits must be seen by the scheduler.
	echo 1024 >/sys/block/nb0/queue/nr_requests
	echo 3 >"$(at svc slots)"
	echo "$1" >"$(at svc nrs_pop)"
	[ "$(cat "$(at svc nrs_pop)")" = "$1" ]
	set_to svc nrs_delay_min 0
	set_to svc nrs_delay_max 1
	set_to svc nrs_orr_quantum 16
	set_to svc nrs_tbf_rate 1000000
	set_to svc nrs_qbm_config 'by uid;group all capacity=100MB/s;default class=fair_share min=10MB/s'
}

# of NAME [FILE]: a number of a report of nrs-test overlap.
of() {
	awk -v n="$1:" '$1 == n { print $2; exit }' "${2:-$storm}"
}

# storm OPTION...: random reads and writes of four users, on all CPUs, in both priorities. Fails unless all is in order.
storm() {
	nrs-test overlap storm /dev/mapper/a --users 0,1001,1002,1003 --hop --high 5 "$@" >$storm 2>&1 || fail "status $?: $(tr '\n' ' ' <$storm)"
}

# disorder OPTION...: the same, which must find that it is not in order; nothing may have failed.
disorder() {
	local status=0
	nrs-test overlap storm /dev/mapper/a --users 0,1001,1002,1003 --hop --high 5 "$@" >$storm 2>&1 || status=$?
	[ "$status" = 1 ] && [ "$(of failed)" = 0 ] && [ "$(of read_torn)$(of left_torn)" = 00 ] || fail "status $status: $(tr '\n' ' ' <$storm)"
}

# idle: nothing is left in the service.
idle() {
	wait_for 10 '[ "$(counter a held)" = 0 ] && [ $(($(counter a passed) + $(counter a queued))) = "$(counter a ended)" ]' || fail "$(status a)"
	grep -q 'active: 0, overflow' "$(at svc clients)" || fail "$(cat "$(at svc clients)")"
}

count=$(slow "$(brief 400 1500)" 120)

# Few requests that overlap are enough for delay: each waits for those before it for up to a second.
how=()
for_policy() {
	how=(--count "$count")
	[ "$1" != delay ] || how=(--count $((count / 6)) --region 2048 --largest 4)
}

every_policy() {
	setup overlap 300000 "$@"
	local policy
	for policy in "${policies[@]}"; do
		policy svc "$policy"
		for_policy "$policy"
		[ "$policy" != delay ] || set_to svc nrs_delay_pct 30
		storm "${how[@]}"
		say "$policy: $(of requests) requests, $(of regular_mean_us) us, overtaken $(of overtaken)"
	done
	idle
	[ "$(counter a queued)" -gt $((${#policies[@]} * count * 3 / 8)) ] || fail "hardly anything waited: $(status a)"
}

# The same without order is out of order, so that the test above means something.
without() {
	setup none
	policy svc 'fairshare uid_fair'
	disorder --count "$count"
	say "$(of wrong_reads) wrong reads"
	idle
}

# Two devices on one target: what goes through one is in order with what goes through the other.
two_devices() {
	setup overlap
	client b /dev/nb0 svc nid 10.0.0.2@tcp
	local policy
	for policy in crrn 'fairshare nid_fair' orr; do
		policy svc "$policy"
		storm --count "$count" /dev/mapper/b
	done
	# Without order it is not.
	policy svc 'fairshare nid_fair'
	echo none >"$(at svc nrs_pop)"
	disorder --count "$count" /dev/mapper/b
	idle
}

# Reads do not wait for each other, nor do requests to different ranges.
independent() {
	setup overlap 2000000
	echo 32 >"$(at svc slots)"
	nrs-test overlap storm /dev/mapper/a --writes 0 --count 600 --depth 32 --region 64 >$storm || fail "$(tr '\n' ' ' <$storm)"
	[ "$(counter a queued)" -le 200 ] || fail "reads wait: $(status a)"
}

# single: no requests are merged, so that those which have been handed in can be counted.
single() {
	echo 2 >/sys/block/nb0/queue/nomerges
}

# A request of high priority overlaps the last one of a queue: it and what it depends on go first, the rest waits.
promoted() {
	setup overlap 4000000
	single
	policy svc "$1"
	local links=$2 depth status
	depth=$(slow 200 80)
	nrs-test overlap probe /dev/mapper/a --depth "$depth" --chain "$links" --rounds "$(slow 4 1)" >$storm || fail "status $?: $(tr '\n' ' ' <$storm)"
	say "$1, $links links: done before it $(awk '$1 == "before:" { printf "%s ", $2 }' $storm)"
	# Others go on beside it while a busy host lets it wait, though not each time.
	awk -v k="$links" -v most=$((depth / 2)) '$1 == "before:" { if (!n++ || $2 < least) least = $2; if ($2 > most) bad++ }
		$1 == "links_before:" && $2 != k { bad++ } END { exit !n || bad || least > 10 * k + 20 }' $storm ||
		fail "$(tr '\n' ' ' <$storm)"
	status=0
	echo none >"$(at svc nrs_pop)"
	nrs-test overlap probe /dev/mapper/a --depth "$depth" --chain "$links" >$storm || status=$?
	[ "$status" = 1 ] || fail "without order it should not wait for what it overlaps: $(tr '\n' ' ' <$storm)"
	idle
}

# promoted_limited LINKS [--reads]: what a rule holds back in the regular head is let go when something of the other one depends
# on it, and no more than that. Reads do not depend on each other.
promoted_limited() {
	local links=$1
	shift
	setup overlap
	single
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'reg start r uid={0} rate=1'
	nrs-test overlap probe /dev/mapper/a --depth 60 --chain 4 "$@" >$storm 2>&1 &
	wait_for 5 "grep -q before: $storm" || fail "it waits: $(status a)"
	[ "$(of links_before)" = "$links" ] && [ "$(of before)" -le 15 ] || fail "$(tr '\n' ' ' <$storm)"
	[ "$(counter a held)" -ge 40 ] || fail "the rest does not wait: $(status a)"
	policy svc fifo
	wait $! || fail "status $?: $(tr '\n' ' ' <$storm)"
	idle
}

# meanwhile FUNCTION LEAST [BACKLOG]: a storm for some seconds, and as soon as so many requests wait, FUNCTION ROUND again and again,
# at least so often; the status of the storm is in $status.
meanwhile() {
	local writer round=0
	nrs-test overlap storm /dev/mapper/a --users 0,1001,1002 --high 5 --count 1000000 --seconds "$(slow 5 16)" --depth 128 >$storm 2>&1 &
	writer=$! status=0
	[ -z "${3:-}" ] || saturated "$3" a
	while kill -0 $writer 2>/dev/null; do
		round=$((round + 1))
		"$1" $round
	done
	wait $writer || status=$?
	say "$round rounds, $(of requests) requests, $(of wrong_reads) wrong reads"
	[ $round -ge "$2" ] || fail "only $round rounds"
}

# nothing_lost: whatever the order was.
nothing_lost() {
	[ "$status" -le 1 ] && [ "$(of failed)" = 0 ] && [ "$(of read_torn)$(of left_torn)" = 00 ] || fail "status $status: $(tr '\n' ' ' <$storm)"
	idle
}

# Draining, and other policies, while requests wait for others: they go down at once, in order.
another_policy() {
	[ $(($1 % 3)) != 0 ] || drain a
	policy svc "${policies[$1 % ${#policies[@]}]}"
}

drained() {
	setup overlap 2000000
	meanwhile another_policy "$(slow 4 2)" "$(slow 40 4)"
	[ $status = 0 ] || fail "status $status: $(tr '\n' ' ' <$storm)"
	idle
}

# Suspending and other tables. What comes while a device is suspended is kept by device-mapper and overtaken by what comes right
# afterwards, so there is no order to look at; nothing is lost or torn.
another_table() {
	case $(($1 % 3)) in
	0) dm suspend a ;;
	1) dm suspend --noflush --nolockfs a ;;
	2) dm load a --table "0 $(sectors /dev/nb0) nrs /dev/nb0 0 svc 2 nid 10.0.0.$(($1 % 200))@tcp" ;;
	esac
	dm resume a
}

tables() {
	setup overlap 2000000
	policy svc 'fairshare uid_fair'
	meanwhile another_table "$(slow 4 2)" "$(slow 40 4)"
	nothing_lost
	dm_remove a
}

# What waited before a device is suspended goes down in order.
suspended() {
	setup overlap
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'change default rate=1'
	nrs-test overlap probe /dev/mapper/a --depth 150 --chain 120 >$storm 2>&1 &
	local writer=$!
	# All of it is there: what comes while a device is suspended is device-mapper's to order.
	wait_for 30 "grep -q handed_in: $storm" || fail "$(status a)"
	saturated 120 a
	dm suspend a
	[ "$(counter a held)" = 0 ] || fail "$(status a)"
	dm resume a
	wait $writer || fail "status $?: $(tr '\n' ' ' <$storm)"
	[ "$(of overtaken)" = 0 ] || fail "$(tr '\n' ' ' <$storm)"
	idle
}

# The level changes under load: nothing is lost, and what comes after the change is in order.
another_level() {
	set_to svc nrs_pop overlap
	set_to svc nrs_pop none
	sleep 0.1
}

levels() {
	setup none 1000000
	policy svc 'fairshare uid_fair'
	meanwhile another_level "$(slow 5 3)"
	nothing_lost
	set_to svc nrs_pop overlap
	storm --count $((count / 2))
	idle
}

# A submitter that is killed while its requests wait for each other is gone when they are let go.
killed() {
	setup overlap
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'change default rate=1'
	nrs-test overlap probe /dev/mapper/a --depth 120 --chain 100 >$storm 2>&1 &
	local writer=$! start
	# What is still being handed in after the kill would wait again.
	wait_for 30 "grep -q handed_in: $storm" || fail "$(status a)"
	saturated 60 a
	kill -KILL $writer
	sleep 0.3
	kill -0 $writer 2>/dev/null || fail "its requests did not wait"
	start=$SECONDS
	case $1 in
	drain) drain a ;;
	fifo) policy svc fifo ;;
	none) set_to svc nrs_pop none && drain a ;;
	esac
	wait $writer || true
	[ $((SECONDS - start)) -le "$(slow 6 12)" ] || fail "took $((SECONDS - start)) s"
	idle
	policy svc fifo
	set_to svc nrs_pop overlap
	storm --count 100
	remove_client a
}

# There are fewer places in the order than requests: who finds none waits for one. A rule holds back what comes from all users but
# the one who prepares the device, until that is so, however slowly requests come.
few_places() {
	setup overlap
	set_to svc buffer_max 256
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'start others uid={1001 1002 1003} rate=1'
	storm --count $((600 + count)) --depth 600 --region 4096 --batch 64 &
	local writer=$! overflows
	wait_for 20 '[ "$(of overflows "$(at svc nrs_concurrency)")" -gt 0 ]' || fail "$(cat "$(at svc nrs_concurrency)")"
	overflows=$(of overflows "$(at svc nrs_concurrency)")
	policy svc 'fairshare uid_fair'
	wait $writer || fail "status $?: $(tr '\n' ' ' <$storm)"
	say "$(of requests) requests, $(of regular_mean_us) us, $overflows waited for a place when nothing went on"
	idle
	[ "$(of records "$(at svc nrs_concurrency)")" = 0 ] || fail "$(cat "$(at svc nrs_concurrency)")"
	# What is set meanwhile does not take it back.
	overflows=$(of overflows "$(at svc nrs_concurrency)")
	set_to svc at_min 6
	set_to svc nrs_crrn_quantum 7
	set_to svc buffer_max 512
	[ "$(of overflows "$(at svc nrs_concurrency)")" = "$overflows" ] || fail "$overflows before, $(cat "$(at svc nrs_concurrency)")"
}

try 120 "order under every policy" every_policy
[ -n "$debug" ] || long try 60 "order under every policy, on two partitions" every_policy 2
[ -n "$debug" ] || long try 60 "without it, requests overtake each other" without
[ -n "$debug" ] || dm_only long try 60 "two devices on one target" two_devices
[ -n "$debug" ] || long try 30 "what does not conflict does not wait" independent
try 60 "fifo: high priority takes along what it depends on" promoted fifo 3
long try 30 "high priority takes along what a rule holds back" promoted_limited 4
[ -n "$debug" ] || long try 30 "high priority takes along reads that a rule holds back" promoted_limited 1 --reads
long try 60 "drain and other policies while requests wait for others" drained
dm_only try 60 "suspend and reload while requests wait for others" tables
[ -n "$debug" ] || dm_only long try 30 "what waits for others when a device is suspended" suspended
long try 60 "the level changes under load" levels
for how in $(brief drain "$(slow 'drain fifo none' drain)"); do try 30 "a killed submitter whose requests wait for each other: $how" killed "$how"; done
long try 60 "more requests than places" few_places
remarks '^([a-z_ ]+(, [0-9]+ links)?: |[0-9]+ rounds|[0-9]+ requests)'
summary
