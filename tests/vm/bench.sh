#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Cost of a request through the whole stack, fio included: 4 KiB random reads, libaio, 32 in flight,
# null_blk that completes a request before its submission returns. Started by scripts/bench-vm.sh
# with
#   count   one process, a fixed number of requests; if the clock counts instructions, the time is
#           the number of instructions
#   profile REQUESTS NAME BATCH
#           REQUESTS requests through device NAME, and the addresses of the kernel's functions, for
#           QEMU to count by function
#   free    as many processes as CPUs, for a fixed time, in rounds of alternating order; the first
#           round is discarded
# Each measurement writes fio's JSON to /out; `nrs-report vm` reads it.
. /tests/lib.sh
set -euo pipefail

mode=$1
requests=40000
seconds=2
rounds=3
sectors=2097152

say() {
	echo "bench: $*"
}

# lower NAME SCHEDULER: Creates the disk /dev/NAME.
lower() {
	null_blk_create "$1" size=1024 queue_mode=2 irqmode=0 hw_queue_depth=128 \
		submit_queues="$(nproc)" memory_backed=0
	modprobe -q "$2" || true
	echo "$2" >"/sys/block/$1/queue/scheduler"
	grep -q "\[$2\]" "/sys/block/$1/queue/scheduler"
}

# nrs NAME SLOTS POLICY: Creates a client of its own service.
nrs() {
	dm_create "$1" "0 $sectors nrs /dev/plain 0 $1"
	dmsetup message "$1" 0 service slots "$2"
	dmsetup message "$1" 0 service nrs_policies "$3"
}

# scheduled NAME SLOTS POLICY: Creates a disk with nrs as its I/O scheduler.
scheduled() {
	lower "$1" nrs
	echo "$2" >"/sys/kernel/debug/nrs/$1/slots"
	echo "$3" >"/sys/kernel/debug/nrs/$1/nrs_policies"
}

# untimed NAME: Disables all deadlines of the service.
untimed() {
	dmsetup message "$1" 0 service at_max 0
	dmsetup message "$1" 0 service obd_timeout 0
}

device() {
	case $1 in
	raw) echo /dev/plain ;;
	deadline | bfq | sched-*) echo "/dev/$1" ;;
	*) echo "/dev/mapper/$1" ;;
	esac
}

# queued NAME: Prints the number of requests queued so far; 0 for a device without nrs.
queued() {
	case $1 in
	nrs-*) dmsetup status "$1" | sed -E 's/.*queued: ([0-9]+).*/\1/' ;;
	sched-*) sed -E 's/.*queued: ([0-9]+).*/\1/' "/sys/block/$1/queue/iosched/status" ;;
	*) echo 0 ;;
	esac
}

# measure NAME FILE FIO-OPTION...: Runs fio on the device with its report in FILE.
measure() {
	local name=$1 file=$2 before
	shift 2
	before=$(queued "$name")
	fio --name="$name" --filename="$(device "$name")" --rw=randread --bs=4k --direct=1 \
		--ioengine=libaio --iodepth=32 --norandommap --randrepeat=1 --group_reporting \
		--invalidate=0 --output-format=json "$@" >"/out/$file.json"
	echo $(($(queued "$name") - before)) >"/out/$file.queued"
}

# batches SIZE: Sets $submit to the fio options for the number of requests submitted and reaped at a
# time.
batches() {
	submit=(
		--iodepth_batch_submit="$1" --iodepth_batch_complete_min=1 --iodepth_batch_complete_max=32
	)
}

load_nrs
lower plain none
lower deadline mq-deadline
lower bfq bfq
dm_create linear "0 $sectors linear /dev/plain 0"
nrs nrs-64 64 fifo
nrs nrs-64-fair 64 'fairshare uid_fair'
nrs nrs-8-fifo 8 fifo
nrs nrs-8-fair 8 'fairshare uid_fair'
nrs nrs-64-off 64 fifo
nrs nrs-8-off 8 fifo
untimed nrs-64-off
untimed nrs-8-off
scheduled sched-64 64 fifo
scheduled sched-64-fair 64 'fairshare uid_fair'
scheduled sched-8 8 fifo
scheduled sched-8-fair 8 'fairshare uid_fair'
disks=(sched-64 sched-64-fair sched-8 sched-8-fair)
mapped=(linear nrs-64 nrs-64-off nrs-64-fair nrs-8-fifo nrs-8-off nrs-8-fair)
order=(raw deadline bfq "${disks[@]}" "${mapped[@]}")

case $mode in
count)
	for batch in 1 32; do
		for name in "${order[@]}"; do
			say "$name, submitted $batch at a time"
			batches "$batch"
			measure "$name" warm-up "${submit[@]}" --io_size=$((requests / 8 * 4))k
			measure "$name" "$name.$batch" "${submit[@]}" --io_size=$((requests * 4))k
		done
	done
	;;
profile)
	batches "$4"
	measure "$3" profile "${submit[@]}" --io_size=$(($2 * 4))k
	cp /proc/kallsyms /out/symbols
	;;
free)
	for round in $(seq 0 "$rounds"); do
		say "$(nproc) CPUs, round $round of $rounds"
		for name in "${order[@]}"; do
			measure "$name" "$name.$round" --numjobs="$(nproc)" --iodepth_batch_submit=32 \
				--iodepth_batch_complete_min=1 --iodepth_batch_complete_max=32 --time_based \
				--runtime="$seconds"
		done
		mapfile -t order < <(printf '%s\n' "${order[@]}" | tac)
	done
	;;
esac
for name in "${mapped[@]}"; do dm_remove "$name"; done
for name in plain deadline bfq "${disks[@]}"; do null_blk_remove "$name"; done
rmmod nrs
say done
