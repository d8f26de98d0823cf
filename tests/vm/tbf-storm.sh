#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Rules and types change concurrently under load: no request is lost, duplicated or damaged, and
# throttled requests do not prevent processes from exiting.
. /tests/nrs.sh

# setup [KEY=VALUE...]: Creates a disk that stores data, and a device on it.
setup() {
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=500000 "$@"
	client a /dev/nb0 svc
	echo 4 >"$(at svc slots)"
}

# three_users: Starts writers of three users whose blocks are verified.
three_users() {
	writing a --uid=1001 --gid=101 --name=two --offset=32m --uid=1002 --gid=102 --name=three \
		--offset=64m --uid=1003 --gid=101
	wait_for 30 '[ "$(counter a ended)" -ge 50 ]' || fail "$(status a)"
}

# give COMMAND ERRORS: Writes a command; ERRORS, a pattern, are not failures.
give() {
	local said
	said=$( (echo "$1" >/sys/kernel/debug/nrs/svc/nrs_tbf_rule) 2>&1) && return
	[[ $said =~ $2 ]] || fail "'$1': $said"
}

# storm ID N: Changes rules of its own, of which each step must succeed, and some that all processes
# share.
storm() {
	local i known='File exists|No such file|Resource busy'
	for ((i = 0; i < $2; i++)); do
		give "start p$1   uid={  $((1001 + i % 3))   1004 }  rate=$((300 + i)) " never
		give "start shared jobid={fio.* }&uid={1001} rate=400" "$known"
		give "change p$1 rate=$((200 + i))iops" never
		give "change shared rank=p$((i % 4)) rate=8MB/s" "$known"
		give "start s$1 uid={9999} rate=50MB/s also=p$1" never
		give "change s$1 rank=p$1 minrate=5MB/s" never
		give "stop s$1" never
		give "stop shared" "$known"
		give "stop p$1" never
	done
}

# Runs four processes, while another reads rules and statistics.
storms() {
	setup
	policy svc 'tbf uid+jobid'
	three_users
	local i pids=() reader
	(while :; do
		cat "$(at svc nrs_tbf_rule)" "$(at svc nrs_tbf_stats)" \
			"$(at svc nrs_tbf_rule_error)" >/tmp/seen
	done) &
	reader=$!
	for i in 0 1 2 3; do
		storm "$i" "$1" &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i"; done
	kill "$reader"
	[ "$(grep -vcE '^(default|CPT|[a-z_]*_requests:)' "$(at svc nrs_tbf_rule)")" = 0 ] ||
		fail "$(cat "$(at svc nrs_tbf_rule)")"
	written
	balanced a
}

# Changes types while requests are queued at one per second: each change takes effect, and the
# earlier backlog is dispatched at its rate or by a drain.
types() {
	setup
	local round type seen all
	all=(
		'tbf uid|uid={1001 1002 1003}' 'tbf gid|gid={101 102}' 'tbf jobid|jobid={fio.*}'
		'tbf uid+opcode|opcode={ost_write ost_read}'
	)
	# Each type takes long on the debug kernel.
	[ -z "$debug" ] || all=("${all[3]}")
	three_users
	for ((round = 0; round < $1; round++)); do
		for type in "${all[@]}" 'tbf|uid={1001},uid={1002},gid={101}' fifo; do
			policy svc "${type%|*}"
			case $type in
			*'|'*)
				set_to svc nrs_tbf_rule "start one ${type#*|} rate=1"
				[ "$(grep -A1 -Fx "  - name: ${type%|*}" "$(at svc nrs_policies)" |
					grep -c 'state: started')" = 2 ] || fail "$(cat "$(at svc nrs_policies)")"
				saturated "$(slow 20 8)" a
				;;
			esac
			seen=$(ended svc)
			# While fifo dispatches new requests, the backlog keeps its rate.
			[ "$type" != fifo ] || drain a
			wait_for 20 "! grep -q 'state: stopping' '$(at svc nrs_policies)'" ||
				fail "after ${type%|*}: $(cat "$(at svc nrs_policies)")"
		done
		wait_for 10 "[ \$(ended svc) -gt $((seen + 20)) ]" || fail "fifo does not move"
	done
	written
	balanced a
	! grep -E '(queued|active): +[1-9]' "$(at svc nrs_policies)" ||
		fail "$(cat "$(at svc nrs_policies)")"
}

# Size of a backlog, requests.
many=$(slow 50 10)

# backlog: Queues requests of user 1001, throttled to one per second.
backlog() {
	setup
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'start one uid={1001} rate=1'
	load a as=1001 --numjobs=2 --iodepth=$((many * 2 / 3)) --time_based \
		--runtime=600 >/dev/null 2>&1 &
	# The I/O scheduler defers the rest.
	saturated $((many * 4 / 5)) a
}

# kill_load: Kills the load's processes.
kill_load() {
	local pid
	for pid in $(pidof fio); do kill -KILL "$pid" 2>/dev/null || true; done
}

# Verifies that a suspend dispatches all queued requests, that requests are throttled again after a
# resume, and that the module cannot be unloaded meanwhile.
suspending() {
	backlog
	refused EBUSY rmmod nrs
	local start=$SECONDS
	dm suspend a
	[ $((SECONDS - start)) -le "$(slow 4 10)" ] || fail "suspending took $((SECONDS - start)) s"
	[ "$(counter a held)" = 0 ] || fail "$(status a)"
	refused EBUSY rmmod nrs
	dm resume a
	saturated "$many" a
	dm message a 0 drain
	saturated "$many" a
	refused EBUSY dm remove a
	# Also without flushing and freezing.
	dm suspend --noflush --nolockfs a
	dm resume a
	kill_load
	start=$SECONDS
	dm suspend a
	wait_for 10 '! pidof fio >/dev/null' || fail "$(pidof fio), $(status a)"
	[ "$(counter a held)" = 0 ]
	dm_remove a
	rmmod nrs
	[ ! -d /sys/module/nrs ]
}

# Verifies that a killed process exits when its requests are dispatched, by a drain or by a change
# of rules.
killed() {
	backlog
	kill_load
	sleep 0.5
	pidof fio >/dev/null || fail "its requests did not wait"
	case $1 in
	drain)
		drain a
		# What the I/O scheduler had deferred is queued after that.
		[ "$front" = dm ] || { wait_for 10 '[ "$(deferred)" = 0 ]' && drain a; }
		;;
	rate) set_to svc nrs_tbf_rule 'change one rate=10000' ;;
	stop) set_to svc nrs_tbf_rule 'stop one' ;;
	fifo) policy svc fifo ;;
	esac
	wait_for "$(slow 3 10)" '! pidof fio >/dev/null' ||
		fail "still there: $(pidof fio), $(status a)"
	balanced a
	remove_client a
}

# Verifies a rate with two partitions, for both together or for each, as configured. Both CPUs do
# nothing else.
partitions() {
	module
	slow_lower nb0 2000000
	mkdir /sys/kernel/config/nrs/svc
	echo 2 >/sys/kernel/config/nrs/svc/cpts
	sharer a /dev/nb0 svc
	sharer b /dev/nb0 svc
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'start one uid={1001} rate=50'
	load a as=1001 --cpus_allowed=0 --time_based --runtime=120 >/dev/null 2>&1 &
	load b as=1001 --cpus_allowed=1 --time_based --runtime=120 >/dev/null 2>&1 &
	local want got start
	for want in 1:50 0:100 1:50; do
		set_to svc nrs_tbf_global_rate "${want%:*}"
		saturated a b
		sleep 0.5
		start=${EPOCHREALTIME/./} got=$(ended svc)
		sleep 5
		got=$(($(ended svc) - got)) start=$((${EPOCHREALTIME/./} - start))
		say "global_rate ${want%:*}: $got in $((start / 1000)) ms"
		# The host limits the CPU time of the machine: the count may only be too low, and still
		# distinguishes 50 from 100.
		awk -v n="$got" -v us=$start -v r="${want#*:}" \
			'BEGIN { e = r * us / 1e6; exit !(n <= 1.05 * e && n >= 0.6 * e) }' || fail "$got"
	done
	[ "$(grep -c '^one uid={1001} 50, ref 1$' "$(at svc nrs_tbf_rule)")" = 2 ] ||
		fail "$(cat "$(at svc nrs_tbf_rule)")"
}

rounds=$(slow 6 1)
try 90 "four processes change rules in nine ways, $rounds rounds, under load" storms "$rounds"
long try 90 "types change under load at one per second" types "$(slow 2 1)"
dm_only try 60 "suspending and removing with a backlog" suspending
try 30 "a killed process with throttled requests: drain" killed drain
# The debug kernel is for memory errors, which the other checks cover as well.
if [ -z "$debug" ]; then
	for how in rate stop fifo; do
		long try 30 "a killed process whose requests wait: $how" killed "$how"
	done
	long try 60 "one rate for two partitions, or one for each" partitions
fi
summary
