#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Two users on one device, three jobs. Each job has a client (a dm device of type nrs that names the
# job) of the same service on the same lower device:
#   small    user 1001, one process, 16 requests in flight
#   large    user 1002, the greedy user: 12 processes, 32 requests in flight each
#   medium   also user 1002: 4 processes, 32 requests in flight each
# Four runs: small alone, all under fifo, all under fairshare by users and then jobs, all under tbf
# with a rule that limits the greedy user. nrs counts each job's requests over the same six seconds
# of a run; latencies are fio's. Results go to /out, for `nrs-report demo`. Started by
# scripts/demo.sh.
. /tests/lib.sh
set -euo pipefail

block=64k
seconds=8
part=2097152 # sectors of one client, 1 GiB
slots=8
service_ns=8000000 # of the device, per request
# An upper limit and a guaranteed minimum: the small job alone could use the whole device.
rule='greedy uid={1002} rate=10MB/s minrate=10MB/s'

say() {
	echo "demo: $*"
}

uid_of() {
	case $1 in small) echo 1001 ;; *) echo 1002 ;; esac
}

# facts CLIENT...: Prints the elapsed seconds and the idle seconds of the CPUs (both measured, not
# sampled at ticks); then for each client the completed requests and bytes.
facts() {
	local client
	awk '
		NR == 1 { up = $1 }
		$1 == "cpu" { print "seconds", up; print "idle_seconds", ($5 + $6) / 100 }
	' /proc/uptime /proc/stat
	for client; do
		dmsetup status "$client" | sed -E \
			"s/.* ended: ([0-9]+), .* bytes: ([0-9]+),.*/${client}_requests \1\n${client}_bytes \2/"
	done
}

# load RUN CLIENT PROCESSES DEPTH: Runs random reads by that client's user.
load() {
	local uid
	uid=$(uid_of "$2")
	setpriv --reuid "$uid" --regid "$uid" --clear-groups -- \
		fio --name="$2" --filename="/dev/mapper/$2" --rw=randread --bs="$block" --direct=1 \
		--ioengine=libaio --iodepth="$4" --numjobs="$3" --group_reporting --norandommap \
		--randrepeat=1 --invalidate=0 --time_based --runtime="$seconds" --ramp_time=3 \
		--output-format=json >"/out/$1-$2.json"
}

# choose POLICY: Sets the policy of the service.
choose() {
	dmsetup message small 0 service nrs_policies "$1"
}

# run NAME CLIENT...: Runs the clients' loads in parallel, and records the facts.
run() {
	local name=$1 pids=() pid client
	shift
	say "$name: $* ($seconds s, after 3 s to settle)"
	for client; do
		case $client in
		small) load "$name" small 1 16 & ;;
		large) load "$name" large 12 32 & ;;
		medium) load "$name" medium 4 32 & ;;
		esac
		pids+=($!)
	done
	sleep 4
	facts "$@" >"/out/$name.before"
	sleep $((seconds - 2))
	facts "$@" >"/out/$name.after"
	for pid in "${pids[@]}"; do wait "$pid"; done
}

# The lower device takes time but stores no data. Its queue is much deeper than the slots, so it
# never decides the order.
null_blk_create lower size=4096 queue_mode=2 irqmode=2 completion_nsec="$service_ns" \
	hw_queue_depth=1024 memory_backed=0
load_nrs
jobs=(small large medium)
for i in "${!jobs[@]}"; do
	dm_create "${jobs[i]}" "0 $part nrs /dev/lower $((i * part)) demo 2 jobid ${jobs[i]}"
	chown "$(uid_of "${jobs[i]}")" "$(readlink -f "/dev/mapper/${jobs[i]}")"
done
dmsetup message small 0 service slots "$slots"
say "service demo, $slots slots; jobs ${jobs[*]} on one device, the last two of one user"

choose fifo
run alone small
run fifo "${jobs[@]}"

choose 'fairshare uid_then_jobid_fair'
run fairshare "${jobs[@]}"
cat /sys/kernel/debug/nrs/demo/nrs_fairshare_stats >/out/stats

choose 'tbf uid'
dmsetup message small 0 service nrs_tbf_rule "start $rule"
echo "$rule" >/out/rule
run tbf "${jobs[@]}"
cat /sys/kernel/debug/nrs/demo/nrs_tbf_rule /sys/kernel/debug/nrs/demo/nrs_tbf_stats >/out/tbf-stats

for name in "${jobs[@]}"; do dm_remove "$name"; done
rmmod nrs
null_blk_remove lower
say done
