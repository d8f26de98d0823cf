#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: tbf.sh [FUNCTION...]
#
# Rates. The disk completes each request after 4 ms and has free slots by default, so the rules
# limit the throughput: within 5 % in both directions, with a backlog and much idle CPU time.
. /tests/nrs.sh

only=$*

# setup COUNT [WORD...]: Creates COUNT devices, named from a, on one disk, and a service. The
# default rate is 20 requests per second.
setup() {
	local names=(a b c d e f) count=$1 name
	shift
	module
	slow_lower nb0 4000000 size=1024
	for name in "${names[@]:0:count}"; do sharer "$name" /dev/nb0 svc "$@"; done
	echo 8 >"$(at svc slots)"
	set_to svc nrs_tbf_rate 20
}

# rule WORD...: Writes a rule command.
rule() {
	set_to svc nrs_tbf_rule "$*"
}

# begin DEVICE UID GID [OPTION...]: Starts a load of that user that runs until the check ends, in
# the cgroup $group if set.
begin() {
	local name=$1 uid=$2 gid=$3
	shift 3
	(
		if [ -n "${group:-}" ]; then
			mkdir -p "/sys/fs/cgroup/$group"
			echo "$BASHPID" >"/sys/fs/cgroup/$group/cgroup.procs"
		fi
		fio() { setpriv --reuid "$uid" --regid "$gid" --clear-groups /bin/fio "$@"; }
		load "$name" --time_based --runtime=120 "$@" >/dev/null 2>&1
	) &
}

# is AMOUNT RATE [PERCENT]: Verifies that AMOUNT is RATE per second times $time us, within 5 % or
# PERCENT.
is() {
	awk -v p="${3:-5}" -v n="$1" -v want="$(($2 * time))" \
		'BEGIN { d = n - want / 1e6; exit !((d < 0 ? -d : d) * 1e8 <= p * want) }' ||
		fail "$1 in $((time / 1000)) ms, not $2 per second:" \
			"$(grep -v ', ref 0' "$(at svc nrs_tbf_rule)")"
}

# measure SECONDS COUNTER DEVICE=PER_SECOND...: Verifies the throughput of each device, within 5 %.
measure() {
	local pair i
	gather "$1" "$2"
	shift 2
	for pair; do
		printf -v i %d "'$pair"
		is "${got[i - 97]}" "${pair#*=}"
	done
}

# wait_backlogged DEVICE...: Waits until each device has a backlog and its saved tokens are used.
wait_backlogged() {
	saturated "$@"
	sleep 0.2
}

# rates SECONDS DEVICE=REQUESTS_PER_SECOND...: Verifies, as measure does, the rates of devices that
# are always backlogged.
rates() {
	local seconds=$1 names
	shift
	names=("${@%=*}")
	wait_backlogged "${names[@]}"
	measure "$seconds" ended "$@"
	for name in "${names[@]}"; do
		[ "$(counter "$name" held)" -ge 2 ] || fail "a backlog ended: $(status "$name")"
	done
}

# Verifies that each class has its own bucket, also under a shared rule; expressions; the default
# rule; and rates in bytes.
uid() {
	setup 5
	policy svc 'tbf uid+gid+opcode'
	rule start one 'uid={1001}' rate=20
	rule start two 'uid={1002 1003}' rate=40
	rule start three 'uid={9999},gid={101}&opcode={ost_read}' rate=200KiB/s
	rule start none 'gid={101}&opcode={ost_write},uid={1005}&gid={101}' rate=1
	rule change default rate=80
	begin a 1001 100
	begin b 1002 100
	begin c 1003 100
	begin d 1004 101
	begin e 1005 100
	rates 10 a=20 b=40 c=40 d=50 e=80
}

# Verifies rates in bytes for all sizes, also larger than the bucket; in pages; and in requests.
units() {
	setup 4
	policy svc 'tbf uid'
	rule start bytes 'uid={1001 1002}' rate=1MiB/s
	rule start plain 'uid={1003}' rate=320
	rule start iops 'uid={1004}' rate=20iops
	# Rules survive a restart with other parameters.
	set_to svc nrs_tbf_cost_model pages
	begin a 1001 100 --bs=64k
	begin b 1002 100 --bssplit=4k/50:64k/50
	begin c 1003 100 --bs=64k
	begin d 1004 100 --bs=64k
	wait_backlogged a b c d
	measure 10 bytes a=$((1 << 20)) b=$((1 << 20)) c=$((320 << 12)) d=$((20 << 16))
}

# Verifies that a rule in requests counts requests as they were submitted, whatever pieces the
# limits of the disk make of them.
sizes() {
	setup 4
	echo 127 >/sys/block/nb0/queue/max_sectors_kb
	# With huge pages, 4 MiB are one request.
	echo 16 >/proc/sys/vm/nr_hugepages
	policy svc 'tbf uid'
	rule change default rate=20
	begin a 1001 100
	begin b 1002 100 --bs=128k
	begin c 1003 100 --bs=1m
	begin d 1004 100 --bs=4m --iodepth=6 --iomem=mmaphuge
	wait_backlogged a b c d
	measure 10 bytes a=$((20 << 12)) b=$((20 << 17)) c=$((20 << 20)) d=$((20 << 22))
}

# Verifies jobs that are cgroups.
jobid() {
	setup 4 jobid_name %j
	policy svc 'tbf jobid'
	rule start any 'jobid={test-*}' rate=40
	rule start one 'jobid={test-one}' rate=20
	rule start end 'jobid={*.last t*-*x*}' rate=60
	group=test-one begin a 1001 100
	group=test-two begin b 1001 100
	group=test-3.last begin c 1001 100
	group=test-4ax1 begin d 1001 100
	rates 5 a=20 b=40 c=60 d=60
}

# Verifies cgroups by path, for any user: rates, then shares.
cgroups() {
	setup 3
	policy svc 'tbf cgroup'
	rule start one 'cgroup={/test-one}' rate=20
	rule change default rate=80
	group=test-one begin a 1001 100
	group=test-two begin b 1001 100
	group=test-3 begin c 1002 100
	rates 5 a=20 b=80 c=80
	echo 2 >"$(at svc slots)"
	set_to svc nrs_fairshare_weights 'cgroup:/test-one:2'
	policy svc 'fairshare cgroup_fair'
	wait_backlogged a b c
	gather 3 ended
	within 10 "${got[0]}" $((2 * got[1])) && within 10 "${got[1]}" "${got[2]}" || fail "${got[*]}"
}

# Verifies that a class spends what it has saved at the speed of the device, then gets its rate, and
# saves it again while it is idle.
burst() {
	setup 1
	policy svc 'tbf uid'
	rule start r 'uid={1001}' rate=20 burst=10s
	local round before start
	for round in 200 100; do
		before=$(counter a ended) start=${EPOCHREALTIME/./}
		begin a 1001 100
		wait_for 10 "[ \$((\$(counter a ended) - $before)) -ge $round ]" || fail "$(status)"
		start=$((${EPOCHREALTIME/./} - start))
		say "a burst of $round in $((start / 1000)) ms"
		[ $start -le 3000000 ] || fail "$round requests took $start us"
		saturated a
		gather 4 ended
		is "${got[0]}" 20
		# shellcheck disable=SC2046 # several processes
		kill -KILL $(pidof fio)
		wait_for 10 '[ "$(counter a held)" = 0 ]' || fail "$(status)"
		sleep 5
	done
}

# restarted TIMES: Moves a load of device a into a new cgroup at the same path that often, as a unit
# that restarts. Sets $ended to the requests that ended from the first start on, and $time.
restarted() {
	local i start=${EPOCHREALTIME/./} before unit=/sys/fs/cgroup/test.slice/unit.service
	before=$(counter a ended)
	for ((i = 0; i < $1; i++)); do
		group=test.slice/unit.service/worker begin a 1001 100 --iodepth=4
		saturated 2 a
		sleep 0.5
		echo 1 >$unit/cgroup.kill
		wait_for 10 "rmdir $unit/worker && rmdir $unit" || fail "a cgroup stays"
	done
	ended=$(($(counter a ended) - before)) time=$((${EPOCHREALTIME/./} - start))
}

# Verifies rules for cgroups that do not exist yet: a unit that restarts ten times keeps its rate
# and its tokens, also for what is below it; each unit that a pattern matches has its own rate, and
# a slice has one for all that is below it.
restarts() {
	setup 4
	mkdir -p /sys/fs/cgroup/{test.slice,test-two.slice}
	policy svc 'tbf cgroup'
	rule start any 'cgroup={/test.slice/*}' rate=40
	rule start one 'cgroup={/test.slice/unit.service}' rate=20 rank=any
	rule start slice 'cgroup={/test-two.slice}' rate=60
	rule change default rate=1000
	local ended
	restarted 10
	say "$ended requests in $((time / 1000)) ms of a unit that restarts at 20/s"
	# The unit is idle while it restarts.
	[ "$ended" -ge 50 ] && [ "$ended" -le $((20 * time / 1000000 + 6)) ] ||
		fail "$ended: $(cat "$(at svc nrs_tbf_stats)")"
	group=test.slice/unit.service/x begin a 1001 100
	group=test.slice/other.service begin b 1001 100
	group=test.slice/third.service/x begin c 1002 100
	group=test-two.slice/y.service begin d 1002 100
	rates 5 a=20 b=40 c=40 d=60
	grep -q 'class: "cgroup:/test.slice/third.service"' "$(at svc nrs_tbf_stats)" ||
		fail "$(cat "$(at svc nrs_tbf_stats)")"
	# Without the pattern, only the unit's own path counts.
	rule stop any
	rule change default rate=100
	rule start third 'cgroup={/test.slice/third.service/x}' rate=30
	rates 5 a=20 b=100 c=30 d=60
}

# Verifies that each change takes effect on queued requests at once, and that throttled requests do
# not count as stalled.
changes() {
	setup 1
	policy svc 'tbf uid'
	rule start r 'uid={1001}' rate=1
	echo 400 >"$(at svc stall_ms)"
	begin a 1001 100
	saturated 14 a
	gather 5 ended
	[ "${got[0]}" -ge 4 ] && [ "${got[0]}" -le 6 ] || fail "${got[0]} in 5 s at 1 per second"
	grep -q 'stalls: 0' "$(at svc clients)" || fail "$(cat "$(at svc clients)")"
	rule change r rate=200
	measure 0.5 ended a=200
	rule change r rate=10
	measure 3 ended a=10
	rule start n 'uid={1001}' rate=200
	measure 0.5 ended a=200
	rule change r rank=n
	measure 3 ended a=10
	rule change n rank=r
	measure 0.5 ended a=200
	rule stop n
	measure 3 ended a=10
	rule stop r
	measure 2 ended a=20
	rule change default rate=200
	measure 0.5 ended a=200
}

# Verifies that a rule's unused rate goes to a rule with borrow=1, and to no other, and is returned
# at once.
lending() {
	setup 3
	policy svc 'tbf uid'
	rule start lender 'uid={1001}' rate=80
	rule start borrower 'uid={1002}' rate=40 borrow=1
	rule start other 'uid={1003}' rate=20
	begin b 1002 100
	begin c 1003 100
	rates 5 b=120 c=20
	begin a 1001 100
	wait_for 10 '[ "$(counter a held)" -ge 1 ]'
	gather 1 ended
	is "${got[0]}" 80 8
	# Contents of the pool: 100 ms of all rates.
	[ "${got[1]}" -le $((40 + 14 + 4)) ] || fail "the borrower got ${got[1]}"
	rates 5 a=80 b=40 c=20
	rule change borrower borrow=0
	rule stop lender
	rates 3 b=40
}

# Verifies two limits at once: one per user, one for all; in requests and bytes.
two_limits() {
	setup 3
	policy svc 'tbf uid'
	rule start site 'uid={9999}' rate=60
	rule start bytes 'uid={9998}' rate=120KiB/s
	rule start users 'uid={1001 1002}' rate=40 also=site
	rule start both 'uid={1003}' rate=40 also=bytes
	begin a 1001 100
	begin c 1003 100
	rates 5 a=40 c=30
	begin b 1002 100
	wait_backlogged a b
	gather 5 ended
	is $((got[0] + got[1])) 60
	is "${got[2]}" 30
	within 15 "${got[0]}" "${got[1]}"
	expect_errno EBUSY "$(at svc nrs_tbf_rule)" 'stop site'
	rule change users also=
	rule stop site
	rates 5 a=40 b=40 c=30
}

# Verifies the parts of two classes whose rates the disk cannot serve: the higher rate has two of
# three turns, or classes take turns, or the lower rate is guaranteed.
overload() {
	setup 2
	echo 1 >"$(at svc slots)"
	policy svc 'tbf uid'
	rule start fast 'uid={1001}' rate=1000
	rule start slow 'uid={1002}' rate=150
	begin a 1001 100 --iodepth=32
	begin b 1002 100 --iodepth=32
	wait_backlogged a b
	gather 2 ended
	within 5 "${got[0]}" $((2 * got[1])) || fail "rate: ${got[*]}"
	set_to svc nrs_tbf_overload equal
	gather 2 ended
	within 5 "${got[0]}" "${got[1]}" || fail "equal: ${got[*]}"
	rule change slow minrate=150
	sleep 0.2
	gather 2 ended
	is "${got[1]}" 150
}

# Verifies that a head whose queue becomes empty does not delay the other head.
two_heads() {
	setup 2
	policy svc 'tbf uid'
	rule reg start r 'uid={1001}' rate=4
	rule hp start h 'uid={0}' rate=10
	begin a 1001 100
	wait_backlogged a
	local i
	for i in 1 2 3 4 5; do
		# The last request has to wait, for less than the other head's next one.
		ionice -c 1 -n 0 dd if=/dev/mapper/b of=/dev/null bs=4k count=5 iflag=direct 2>/dev/null
		gather 2 ended
		is "${got[0]}" 4 15
	done
}

try 60 "uid, gid, opcode: five classes, rates within 5 % of their rules" uid
try 60 "rates in bytes, pages and requests" units
long try 60 "a request counts once, whatever its size" sizes
long try 60 "jobid: cgroups, with wildcards" jobid
try 60 "cgroups by path: rates and shares" cgroups
try 60 "burst: what a class has saved, then its rate" burst
try 60 "cgroups by path: units that restart, slices and patterns" restarts
try 60 "changes take effect on queued requests at once" changes
try 60 "borrow: unused rates are lent, and returned" lending
try 60 "also: two limits at once" two_limits
try 60 "rates that the disk cannot serve: by rate, in turn, a minimum" overload
long try 60 "two limited heads" two_heads
echo 0 >/proc/sys/vm/nr_hugepages
remarks '^(ended|bytes)'
summary
