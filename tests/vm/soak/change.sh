# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# Changes to the loads of a soak: devices are suspended, reloaded, created and removed; storms of
# calls; failing allocations. Sourced by soak.sh.

# dm_try KIND WORD...: Runs and counts a dmsetup command, which may fail for lack of memory.
dm_try() {
	local kind=$1 said
	shift
	if said=$(dm "$@" 2>&1); then
		add 1 "$kind"
		return 0
	fi
	# A program that cannot start for lack of memory dies without a message.
	case ${said:-'Cannot allocate memory'} in
	*'Cannot allocate memory'* | *'annot allocate memory'*) add 1 "$kind" ENOMEM ;;
	*'resource busy'*) add 1 "$kind" EBUSY ;;
	*) find_out "dmsetup $*: $said" ;;
	esac
	return 1
}

# devices_change: Suspends, resumes and reloads the devices that carry loads, one at a time.
devices_change() {
	worker devices $((seed + 31))
	local name how
	while on; do
		set -- a b c e
		shift $((RANDOM % 4))
		name=$1
		case $((RANDOM % 6)) in
		0 | 1) how=() ;;
		2) how=(--noflush) ;;
		3) how=(--noflush --nolockfs) ;;
		4) how=(--nolockfs) ;;
		*)
			# A new table: the same blocks, other words.
			how=(
				nid "10.0.0.$((RANDOM % 250))@tcp" jobid "job.$((RANDOM % 5))" jobid_name %e.%u.%p
				size 4 stream cgroup opportunity off
			)
			how=("${how[@]:0:$((RANDOM % 7 * 2))}")
			dm_try reload reload "$name" \
				--table "$(<"$work/table-$name")${how:+ ${#how[@]} ${how[*]}}" || true
			how=()
			;;
		esac
		touch $work/suspended
		dm_try suspend suspend "${how[@]}" "$name" || true
		[ $((RANDOM % 3)) != 0 ] || linger 1 400
		until dm_try resume resume "$name"; do on || break; done
		rm -f $work/suspended
		put
		linger 100 3000
	done
	for name in a b c e; do dm resume "$name" || true; done
}

# clients_come: Creates devices of the same service, uses them, and removes them, or kills their
# users first.
clients_come() {
	worker clients $((seed + 32))
	local name round=0 pid table
	while on; do
		put
		round=$((round + 1)) name=g$((round % 3))
		# Some devices are created with failing allocations, if the kernel supports fault injection.
		table="0 16384 nrs /dev/nb0 $((196608 + round % 3 * 16384)) svc 2 jobid guest.$round"
		if ! (faulty && dm_try create create $name --table "$table" && put); then
			while [[ " $(devices | tr '\n' ' ')" = *" $name "* ]] &&
				! dm_try remove remove $name; do
				:
			done
			continue
		fi
		dm mknodes || true
		chmod 666 /dev/mapper/$name
		if [ $((RANDOM % 2)) = 0 ]; then
			load $name as=1004 --size=1m --io_size=1m >$work/guest 2>&1 ||
				find_out "fio on $name: $(tail -n 2 $work/guest | cut -c1-300)"
		else
			reads $name 1005 --iodepth=16 >$work/guest 2>&1 &
			pid=$!
			linger 200 2000
			# Requests in flight are still served.
			kill -KILL $pid 2>/dev/null || true
			wait $pid 2>/dev/null || true
			add 1 'client killed'
		fi
		until [[ " $(devices | tr '\n' ' ')" != *" $name "* ]]; do
			dm_try remove remove --retry $name || true
		done
		add 1 'client gone'
		put
		linger 50 1000
	done
}

# storm NAME SEED OPTION...: Runs nrs-test storm, which counts by itself; its process id is in
# $work/pids for fault injection.
storm() {
	local name=$1 number=$2 status=0
	shift 2
	worker "storm-$name-end" 1
	nrs-test storm --seed "$number" --seconds 100000 --stop $stop \
		--counts "$work/counts/storm-$name" "$@" >"$work/storm-$name" 2>&1 &
	echo $! >"$work/pids/$name"
	wait $! || status=$?
	rm "$work/pids/$name"
	# Its own output has all details.
	[ $status -le 1 ] ||
		find_out "nrs-test storm ${*: -2}: status $status: $(tail -n 2 "$work/storm-$name")"
	sed -n 's/^finding /storm: /p' "$work/storm-$name" >>$finds
}

# storms_killed: Runs a storm on /dev/nrs that is repeatedly killed and restarted.
storms_killed() {
	worker killed $((seed + 33))
	local round=0 pid
	while on; do
		round=$((round + 1))
		nrs-test storm --seed $((seed + round)) --seconds 100000 --stop $stop --rest 1000 \
			--counts "$work/counts/storm-killed-$round" device fuzzdev >"$work/storm-killed" 2>&1 &
		pid=$!
		echo $pid >$work/pids/killed
		linger 500 4000
		kill -KILL $pid 2>/dev/null || true
		wait $pid 2>/dev/null || true
		sed -n 's/^finding /storm: /p' "$work/counts/storm-killed-$round" >>$finds 2>/dev/null ||
			true
		add 1 'storm killed'
		put
	done
}

faults=(/sys/kernel/debug/failslab /sys/kernel/debug/fail_page_alloc)

# faulty: Lets allocations of this process and its children fail while faults are injected.
faulty() {
	[ ! -d ${faults[0]} ] || echo 1 >"/proc/$BASHPID/make-it-fail"
}

# faults_off: Disables fault injection.
faults_off() {
	local dir
	for dir in "${faults[@]}"; do [ ! -d "$dir" ] || echo 0 >"$dir/probability"; done
}

# no_memory: Lets some allocations fail for a few seconds at a time: any of the storms', or fio's
# that may not sleep. The number is limited each time, and counted.
no_memory() {
	worker faults $((seed + 34))
	[ -d ${faults[0]} ] || return 0
	local dir pid pids times waits
	while on; do
		dir=${faults[RANDOM % 2]} times=$((5 + RANDOM % 60)) waits=N
		# shellcheck disable=SC2046
		if [ $((RANDOM % 3)) = 0 ]; then
			pids=$(pidof fio) waits=Y
		else
			pids=$(cat $work/pids/* 2>/dev/null)
		fi
		{
			echo 0 >"$dir/verbose"
			echo Y >"$dir/task-filter"
			echo $waits >"$dir/ignore-gfp-wait"
			[ ! -e "$dir/min-order" ] || echo 0 >"$dir/min-order"
			echo 1 >"$dir/interval"
			echo $times >"$dir/times"
		}
		for pid in $pids; do
			echo 1 >/proc/$pid/make-it-fail
			for task in /proc/$pid/task/*; do echo 1 >$task/make-it-fail; done
		done 2>/dev/null || true
		echo $((1 + RANDOM % 20)) >"$dir/probability"
		linger 500 4000
		echo 0 >"$dir/probability"
		add $((times - $(<"$dir/times"))) "fault of ${dir##*/}"
		for pid in $pids; do
			echo 0 >/proc/$pid/make-it-fail
			for task in /proc/$pid/task/*; do echo 0 >$task/make-it-fail; done
		done 2>/dev/null || true
		put
		linger 100 1500
	done
	faults_off
}
