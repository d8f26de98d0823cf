#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: soak.sh [SECONDS [SEED]]: runs a mixed stress test for that long (default 40 s, or
# NRS_SOAK_SECONDS): loads that verify their data, during changes, invalid calls and failing
# allocations. Ends with tables of the calls, also in /out/soak.md. Needs nrs-test
# (scripts/build-tools.sh).
. /tests/nrs.sh
. /tests/soak/count.sh
. /tests/soak/load.sh
. /tests/soak/change.sh

seconds=${1:-${NRS_SOAK_SECONDS:-40}}
seed=${2:-1}
lost=unknown took=0

# made: Creates services, devices, a file system, and a group of processes with little memory.
made() {
	module
	# The kernel's periodic leak scan reads all memory within one RCU read-side section and yields
	# to all tasks. No grace period would end on a busy machine, so leaks are searched at the end.
	[ ! -w /sys/kernel/debug/kmemleak ] || echo scan=off >/sys/kernel/debug/kmemleak
	rm -rf $work
	mkdir -p $work/{counts,pids}
	: >$finds
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=200000
	lower nb1 memory_backed=1 irqmode=2 completion_nsec=200000 size=2048
	lower nb2 memory_backed=1
	# Users of /dev/nrs come and go; their service remains.
	mkdir /sys/kernel/config/nrs/user
	echo 2 >/sys/kernel/config/nrs/user/cpts
	mkdir /sys/kernel/config/nrs/svc
	echo 2 >/sys/kernel/config/nrs/svc/cpts
	local name part=0
	for name in a b c; do
		echo "0 65536 nrs /dev/nb0 $((part * 65536)) svc" >$work/table-$name
		part=$((part + 1))
	done
	echo "0 $(sectors /dev/nb1) nrs /dev/nb1 0 svc" >$work/table-e
	for name in a b c e; do
		dm_create $name "$(<$work/table-$name)"
		chmod 666 /dev/mapper/$name
	done
	client z /dev/nb2 fuzz
	echo 8 >"$(at svc slots)"
	mkfs.ext4 -q -J size=16 /dev/mapper/e
	mkdir -p /mnt/soak
	mount /dev/mapper/e /mnt/soak
}

# run_all: Starts all loads and changes, waits, and ends them.
run_all() {
	local pids=() pid name limit started=$SECONDS left
	renice -n -10 -p $BASHPID >/dev/null 2>&1 || true
	watch "$(slow 60 240)" &
	pids+=($!)
	checksums a 1001 & pids+=($!)
	checksums b 1002 & pids+=($!)
	checksums c 1003 & pids+=($!)
	for name in commits archives rows clients_of_a_server stresses small_files servers \
		devices_change clients_come storms_killed no_memory; do
		$name & pids+=($!)
	done
	for name in 1 2; do
		(
			renice -n 5 -p $BASHPID >/dev/null 2>&1
			me=tree-$name && small &&
				exec nrs-test storm --seed $((seed + name)) --seconds 100000 --stop $stop \
					--rest "$(slow 1000 5000)" --counts "$work/counts/tree-$name" tree \
					/mnt/soak/tree-$name >"$work/tree-$name" 2>&1
		) &
		pids+=($!)
	done
	storm svc $((seed + 41)) --rest "$(slow 5000 20000)" change svc --device a & pids+=($!)
	storm user $((seed + 42)) --rest "$(slow 10000 40000)" change user & pids+=($!)
	storm files $((seed + 43)) --rest "$(slow 1000 3000)" files fuzz & pids+=($!)
	storm message $((seed + 44)) --rest "$(slow 20000 50000)" message z /dev/nb2 fuzz & pids+=($!)
	storm device $((seed + 45)) --rest "$(slow 1000 3000)" device fuzzdev & pids+=($!)
	# A load in the service that the storm of files changes; no one waits for it.
	(
		renice -n 5 -p $BASHPID >/dev/null 2>&1; reads z 1006 --rate_iops=20 --iodepth=4
	) >/dev/null 2>&1 &
	local victim=$!
	local shown=$SECONDS
	while on && [ $((SECONDS - started)) -lt "$seconds" ]; do
		sleep 0.5
		[ $((SECONDS - shown)) -ge 30 ] || continue
		shown=$SECONDS
		echo "# $((SECONDS - started)) s: $(ended svc) requests of block devices," \
			"$(cat $work/counts/* 2>/dev/null | awk '{ n += $1 } END { print n }') counts," \
			"$(wc -l <$finds) findings $(tail -n 1 $finds | cut -c1-300)" >&5
	done
	echo "# the end after $((SECONDS - started)) s" >&5
	touch $stop
	took=$((SECONDS - started))
	echo $took >$work/took
	# Running operations finish, in whatever state the storms have left the services.
	limit=$((SECONDS + $(slow 120 480)))
	while :; do
		left=()
		for pid in "${pids[@]}"; do
			[ ! -d /proc/$pid ] || grep -qs ' Z ' /proc/$pid/stat || left+=($pid)
		done
		[ ${#left[@]} -gt 0 ] || break
		[ $((SECONDS % 10)) != 0 ] || [ "$shown" = $SECONDS ] || {
			shown=$SECONDS && echo "# ${#left[@]} processes are still active" >&5
		}
		if [ $SECONDS -ge $limit ]; then
			me=run find_out \
				"no end of $(for pid in "${left[@]}"; do tr '\0' ' ' <"/proc/$pid/cmdline"; done)"
			{
				ps && dm status &&
					grep -s '' /sys/kernel/debug/nrs/*/{clients,nrs_policies,slots,health}
			} >/out/stuck 2>&1
			echo w >/proc/sysrq-trigger
			break
		fi
		sleep 0.5
	done
	faults_off
	kill -KILL $victim || true
	wait $victim 2>/dev/null || true
	for pid in "${pids[@]}"; do
		name=$(cat /proc/$pid/comm 2>/dev/null) || true
		rc=0
		wait "$pid" || rc=$?
		[ "$rc" = 0 ] || me=run find_out "a process exited with status $rc ($name)"
	done
	for name in 1 2; do
		sed -n 's/^finding /tree: /p; s/^nrs-test: /tree: /p' "$work/tree-$name" >>$finds
	done
}

# disable_policies: Ends all throttling and ordering.
disable_policies() {
	local service
	for service in svc user fuzz; do
		set_to $service nrs_policies fifo
		set_to $service nrs_pop none
		set_to $service slots 32
		wait_for 60 "! grep -q 'state: stopping' $(at $service nrs_policies)" ||
			fail "$service: $(cat "$(at $service nrs_policies)")"
	done
}

# compared: Reads all written data once more; verifies that no request is lost, and removes
# everything.
compared() {
	local name uid=1001 file left=0
	echo "# comparing" >&5
	cat /sys/fs/cgroup/testsoak.*/memory.events >$work/memory.events
	for name in a b c; do
		sums_again $name $uid
		uid=$((uid + 1))
	done
	umount /mnt/soak
	worker fsck 1
	e2fsck -fn /dev/mapper/e >/tmp/fsck 2>&1 || find_out "e2fsck: $(tail -n 8 /tmp/fsck)"
	add 1 'file system checked'
	put
	echo "# file system checked" >&5
	wait_for 15 '! pidof fio >/dev/null' || find_out "fio is still there: $(ps | grep '[f]io')"
	worker end 1
	for name in a b c e z; do
		wait_for 5 "[ \$((\$(counter $name passed) + \$(counter $name queued))) = \
			\$(counter $name ended) ]" || true
		left=$((left + $(counter $name passed) + $(counter $name queued) - $(counter $name ended)))
		[ "$(counter $name failed)" = 0 ] || find_out "$name: requests failed: $(dm status $name)"
		[ "$(counter $name held)" = 0 ] || find_out "$name: requests wait: $(dm status $name)"
	done
	echo $left >$work/lost
	[ $left = 0 ] || find_out "$left requests have not ended: $(dm status)"
	for name in a b c e z; do
		echo "# removing $name" >&5 && dm_remove $name || find_out "$name cannot be removed"
	done
	for file in /sys/kernel/config/nrs/{svc,user}; do
		rmdir $file || find_out "$file cannot be removed"
	done
	wait_for 60 '[ -z "$(ls -d /sys/kernel/debug/nrs/*/ 2>/dev/null)" ]' ||
		find_out "services still exist: $(ls /sys/kernel/debug/nrs)"
	rmmod nrs || find_out "the module cannot be unloaded"
}

# finish: Reports the findings, and fails if there are any.
finish() {
	[ ! -s $finds ] || { sed 's/^/# found: /' $finds | cut -c1-300 >&5 && fail "$(cat $finds)"; }
}

soak() {
	made
	run_all
	disable_policies
	compared
	finish
}

# Descriptor for progress output.
exec 5>&1
try $((seconds + 300)) "$seconds s of mixed stress, seed $seed" soak
lost=$(cat $work/lost 2>/dev/null || echo unknown)
took=$(cat $work/took 2>/dev/null || echo 0)
report >/out/soak.md
cp -r $work/counts $finds /out/ 2>/dev/null
sed 's/^/finding: /' $finds
cat /out/soak.md
summary
