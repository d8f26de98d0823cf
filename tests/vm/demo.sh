#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Two users on one device. Each has a client (a dm device of type nrs) of the same service on the same lower device:
#   small    user 1001, one process, 16 requests in flight
#   greedy   user 1002, 16 processes, 32 requests in flight each
# Four runs: small alone, both under fifo, both under fairshare, both under tbf with a rule that limits the greedy user.
# What each client got is counted over the same six seconds of a run by nrs; latencies are fio's. It all goes to /out, for
# scripts/demo-report.py. Started by scripts/demo.sh.
. /tests/lib.sh
set -euo pipefail

block=64k
seconds=8
half=4194304 # sectors of one client, 2 GiB
slots=8
service_ns=8000000 # of the device, for each request
# At most this rate, and also not less: the small job alone could use up the device.
rule='greedy uid={1002} rate=10MB/s'

say() {
	echo "demo: $*"
}

uid_of() {
	case $1 in small) echo 1001 ;; greedy) echo 1002 ;; esac
}

# facts CLIENT...: seconds that passed and seconds that the CPUs were idle (both measured, not sampled at ticks); then for
# each client the requests and bytes that have ended.
facts() {
	local client
	awk 'NR == 1 { up = $1 } $1 == "cpu" { print "seconds", up; print "idle_seconds", ($5 + $6) / 100 }' \
		/proc/uptime /proc/stat
	for client; do
		dmsetup status "$client" | sed -E "s/.* ended: ([0-9]+), .* bytes: ([0-9]+),.*/${client}_requests \1\n${client}_bytes \2/"
	done
}

# load RUN CLIENT PROCESSES DEPTH: random reads by that client's user.
load() {
	local uid
	uid=$(uid_of "$2")
	setpriv --reuid "$uid" --regid "$uid" --clear-groups -- \
		fio --name="$2" --filename="/dev/mapper/$2" --rw=randread --bs="$block" --direct=1 --ioengine=libaio \
		--iodepth="$4" --numjobs="$3" --group_reporting --norandommap --randrepeat=1 --invalidate=0 \
		--time_based --runtime="$seconds" --ramp_time=3 --output-format=json >"/out/$1-$2.json"
}

# choose POLICY: puts the service under it.
choose() {
	dmsetup message small 0 service nrs_policies "$1"
}

# run NAME CLIENT...: the clients' loads side by side, and the facts around them.
run() {
	local name=$1 pids=() pid client
	shift
	say "$name: $* ($seconds s, after 3 s to settle)"
	for client; do
		case $client in
		small) load "$name" small 1 16 & ;;
		greedy) load "$name" greedy 16 32 & ;;
		esac
		pids+=($!)
	done
	sleep 4
	facts "$@" >"/out/$name.before"
	sleep $((seconds - 2))
	facts "$@" >"/out/$name.after"
	for pid in "${pids[@]}"; do wait "$pid"; done
}

# Time passes on the lower device, data does not. Its own queue is much deeper than the slots, so it never decides.
null_blk_create lower size=4096 queue_mode=2 irqmode=2 completion_nsec="$service_ns" hw_queue_depth=1024 memory_backed=0
load_nrs
dm_create small "0 $half nrs /dev/lower 0 demo"
dm_create greedy "0 $half nrs /dev/lower $half demo"
for client in small greedy; do chown "$(uid_of "$client")" "$(readlink -f "/dev/mapper/$client")"; done
dmsetup message small 0 service slots "$slots"
say "service demo, $slots slots; clients small and greedy on one device"

choose fifo
run alone small
run fifo small greedy

choose 'fairshare uid_fair'
run fairshare small greedy
cat /sys/kernel/debug/nrs/demo/nrs_fairshare_stats >/out/stats

choose 'tbf uid'
dmsetup message small 0 service nrs_tbf_rule "start $rule"
echo "$rule" >/out/rule
run tbf small greedy
cat /sys/kernel/debug/nrs/demo/nrs_tbf_rule /sys/kernel/debug/nrs/demo/nrs_tbf_stats >/out/tbf-stats

dm_remove small
dm_remove greedy
rmmod nrs
null_blk_remove lower
say done
