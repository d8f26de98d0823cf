#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: fair-tree.sh [FUNCTION...]
#
# Shares on several levels, by the sizes of jobs, by weights and by device time. The disk has a
# fixed service time and there are 8 slots, so the scheduler decides the shares: all sides are
# always backlogged, and the CPUs have much idle time.
. /tests/nrs.sh

only=$*

# setup MICROSECONDS MODE [KEY=VALUE...]: Creates a disk with this service time, and the service.
setup() {
	module
	slow_lower nb0 "$1"000 size=1024 "${@:3}"
	mkdir /sys/kernel/config/nrs/svc
	echo 8 >/sys/kernel/config/nrs/svc/slots
	policy svc "fairshare $2"
}

# begin DEVICE UID[:GID] [OPTION...]: Starts a load of that user, one process, $loader, that runs
# until the check ends.
begin() {
	local name=$1 as=$2
	shift 2
	(
		fio() { exec setpriv --reuid "${as%:*}" --regid "${as#*:}" --clear-groups /bin/fio "$@"; }
		# Few system calls, so that the CPU does not become the bottleneck.
		load "$name" --thread --iodepth=32 --iodepth_batch_submit=8 --iodepth_batch_complete_min=8 \
			--time_based --runtime=300 "$@" >/dev/null 2>&1
	) &
	loader=$!
}

# shares SECONDS COUNTER PERCENT NUMBER...: Verifies that the devices, in the order of their
# creation, get shares in the ratio of these numbers, each within PERCENT of its share. A device
# with 0 does not count.
shares() {
	local want=("${@:4}") i
	gather "$1" "$2"
	awk -v p="$3" -v got="${got[*]}" -v want="${want[*]}" 'BEGIN {
		n = split(want, w); split(got, g)
		for (i = 1; i <= n; i++) if (w[i] > 0) { all += g[i]; sum += w[i] }
		for (i = 1; i <= n; i++) if (w[i] > 0) {
			part = all ? g[i] / all : 0; e = 100 * (part * sum / w[i] - 1); printf "%.4f ", part
			if (e < 0) e = -e
			if (e > worst) worst = e
		}
		printf "of %d, worst error %.2f %%\n", all, worst
		exit !(all > 0 && worst <= p)
	}' || fail "not as ${want[*]}: $(cat "$(at svc nrs_fairshare_stats)")"
	for i in "${!want[@]}"; do
		[ "${want[i]}" = 0 ] || [ "${all_held[i]}" -ge 2 ] || fail "a backlog ended: ${all_held[*]}"
	done
}

# wait_backlogged NUMBER...: Waits until devices with a number other than 0 are backlogged, and
# the requests before that are done.
wait_backlogged() {
	local number least=()
	for number; do
		if [ "$number" = 0 ]; then least+=(0); else least+=(4); fi
	done
	backlogged "${least[@]}"
	sleep 0.3
}

# row NAME: Adds a row to /out/experiments.md, of what shares has printed to /tmp/shares.
row() {
	sed -nE "s/^([0-9. ]+) of ([0-9]+), worst error (.*) %$/| $1 | \1 | \2 | \3 |/p" \
		/tmp/shares | tee -a /out/experiments.md
}

# leave PROCESS DEVICE: Kills the load, and waits until its queued requests are done.
leave() {
	kill -KILL "$1"
	wait "$1" 2>/dev/null || true
	wait_for 20 "[ \"\$(counter $2 held)\" = 0 ]" || fail "$(status "$2")"
}

# Verifies the shares of two groups, four users and eight jobs of one to three nodes, from the
# second second on.
composite() {
	setup 3000 gid_then_uid_then_size_fair
	local jobs=(70:1001:1 71:1002:2 71:1002:3 71:1002:2 71:1003:3 71:1003:2 71:1004:1 71:1004:2) i \
		job
	local want=(.5 .0476190 .0714286 .0476190 .1 .0666667 .0555556 .1111111)
	for i in "${!jobs[@]}"; do client "j$i" /dev/nb0 svc jobid "j$i" size "${jobs[i]##*:}"; done
	for i in "${!jobs[@]}"; do
		IFS=: read -ra job <<<"${jobs[i]}"
		begin "j$i" "${job[1]}:${job[0]}"
	done
	# Waits for the first request of the last job.
	backlogged 1 1 1 1 1 1 1 1
	local start=${EPOCHREALTIME/./}
	until [ $((${EPOCHREALTIME/./} - start)) -ge 980000 ]; do sleep 0.01; done
	say "from $(((${EPOCHREALTIME/./} - start) / 1000)) ms after the last one's first request on"
	shares 1 ended 2 "${want[@]}"
	shares 4 ended 2 "${want[@]}" >/tmp/shares || fail "$(</tmp/shares)"
	row 'group, user, size: 8 jobs'
	cp "$(at svc nrs_fairshare_stats)" /out/composite.yaml
}

# experiment NAME MODE UID:NODES:SHARE...: Verifies the shares of jobs within 1.2 %, the error of
# the published experiments; each node of a job has a process. Adds a row to /out/experiments.md.
experiment() {
	local name=$1 jobs=("${@:3}") want=() i uid nodes share
	setup 3000 "$2"
	for i in "${!jobs[@]}"; do
		IFS=: read -r _ nodes share <<<"${jobs[i]}"
		client "j$i" /dev/nb0 svc jobid "j$i" size "$nodes"
		want+=("$share")
	done
	for i in "${!jobs[@]}"; do
		IFS=: read -r uid nodes _ <<<"${jobs[i]}"
		begin "j$i" "$uid" --numjobs="$nodes"
	done
	wait_backlogged "${want[@]}"
	shares 5 ended 1.2 "${want[@]}" >/tmp/shares || fail "$(</tmp/shares)"
	row "$name"
}

# weigh TEXT: Changes weights.
weigh() {
	set_to svc nrs_fairshare_weights "$1"
}

# Verifies weights set by the file and with the mode, under load; they take effect within two
# intervals.
weights() {
	setup 3000 uid_fair
	local name
	for name in a b c; do client $name /dev/nb0 svc jobid "job.$name"; done
	begin a 1001
	begin b 1002
	begin c 1003
	weigh uid:1002:2,uid:1003:3
	wait_backlogged 1 1 1
	shares 3 ended 2 1 2 3
	weigh 'uid:1001:30 uid:1002:10,uid:1003:20'
	sleep 0.2
	shares 3 ended 2 3 1 2
	weigh 'uid:1002:2,-uid:1001 -uid:1003'
	sleep 0.2
	shares 3 ended 2 1 2 1
	[ "$(cat "$(at svc nrs_fairshare_weights)")" = uid:1002:2 ] ||
		fail "$(cat "$(at svc nrs_fairshare_weights)")"
	weigh clear
	sleep 0.2
	shares 3 ended 2 1 1 1
	[ -z "$(cat "$(at svc nrs_fairshare_weights)")" ]
	# Sets weights with the mode, which applies when the policy is started without an argument.
	policy svc fairshare
	set_to svc nrs_fairshare_mode 'uid_fair weight=uid:1001:4,uid:1003:3'
	wait_backlogged 1 1 1
	shares 3 ended 2 4 1 3
	# Weights survive a change of the mode, and apply on their level; jobs by a pattern.
	weigh 'jobid:job.a:5,jobid:job.?:2'
	set_to svc nrs_fairshare_mode uid_then_jobid_fair
	wait_backlogged 1 1 1
	shares 3 ended 2 4 1 3
	set_to svc nrs_fairshare_mode jobid_fair
	wait_backlogged 1 1 1
	say "$(cat "$(at svc nrs_fairshare_weights)")"
	shares 3 ended 2 5 2 2
	dm message a 0 service nrs_fairshare_weights jobid:job.c:5 jobid:job.b:3,-jobid:job.a
	sleep 0.2
	shares 3 ended 2 2 3 5
}

# Verifies that a job has a share for each network identifier of its clients.
job_sizes() {
	setup 3000 size_fair
	set_to svc nrs_fairshare_size_window_s 2
	client a /dev/nb0 svc nid 10.0.0.1@tcp jobid one
	client b /dev/nb0 svc nid 10.0.0.2@tcp jobid one
	client c /dev/nb0 svc nid 10.0.0.3@tcp jobid two
	begin a 0
	begin b 0
	begin c 0
	wait_backlogged 1 1 1
	wait_for 5 'grep -q "weight: 2" "$(at svc nrs_fairshare_stats)"' ||
		fail "$(cat "$(at svc nrs_fairshare_stats)")"
	sleep 0.2
	shares 3 ended 3 1 1 1
}

# Verifies shares by weight with the random draw of the paper.
drawn() {
	setup 2000 uid_fair
	local name
	for name in a b c; do client $name /dev/nb0 svc; done
	set_to svc nrs_fairshare_select paper
	weigh uid:1002:2,uid:1003:3
	begin a 1001
	begin b 1002
	begin c 1003
	wait_backlogged 1 1 1
	shares 6 ended 6 1 2 3
}

# Verifies FIFO order, and so shares by queue depth, while fewer requests than the threshold are
# queued.
opportunities() {
	setup 3000 uid_fair
	client a /dev/nb0 svc
	client b /dev/nb0 svc
	begin a 1001 --iodepth=64
	begin b 1002 --iodepth=16
	wait_backlogged 1 1
	shares 2 ended 3 1 1
	set_to svc nrs_fairshare_opp_threshold 256
	sleep 0.5
	shares 3 ended 10 4 1
	set_to svc nrs_fairshare_opp_threshold 0
	sleep 0.5
	shares 2 ended 3 1 1
}

# device_time UID: Prints the device time of a user so far, us.
device_time() {
	awk -v e="\"uid:$1\"" '/^- entity:/ { on = $3 == e } on && $1 == "time_us:" { print $2 }' \
		"$(at svc nrs_fairshare_stats)"
}

# mixed COST_MODEL: Runs small random reads against large sequential writes on a disk of 20 MB/s, in
# pieces of 64 KiB.
mixed() {
	setup 500 uid_fair mbps=20 max_sectors=128
	sharer a /dev/nb0 svc
	sharer b /dev/nb0 svc
	set_to svc nrs_fairshare_cost_model "$1"
	begin a 1001 --rw=randread --bs=4k --iodepth=64
	begin b 1002 --rw=write --bs=1m --iodepth=16 --iodepth_batch_submit=1 \
		--iodepth_batch_complete_min=1
	wait_backlogged 1 1
}

bytes() {
	mixed pages
	shares 12 bytes 2 1 1
}

device_times() {
	mixed time
	sleep 2
	local a b before time_a time_b
	a=$(device_time 1001) b=$(device_time 1002) before=${EPOCHREALTIME/./}
	gather 12 bytes
	time_a=$(($(device_time 1001) - a)) time_b=$(($(device_time 1002) - b)) \
		before=$((${EPOCHREALTIME/./} - before))
	say "device time in $((before / 1000)) ms:" \
		"reader $((time_a / 1000)) ms, writer $((time_b / 1000)) ms"
	within 3 $time_a $time_b || fail "$(cat "$(at svc nrs_fairshare_stats)")"
	# The device was never idle, so all of the time is charged to the users.
	within 3 $before $((time_a + time_b)) ||
		fail "$before us passed, $time_a + $time_b were counted"
	# Equal device time means different amounts of bytes.
	more 3 "${got[1]}" "${got[0]}"
}

# Verifies that shares adapt to the arrival and departure of a third user within two intervals.
arrival() {
	setup 2000 uid_fair
	local name delta
	delta=$(cat "$(at svc nrs_fairshare_delta_ms)")
	[ "$delta" = 100 ]
	for name in a b c; do sharer $name /dev/nb0 svc; done
	begin a 1001
	begin b 1002
	wait_backlogged 1 1
	shares 1 ended 5 1 1
	begin c 1003
	backlogged 1 1 1
	sleep 0.2
	# Counters are read one after the other, which takes some hundredths of a second on busy CPUs.
	shares 1.5 ended 5 1 1 1
	leave "$loader" c
	sleep 0.2
	shares 1.5 ended 5 1 1
}

# total DEVICE...: Sets $all to the requests of all devices in 3 s.
total() {
	sleep 0.5
	gather 3 ended
	local n
	all=0
	for n in "${got[@]}"; do all=$((all + n)); done
}

# Verifies that a lone job loses no throughput, and that two jobs together get as much as one.
alone() {
	# The phase of completions causes an error of 4 % at 3 ms per request, but 1 % here, under any
	# policy.
	setup 12000 gid_then_uid_then_jobid_fair
	sharer a /dev/nb0 svc
	sharer b /dev/nb0 svc
	local fifo fair
	begin a 1001
	backlogged 4
	policy svc fifo
	total
	fifo=$all
	policy svc fairshare
	total
	fair=$all
	begin b 1002
	backlogged 4 4
	total
	say "requests in 3 s: fifo $fifo, alone $fair, two $all"
	more 0.95 "$fair" "$fifo"
	more 0.97 "$all" "$fair"
}

# limit ITEMS: Changes limits.
limit() {
	set_to svc nrs_fairshare_limits "$1"
}

# rates PERCENT NUMBER...: Verifies that the devices, in the order of their creation, dispatch that
# many requests/s, each within PERCENT; a number of 0 does not count.
rates() {
	local want=("${@:2}") i
	gather 6 ended
	for i in "${!want[@]}"; do
		[ "${want[i]}" = 0 ] || within "$1" $((got[i] * 1000)) $((want[i] * time / 1000)) ||
			fail "not $* requests/s: ${got[*]}: $(cat "$(at svc nrs_fairshare_stats)" \
				"$(at svc clients)")"
	done
}

# users MICROSECONDS MODE UID:GID...: Creates the service, and a backlogged device for each user,
# whose load is in $loaders.
users() {
	setup "$1" "$2"
	local names=(a b c) i as=("${@:3}")
	for i in "${!as[@]}"; do sharer "${names[i]}" /dev/nb0 svc; done
	loaders=()
	for i in "${!as[@]}"; do
		begin "${names[i]}" "${as[i]}"
		loaders+=("$loader")
	done
	backlogged "${as[@]/*/4}"
}

# Verifies maximums of a user and of a group beside others, which share the rest exactly: 240
# requests/s. A maximum that changes all the time grants nothing.
limited() {
	users 33333 gid_then_uid_fair 1001:70 1002:70 1003:71
	limit uid:1003:max=20
	sleep 0.5
	rates 2 110 110 20
	limit 'uid:1003:max=unlimited gid:70:max=60'
	weigh uid:1002:2
	sleep 0.5
	rates 2 20 40 180
	limit 'clear gid:70:max=60 uid:*:max=30'
	sleep 0.5
	rates 2 30 30 30
	grep -q 'limit_hits: [1-9]' "$(at svc nrs_fairshare_stats)"
	(
		while limit uid:1003:max=20+burst=10s; do
			limit uid:1003:max=20+class=idle
			sleep 0.2
		done
	) &
	local changes=$!
	sleep 0.5
	rates 3 0 0 20
	kill $changes
	refused EINVAL limit uid:1003:min=20+max=10
	limit clear
	sleep 0.5
	rates 2 40 80 120
}

# Verifies requests and bytes at once: each user has buckets of its own.
both() {
	users 3000 uid_fair 1001:70 1002:70 1003:71
	limit 'uid:*:max=80iops+400KiB/s'
	sleep 0.5
	# 4 KiB each, so that requests are the closer limit.
	rates 1 80 80 80
	limit 'uid:1002:max=160iops+400KiB/s'
	sleep 0.5
	rates 1 80 100 80
}

# Verifies limits of reads and writes apart: neither waits for the other, and the rest of the user
# takes what they leave.
apart() {
	setup 33333 uid_then_opcode_fair
	local name
	for name in a b c; do sharer $name /dev/nb0 svc; done
	begin a 1001
	begin b 1001 --rw=randwrite
	begin c 1002
	backlogged 4 4 4
	limit 'uid:1001&opcode:ost_write:max=20'
	sleep 0.5
	rates 2 100 20 120
	limit 'clear uid:*&opcode:ost_read:max=40'
	sleep 0.5
	rates 2 40 160 40
}

# Verifies shares by the I/O priorities of processes: within a user, and of all users.
priorities() {
	setup 33333 uid_then_ioprio_fair
	local name
	for name in a b c; do sharer $name /dev/nb0 svc; done
	begin a 1001 --prio=0
	begin b 1001 --prioclass=3
	begin c 1002
	backlogged 4 4 4
	rates 2 120 0 120
	[ "${got[1]}" -lt 10 ] || fail "idle: ${got[1]}"
	grep -q 'uid:1001/ioprio:idle' "$(at svc nrs_fairshare_stats)"
	policy svc 'fairshare ioprio_then_uid_fair'
	sleep 0.5
	rates 2 160 0 80
	limit 'ioprio:be-0:class=idle ioprio:idle:class=normal'
	weigh ioprio:idle:4
	sleep 0.5
	rates 2 0 120 120
}

# Verifies maximums in percent of the capacity that slots=auto measures: 800 requests/s for each
# device.
percent() {
	local devices=${NRS_BESIDE:+2}
	devices=${devices:-1}
	module
	slow_lower nb0 10000000 size=1024
	mkdir /sys/kernel/config/nrs/{below,svc}
	client disk /dev/nb0 below
	echo 8 >/sys/kernel/config/nrs/below/slots
	policy svc 'fairshare uid_fair'
	echo auto >/sys/kernel/config/nrs/svc/slots
	limit "uid:1001:max=$((20 / devices))%"
	client a /dev/mapper/disk svc
	client b /dev/mapper/disk svc
	begin a 1001
	begin b 1002
	wait_for 20 'grep -q "knee_rate: [1-9]" "$(at svc clients)"' ||
		fail "$(cat "$(at svc clients)")"
	sleep 0.5
	rates 5 160 640
	# Requests that limits throttle do not count in the search, so the capacity stays as it is.
	limit "clear uid:*:max=$((40 / devices))%"
	sleep 0.5
	rates 5 320 320
	# A disk that is slower for a time keeps its capacity.
	echo 4 >/sys/kernel/config/nrs/below/slots
	sleep 4
	echo 8 >/sys/kernel/config/nrs/below/slots
	# The search may have found 4 slots, which it keeps for a rest.
	wait_for 20 'grep -Eq "knee: ([89]|[1-9][0-9])" "$(at svc clients)"' ||
		fail "$(cat "$(at svc clients)")"
	sleep 0.5
	rates 5 320 320
	grep -q "limits_full: 0" "$(at svc nrs_policies)"
}

# Verifies that a maximum holds over two disks of unlike speed, which get tokens in turn, and that
# others on the disks are not held up.
two_disks() {
	module
	slow_lower nb0 33333000 size=1024
	slow_lower nb1 3000000 size=1024
	mkdir /sys/kernel/config/nrs/svc
	echo 8 >/sys/kernel/config/nrs/svc/slots
	policy svc 'fairshare uid_fair'
	sharer a /dev/nb0 svc
	sharer b /dev/nb1 svc
	sharer c /dev/nb1 svc
	begin a 1001
	begin b 1001
	begin c 1002
	backlogged 4 4 4
	limit uid:1001:max=60
	sleep 0.5
	rates 2 0 0 0
	within 2 $(((got[0] + got[1]) * 1000)) $((60 * time / 1000)) || fail "${got[*]}"
	[ "${got[0]}" -ge 100 ] && [ "${got[1]}" -ge 100 ] || fail "not in turn: ${got[*]}"
	more 0.9 "${got[2]}" $((2600 * time / 1000000)) || fail "${got[*]}"
}

# Verifies a minimum of a user whose share is 1/31, and classes of importance.
minimum() {
	users 33333 uid_fair 1001:70 1002:70
	weigh uid:1002:30
	sleep 0.5
	rates 10 8 232
	limit uid:1001:min=60
	sleep 0.5
	rates 2 60 180
	limit 'clear uid:1002:class=idle'
	weigh clear
	sleep 0.5
	gather 4 ended
	more 20 "${got[0]}" "${got[1]}" || fail "idle got ${got[*]}"
	# Class idle gets all that is left.
	leave "${loaders[0]}" a
	sleep 0.5
	gather 4 ended
	within 3 "${got[1]}" $((240 * time / 1000000)) || fail "alone got ${got[*]}"
}

# Verifies a burst at the speed of the disk, and then the rate.
spent() {
	setup 3000 uid_fair
	sharer a /dev/nb0 svc
	limit uid:1001:max=20+burst=10s
	local before start=${EPOCHREALTIME/./}
	before=$(counter a ended)
	begin a 1001
	wait_for 10 '[ $(($(counter a ended) - before)) -ge 200 ]' || fail "$(status)"
	start=$((${EPOCHREALTIME/./} - start))
	say "a burst of 200 in $((start / 1000)) ms"
	[ $start -le 3000000 ]
	rates 2 20
}

# Verifies weights of cgroups that follow io.weight, also of a cgroup without a weight of its own.
followed() {
	setup 33333 cgroup_fair
	echo +io >/sys/fs/cgroup/cgroup.subtree_control
	local name group
	for name in a b c; do
		group=/sys/fs/cgroup/test.$name
		mkdir $group
		sharer $name /dev/nb0 svc
		(
			echo $BASHPID >$group/cgroup.procs
			begin $name 1001
		)
	done
	echo 400 >/sys/fs/cgroup/test.a/io.weight
	nrsctl weight follow svc --interval 0.2 &
	local follower=$!
	wait_backlogged 4 1 1
	shares 6 ended 2 4 1 1
	echo 50 >/sys/fs/cgroup/test.c/io.weight
	sleep 0.5
	shares 6 ended 2 8 2 1
	[ "$(nrsctl weight list svc | awk '{ print $1 "=" $2 }' | sort | tr '\n' ' ')" = \
		'NAME=WEIGHT cgroup:""=100 cgroup:*=100 cgroup:/test.a=400 cgroup:/test.c=50 ' ] ||
		fail "$(nrsctl weight list svc)"
	kill $follower
}

try 60 "fairshare: maximums of a user and a group within 2 %, the rest by weight" limited
long try 60 "fairshare: requests and bytes at once, for each user" both
try 60 "fairshare: limits of reads and writes apart, within 2 %" apart
try 60 "fairshare: shares by I/O priority, in a user and of all, within 2 %" priorities
dm_only try 60 "fairshare: maximums in percent of the measured capacity, within 5 %" percent
try 60 "fairshare: a minimum within 2 %; class idle gets what is left" minimum
long try 60 "fairshare: a burst" spent
long try 60 "fairshare: a maximum over two disks of unlike speed, within 2 %" two_disks
try 60 "fairshare: weights of cgroups from io.weight, 4 : 1 within 2 %" followed
dm_only try 60 \
	"two groups, four users, eight jobs: each share within 2 % from the second second on" composite
dm_only long try 90 "weights, within 2 %" weights
while read -r name; do
	IFS=, read -r title mode jobs <<<"$name"
	# shellcheck disable=SC2086 # several jobs
	dm_only long try 60 "published: $title" experiment "$title" "$mode" $jobs
done <<'END'
job-fair: 1 node and 1,jobid_fair,1001:1:1 1002:1:1
job-fair: 4 nodes and 1,jobid_fair,1001:4:1 1002:1:1
size-fair: 2 nodes and 1,size_fair,1001:2:2 1002:1:1
size-fair: 4 nodes and 1,size_fair,1001:4:4 1002:1:1
size-fair: 8 nodes and 1,size_fair,1001:8:8 1002:1:1
user-fair: two jobs of a user and one,uid_then_jobid_fair,1001:1:1 1002:1:2 1001:1:1
END
dm_only try 60 "a job of two clients has twice the share of a job of one, within 3 %" job_sizes
dm_only try 60 "select paper: weighted shares within 6 %" drawn
dm_only try 60 "opp_threshold: shares by queue depth within 10 %, without it equal" opportunities
long try 90 "4 KiB reads against 1 MiB writes: bytes within 2 %" bytes
long try 90 "4 KiB reads against 1 MiB writes: device time within 3 %" device_times
try 60 "arrival and departure: shares within 5 % after two intervals" arrival
long try 60 "a lone job has 95 % of fifo, two jobs together 97 % of one" alone
remarks '^(ended|bytes|size|by |from|device|requests|[0-9. ]* of )'
summary
