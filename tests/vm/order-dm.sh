#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# nrs_pop=overlap: requests to a range keep their order if one of them writes, under any policy,
# user, CPU and priority, and during any change. nrs-test overlap (scripts/build-tools.sh) submits
# and checks.
. /tests/nrs.sh

storm=/tmp/storm.txt
policies=(fifo crrn orr trr 'tbf opcode' delay 'fairshare uid_fair' qbm)
[ -n "${NRS_LONG:-}" ] || policies=(fifo 'tbf opcode' 'fairshare uid_fair')

# setup LEVEL [NANOSECONDS [CPTS]]: Creates a disk that stores data, with few slots.
setup() {
	# Otherwise this check would read the report of the previous one.
	rm -f $storm
	module
	slow_lower nb0 "${2:-300000}" memory_backed=1
	if [ -n "${3:-}" ]; then
		mkdir /sys/kernel/config/nrs/svc
		echo "$3" >/sys/kernel/config/nrs/svc/cpts
	fi
	client a /dev/nb0 svc
	# All queued requests must be visible to the scheduler.
	echo 1024 >/sys/block/nb0/queue/nr_requests
	echo 3 >"$(at svc slots)"
	echo "$1" >"$(at svc nrs_pop)"
	[ "$(cat "$(at svc nrs_pop)")" = "$1" ]
	set_to svc nrs_delay_min 0
	set_to svc nrs_delay_max 1
	set_to svc nrs_orr_quantum 16
	set_to svc nrs_tbf_rate 1000000
	set_to svc nrs_qbm_config \
		'by uid;group all capacity=100MB/s;default class=fair_share min=10MB/s'
}

# of NAME [FILE]: Prints a number of a report of nrs-test overlap.
of() {
	awk -v n="$1:" '$1 == n { print $2; exit }' "${2:-$storm}"
}

# storm OPTION...: Runs random reads and writes of four users, on all CPUs, in both priorities.
# Fails unless all requests are in order.
storm() {
	nrs-test overlap storm /dev/mapper/a --users 0,1001,1002,1003 --hop --high 5 \
		"$@" >$storm 2>&1 || fail "status $?: $(tr '\n' ' ' <$storm)"
}

# disorder OPTION...: Runs the same load, which must detect disorder; no request may fail.
disorder() {
	local status=0
	nrs-test overlap storm /dev/mapper/a --users 0,1001,1002,1003 --hop --high 5 \
		"$@" >$storm 2>&1 || status=$?
	[ "$status" = 1 ] && [ "$(of failed)" = 0 ] && [ "$(of read_torn)$(of left_torn)" = 00 ] ||
		fail "status $status: $(tr '\n' ' ' <$storm)"
}

# idle: Verifies that no request is left in the service.
idle() {
	wait_for 10 '[ "$(counter a held)" = 0 ] &&
		[ $(($(counter a passed) + $(counter a queued))) = "$(counter a ended)" ]' ||
		fail "$(status a)"
	grep -q 'active: 0, overflow' "$(at svc clients)" || fail "$(cat "$(at svc clients)")"
}

count=$(slow "$(brief 400 1500)" 120)

# Few overlapping requests for delay: each waits for the earlier ones for up to a second.
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
	[ "$(counter a queued)" -gt $((${#policies[@]} * count * 3 / 8)) ] ||
		fail "few requests were queued: $(status a)"
}

# Verifies that the requests are out of order without nrs_pop, so that the check above is
# meaningful.
without() {
	setup none
	policy svc 'fairshare uid_fair'
	disorder --count "$count"
	say "$(of wrong_reads) wrong reads"
	idle
}

# Verifies the order of two devices on one target: requests of one device are ordered with those of
# the other.
two_devices() {
	setup overlap
	client b /dev/nb0 svc nid 10.0.0.2@tcp
	local policy
	for policy in crrn 'fairshare nid_fair' orr; do
		policy svc "$policy"
		storm --count "$count" /dev/mapper/b
	done
	# Without nrs_pop they are not.
	policy svc 'fairshare nid_fair'
	echo none >"$(at svc nrs_pop)"
	disorder --count "$count" /dev/mapper/b
	idle
}

# Verifies that reads do not wait for each other, and that requests to different ranges do not
# either.
independent() {
	setup overlap 2000000
	echo 32 >"$(at svc slots)"
	nrs-test overlap storm /dev/mapper/a --writes 0 --count 600 --depth 32 --region 64 >$storm ||
		fail "$(tr '\n' ' ' <$storm)"
	[ "$(counter a queued)" -le 200 ] || fail "reads wait: $(status a)"
}

# single: Disables merging, so that submitted requests can be counted.
single() {
	echo 2 >/sys/block/nb0/queue/nomerges
}

# Verifies a high-priority request that overlaps the last request of a queue: it and its
# dependencies are dispatched first, and the rest stays queued.
promoted() {
	setup overlap 4000000
	single
	policy svc "$1"
	local links=$2 depth status
	depth=$(slow 200 80)
	nrs-test overlap probe /dev/mapper/a --depth "$depth" --chain "$links" \
		--rounds "$(slow 4 1)" >$storm || fail "status $?: $(tr '\n' ' ' <$storm)"
	say "$1, $links links: done before it $(awk '$1 == "before:" { printf "%s ", $2 }' $storm)"
	# On a busy host other requests are dispatched meanwhile, but not in each round.
	awk -v k="$links" -v most=$((depth / 2)) '
		$1 == "before:" { if (!n++ || $2 < least) least = $2; if ($2 > most) bad++ }
		$1 == "links_before:" && $2 != k { bad++ }
		END { exit !n || bad || least > 10 * k + 20 }
	' $storm ||
		fail "$(tr '\n' ' ' <$storm)"
	status=0
	echo none >"$(at svc nrs_pop)"
	nrs-test overlap probe /dev/mapper/a --depth "$depth" --chain "$links" >$storm || status=$?
	[ "$status" = 1 ] ||
		fail "without order it should not wait for what it overlaps: $(tr '\n' ' ' <$storm)"
	idle
}

# promoted_limited LINKS [--reads]: Verifies that throttled requests of the regular head are
# dispatched when a request of the other head depends on them, and no others. Reads do not depend on
# each other.
promoted_limited() {
	local links=$1
	shift
	setup overlap
	single
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'reg start r uid={0} rate=1'
	nrs-test overlap probe /dev/mapper/a --depth 60 --chain 4 "$@" >$storm 2>&1 &
	wait_for 5 "grep -q before: $storm" || fail "it waits: $(status a)"
	[ "$(of links_before)" = "$links" ] && [ "$(of before)" -le 15 ] ||
		fail "$(tr '\n' ' ' <$storm)"
	[ "$(counter a held)" -ge 40 ] || fail "the rest does not wait: $(status a)"
	policy svc fifo
	wait $! || fail "status $?: $(tr '\n' ' ' <$storm)"
	idle
}

# meanwhile FUNCTION LEAST [BACKLOG]: Runs a storm for some seconds; once BACKLOG requests are
# queued, calls FUNCTION ROUND repeatedly, at least LEAST times. Sets $status to the status of the
# storm.
meanwhile() {
	local writer round=0
	nrs-test overlap storm /dev/mapper/a --users 0,1001,1002 --high 5 --count 1000000 \
		--seconds "$(slow 5 16)" --depth 128 >$storm 2>&1 &
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

# nothing_lost: Verifies that no request is lost, in any order.
nothing_lost() {
	[ "$status" -le 1 ] && [ "$(of failed)" = 0 ] && [ "$(of read_torn)$(of left_torn)" = 00 ] ||
		fail "status $status: $(tr '\n' ' ' <$storm)"
	idle
}

# Changes policies, or drains, while requests wait for others: these are dispatched at once, in
# order.
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

# Suspends, and changes tables. device-mapper holds requests that arrive while a device is
# suspended, and later requests overtake them, so the order is not checked; no request may be lost
# or torn.
another_table() {
	case $(($1 % 3)) in
	0) dm suspend a ;;
	1) dm suspend --noflush --nolockfs a ;;
	2)
		dm load a --table "0 $(sectors /dev/nb0) nrs /dev/nb0 0 svc 2 nid 10.0.0.$(($1 % 200))@tcp"
		;;
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

# Verifies that requests queued before a suspend are dispatched in order.
suspended() {
	setup overlap
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'change default rate=1'
	nrs-test overlap probe /dev/mapper/a --depth 150 --chain 120 >$storm 2>&1 &
	local writer=$!
	# All requests are queued before the suspend: device-mapper orders those that arrive during it.
	wait_for 30 "grep -q handed_in: $storm" || fail "$(status a)"
	saturated 120 a
	dm suspend a
	[ "$(counter a held)" = 0 ] || fail "$(status a)"
	dm resume a
	wait $writer || fail "status $?: $(tr '\n' ' ' <$storm)"
	[ "$(of overtaken)" = 0 ] || fail "$(tr '\n' ' ' <$storm)"
	idle
}

# Changes the level under load: no request is lost, and later requests are in order.
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

# Verifies that a killed submitter exits when its requests, which wait for each other, are
# dispatched.
killed() {
	setup overlap
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'change default rate=1'
	nrs-test overlap probe /dev/mapper/a --depth 120 --chain 100 >$storm 2>&1 &
	local writer=$! start
	# Requests submitted after the kill would be queued again.
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

# Verifies fewer order records than requests: a request without a record waits for one. A rule
# throttles all users except the one who prepares the device, until this happens, even if requests
# arrive slowly.
few_places() {
	setup overlap
	set_to svc buffer_max 256
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'start others uid={1001 1002 1003} rate=1'
	storm --count $((600 + count)) --depth 600 --region 4096 --batch 64 &
	local writer=$! overflows
	wait_for 20 '[ "$(of overflows "$(at svc nrs_concurrency)")" -gt 0 ]' ||
		fail "$(cat "$(at svc nrs_concurrency)")"
	overflows=$(of overflows "$(at svc nrs_concurrency)")
	policy svc 'fairshare uid_fair'
	wait $writer || fail "status $?: $(tr '\n' ' ' <$storm)"
	say "$(of requests) requests, $(of regular_mean_us) us," \
		"$overflows waited for an order record without progress"
	idle
	[ "$(of records "$(at svc nrs_concurrency)")" = 0 ] || fail "$(cat "$(at svc nrs_concurrency)")"
	# Settings do not reset the counter.
	overflows=$(of overflows "$(at svc nrs_concurrency)")
	set_to svc at_min 6
	set_to svc nrs_crrn_quantum 7
	set_to svc buffer_max 512
	[ "$(of overflows "$(at svc nrs_concurrency)")" = "$overflows" ] ||
		fail "$overflows before, $(cat "$(at svc nrs_concurrency)")"
}

try 120 "order under every policy" every_policy
[ -n "$debug" ] || long try 60 "order under every policy, on two partitions" every_policy 2
[ -n "$debug" ] || long try 60 "without it, requests overtake each other" without
[ -n "$debug" ] || dm_only long try 60 "two devices on one target" two_devices
[ -n "$debug" ] || long try 30 "requests without a conflict do not wait" independent
try 60 "fifo: dependencies of a high-priority request are promoted" promoted fifo 3
long try 30 "throttled dependencies of a high-priority request are promoted" promoted_limited 4
[ -n "$debug" ] ||
	long try 30 "throttled reads that a high-priority request depends on are promoted" \
		promoted_limited 1 --reads
long try 60 "drain and other policies while requests wait for others" drained
dm_only try 60 "suspend and reload while requests wait for others" tables
[ -n "$debug" ] ||
	dm_only long try 30 "requests that wait for others when a device is suspended" suspended
long try 60 "the level changes under load" levels
for how in $(brief drain "$(slow 'drain fifo none' drain)"); do
	try 30 "a killed submitter whose requests wait for each other: $how" killed "$how"
done
long try 60 "more requests than order records" few_places
remarks '^([a-z_ ]+(, [0-9]+ links)?: |[0-9]+ rounds|[0-9]+ requests)'
summary
