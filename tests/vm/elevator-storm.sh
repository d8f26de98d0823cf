#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: elevator-storm.sh [FUNCTION...]
#
# Disks change their scheduler, service, depth and queues, and are removed, all under load: no
# request is lost or damaged, and none takes more than five seconds.
NRS_FRONT=elevator
. /tests/nrs.sh

only=$*
queue=/sys/block/nb0/queue
# Errors during a concurrent change of the same disk, whose scheduler has no files for a moment.
busy='Device or resource busy|Resource temporarily unavailable' \
	away='No such file|No such device|Permission denied'

# give FILE TEXT [ERRORS]: Writes TEXT to FILE, and retries while the disk is busy or the file is
# missing; ERRORS are not failures.
give() { insist "$1" "$2" "$busy|$away" ${3:+"$3"}; }

# nrs POLICY SLOTS: Sets the disk's scheduler to nrs, in the service svc with this policy and these
# slots.
nrs() {
	give $queue/scheduler nrs
	give $queue/iosched/service svc
	policy svc "$1"
	give "$(at svc slots)" "$2"
}

policies=(fifo 'fairshare uid_fair' 'tbf uid' orr 'fairshare cgroup_fair' crrn qbm)
# Configures rules that throttle briefly.
configure() {
	set_to svc nrs_tbf_rate 500
	set_to svc nrs_qbm_config \
		'by uid;group all capacity=40MB/s;default class=fair_share min=1MB/s max=4MB/s'
}

# setup: Creates a disk with two queues, and three users who write, one of them also sequentially,
# with at most five seconds per request.
setup() {
	module
	modprobe -q mq-deadline || true
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=500000 submit_queues=2
	mkdir /sys/kernel/config/nrs/svc
	configure
	client a /dev/nb0 svc
	echo 3 >"$(at svc slots)"
	local latency=(--max_latency="$(slow 5s 30s)")
	writing a "${latency[@]}" --uid=1001 --gid=101 --name=two --offset=32m "${latency[@]}" \
		--uid=1002 --gid=102 --name=three --offset=64m "${latency[@]}" --uid=1003 --gid=101 \
		--name=four --offset=96m "${latency[@]}" --uid=1001 --rw=write --bssplit=4k/100 \
		--iodepth_batch_submit=1
	saturated a
}

# expect_progress WHAT...: Verifies that requests keep completing.
expect_progress() {
	local before now _
	done_by_disk() { awk '{ print $1 + $5 }' /sys/block/nb0/stat; }
	before=$(done_by_disk)
	wait_for 5 "[ \$(done_by_disk) -ge $((before + $(slow 10 2))) ]" ||
		fail "no request completes after $*: $(status)"
}

# finish: Verifies all data, and that requests are still scheduled.
finish() {
	nrs fifo 2
	saturated a
	written
	balanced a
	[ "$(counter a queued)" -gt 0 ] || fail "$(status)"
}

# switches ROUNDS: Changes the scheduler twice per round.
switches() {
	setup
	local round others=(none mq-deadline)
	[ -n "$debug" ] || others+=(bfq kyber)
	for ((round = 0; round < $1; round++)); do
		give $queue/scheduler "${others[round % ${#others[@]}]}"
		expect_progress "${others[round % ${#others[@]}]}"
		nrs "${policies[round % ${#policies[@]}]}" $((round % 5 + 1))
		expect_progress "${policies[round % ${#policies[@]}]}"
	done
	finish
}

# resize NUMBER: Changes one of the sizes of the disk.
resize() {
	local requests=(4 1024 64 256 17)
	case $(($1 % 4)) in
	0 | 2) give $queue/nr_requests "${requests[$1 / 2 % 5]}" 'Invalid argument' ;;
	1) give /sys/kernel/config/nullb/nb0/submit_queues $(($1 / 4 % 2 + 1)) ;;
	3)
		if [ -e $queue/async_depth ]; then
			give $queue/async_depth $(($1 % 7 + 1)) 'Invalid argument|No such file'
		fi
		;;
	esac
}

resizes() {
	setup
	local round
	for ((round = 0; round < $1; round++)); do
		resize "$round"
		[ $((round % 3)) != 0 ] || give "$(at svc slots)" $((round % 5 + 1))
		[ $((round % 5)) != 0 ] || policy svc "${policies[round / 5 % ${#policies[@]}]}"
		expect_progress "size $round"
	done
	finish
}

# Runs all changes concurrently.
together() {
	setup
	local pids=() i
	(for ((i = 0; i < $1; i++)); do
		give $queue/scheduler "$([ $((i % 3)) = 0 ] && echo mq-deadline || echo none)"
		nrs "${policies[i % ${#policies[@]}]}" $((i % 5 + 1))
		pause 0.1
	done) &
	pids+=($!)
	(for ((i = 0; i < $1 * 3; i++)); do resize "$i" && pause 0.05; done) &
	pids+=($!)
	# A scheduler other than nrs has no service.
	(for ((i = 0; i < $1 * 3; i++)); do
		give $queue/iosched/service "$([ $((i % 2)) = 0 ] && echo other || echo svc)" "$away" &&
			pause 0.04
	done) &
	pids+=($!)
	for i in "${pids[@]}"; do wait "$i" || fail "a storm has ended with $?"; done
	expect_progress storms
	finish
}

# Takes a CPU offline and online.
cpus() {
	local cpu=/sys/devices/system/cpu/cpu1/online round
	[ -e $cpu ] || fail "no second CPU that can go"
	setup
	for ((round = 0; round < $1; round++)); do
		echo $((round % 2)) >$cpu
		expect_progress "cpu1: $((round % 2))"
		policy svc "${policies[round % ${#policies[@]}]}"
	done
	echo 1 >$cpu
	finish
}

# Removes the disk repeatedly while it is read and its scheduler changes.
removals() {
	module
	modprobe -q mq-deadline || true
	local round switcher
	for ((round = 0; round < $1; round++)); do
		lower nb0 irqmode=2 completion_nsec=300000 submit_queues=2
		echo nrs >$queue/scheduler
		echo 2 >"$(at nb0 slots)"
		policy nb0 "${policies[round % 4]}"
		chmod 666 /dev/nb0
		ln -sf /dev/nb0 /dev/mapper/a
		load a --numjobs=2 --time_based --runtime=60 >/dev/null 2>&1 &
		(
			set +x
			while [ -e $queue/scheduler ]; do
				echo none >$queue/scheduler
				echo nrs >$queue/scheduler
			done
		) 2>/dev/null &
		switcher=$!
		wait_for 10 "awk '{ exit \$1 < 20 }' /sys/block/nb0/stat"
		null_blk_remove nb0
		# Some processes may have exited already.
		killall -KILL fio || true
		wait_for 5 "! pidof fio >/dev/null && ! kill -0 $switcher 2>/dev/null" ||
			fail "round $round: processes go on"
		wait_for 5 '[ ! -d /sys/kernel/debug/nrs/nb0 ]' ||
			fail "round $round: the service still exists"
	done
	rmmod nrs
}

rounds=$(slow "$(brief 10 100)" "$(brief 4 20)")
try 120 "$((rounds * 2)) changes of the scheduler while three users write" switches "$rounds"
count=$(slow "$(brief 20 100)" "$(brief 8 20)")
long try 120 "$count changes of depth and queues while three users write" resizes "$count"
long try 120 "schedulers, services, depth and queues change at the same time" together \
	"$(slow 60 10)"
long try 120 "a CPU goes offline and online while three users write" cpus "$(slow 40 10)"
long try 60 "removal under load and changes of the scheduler" removals \
	"$(slow "$(brief 3 20)" "$(brief 1 3)")"
summary
