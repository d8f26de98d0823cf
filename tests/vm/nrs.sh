# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# Helpers for the tests of nrs.ko: . /tests/nrs.sh (includes the helpers of lib.sh). A test is a
# list of functions, each run by try: in its own process, with a time limit, on a machine without
# devices.

. /tests/lib.sh
touch /out/log
nrs_logged=$(wc -l </out/log)

# shellcheck disable=SC2034 # for the tests
case $(uname -r) in *nrs-debug*) debug=1 ;; *) debug='' ;; esac

# Front-end of the test: dm, devices of type nrs, or elevator, disks with the I/O scheduler nrs.
front=${NRS_FRONT:-dm}

# dm_only CMD...: Runs a check that applies to device-mapper only.
dm_only() {
	[ "$front" != dm ] || "$@"
}

# slow FAST SLOW: Prints FAST on the stock kernel, SLOW on the debug kernel.
slow() {
	if [ -n "$debug" ]; then echo "$2"; else echo "$1"; fi
}

# debug_long CMD...: Runs a check that the debug kernel runs in `make test-long` only.
debug_long() {
	[ -n "$debug" ] && [ -z "${NRS_LONG:-}" ] || "$@"
}

# say TEXT...: Prints a remark, which is shown if the check fails, and in /out/log.
say() {
	echo "$*"
}

# remarks PATTERN: Prints the remarks of this test's checks that match.
remarks() {
	tail -n +$((nrs_logged + 1)) /out/log | grep -E "$1" | sed 's/^/# /'
}

# fail TEXT...: Prints the reason and ends the check.
fail() {
	echo "$*"
	# The result of a check has the last lines only.
	[[ $* != *$'\n'* ]] || echo "${*%%$'\n'*}"
	exit 1
}

# try SECONDS NAME FUNCTION [ARG...]: Runs a check in its own process, which a failing command or
# the time limit ends. SECONDS is the limit on an idle host; the actual limit is twice that, because
# hosts may be busy, and four times that on the debug kernel. If $only contains names of functions,
# other functions are skipped.
try() {
	case " ${only:-} " in "  " | *" $3 "*) ;; *) return ;; esac
	local limit=$1 name=$2 log=/tmp/try.log pid timer ended='' rc=0 started=$SECONDS
	limit=$((limit * $(slow 2 4)))
	shift 2
	echo "nrs test: $name" >/dev/kmsg
	(
		set -euo pipefail
		trap 'echo "(line $LINENO: $BASH_COMMAND)" >&2' ERR
		exec 9>/tmp/try.trace
		BASH_XTRACEFD=9
		PS4='+ $SECONDS $LINENO '
		set -Ex
		"$@"
	) >"$log" 2>&1 &
	pid=$!
	# Polling would take a fifth of the CPU time in some checks.
	sleep "$limit" &
	timer=$!
	wait -n -p ended "$pid" "$timer" || rc=$?
	if [ "$ended" != "$timer" ]; then
		kill "$timer"
		wait "$timer" 2>/dev/null
	else
		{
			ps -o pid,stat,args | grep -v '\[' && tail -n 8 /tmp/try.trace &&
				echo "no end within $limit s"
		} >>"$log" 2>&1
		# Logs blocked tasks to the kernel log.
		echo w >/proc/sysrq-trigger
		kill -KILL "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
		rc=124
	fi
	[ "$rc" = 0 ] || cp /tmp/try.trace "/out/trace-$((nrs_passed + nrs_failed))"
	{ echo "== $name: status $rc, $((SECONDS - started)) s" && cat "$log"; } >>/out/log
	if [ "$rc" = 0 ]; then
		ok "$name ($((SECONDS - started)) s)"
	else
		not_ok "$name" "$(tail -n 6 "$log")"
	fi
	clean_up || not_ok "$name: cleaning up" "left: $(devices) $(tail -n 5 /tmp/clean.log)"
}

# devices: Prints the names of all dm devices; starts no process.
devices() {
	local file name
	for file in /sys/block/dm-*/dm/name; do
		[ ! -e "$file" ] || { read -r name <"$file" && echo "$name"; }
	done
}

# Program names of loads.
loads=(fio alpha beta dd nrs-test example-timeouts dmsetup)

# resume_all: Resumes each suspended device.
resume_all() {
	local dir name suspended
	for dir in /sys/block/dm-*/dm; do
		[ -e "$dir/suspended" ] || continue
		read -r suspended <"$dir/suspended"
		read -r name <"$dir/name"
		[ "$suspended" = 0 ] || dm resume "$name"
	done
}

# scheduled_disks: Prints the names of the disks whose I/O scheduler is nrs; starts no process.
scheduled_disks() {
	local file text
	for file in /sys/block/*/queue/scheduler; do
		{ read -r text <"$file"; } 2>/dev/null || continue
		[[ $text != *"[nrs]"* ]] || { file=${file#/sys/block/} && echo "${file%%/*}"; }
	done
}

# clean_up: Ends all loads and removes all mounts, devices, configured rules and services.
clean_up() {
	local name dir pids='' round type
	for dir in /sys/fs/cgroup/test* /sys/fs/cgroup/user.slice; do
		[ ! -d "$dir" ] || echo 1 >"$dir/cgroup.kill"
	done
	# shellcheck disable=SC2086 # several processes
	if pids=$(pidof "${loads[@]}"); then kill -KILL $pids 2>/dev/null; fi
	# Otherwise requests that a policy throttles would keep the loads alive.
	for dir in /sys/kernel/debug/nrs/*/; do
		[ ! -d "$dir" ] || echo fifo >"$dir/nrs_policies"
	done 2>/dev/null
	# Suspended or stacked devices may require that another device is removed first.
	for round in 1 2 3; do
		resume_all
		for name in $(scheduled_disks); do echo none >"/sys/block/$name/queue/scheduler"; done
		[ -z "$pids" ] || wait_for 5 '! pidof "${loads[@]}" >/dev/null'
		while read -r _ dir type _; do
			case $dir in /mnt/*) umount "$dir" ;; esac
		done </proc/mounts
		while read -r name type _; do
			[ "$type" = Type ] || swapoff "$name"
		done </proc/swaps
		for name in $(devices); do
			dm remove "$name" || { [ "$round" != 3 ] || dm remove --force "$name"; }
		done
		[ -n "$(devices)" ] || break
	done >/tmp/clean.log 2>&1
	for name in /dev/mapper/*; do [ ! -L "$name" ] || rm "$name"; done
	for dir in /sys/kernel/config/nrs/*/rules/*/ /sys/kernel/config/nrs/*/; do
		[ ! -d "$dir" ] || rmdir "$dir"
	done
	find /sys/fs/cgroup/ -mindepth 1 -depth -type d -path '/sys/fs/cgroup/[tu]*' -exec rmdir {} \;
	for dir in /sys/kernel/config/nullb/*/; do
		dir=${dir%/}
		[ ! -d "$dir" ] || null_blk_remove "${dir##*/}"
	done
	[ ! -d /sys/module/scsi_debug ] || rmmod scsi_debug
	[ -z "$(devices)$(scheduled_disks)" ]
}

# lower NAME [KEY=VALUE...]: Creates a null_blk disk, of 128 MiB by default.
lower() {
	local name=$1
	shift
	null_blk_create "$name" size=128 blocksize=512 queue_mode=2 "$@"
}

# slow_lower NAME NANOSECONDS [KEY=VALUE...]: Creates a disk that completes each request after
# NANOSECONDS, from an interrupt, and never decides the order itself.
slow_lower() {
	local name=$1 time=$2
	shift 2
	lower "$name" irqmode=2 completion_nsec="$time" hw_queue_depth=1024 "$@"
	echo none >"/sys/block/$name/queue/scheduler" 2>/dev/null || true
}

# Disk of each client, if the disk is the client, and statistics of each sharer, in the order of
# creation.
declare -A disk_of stat_of
sharers=()

# insist FILE TEXT AGAIN [ERRORS]: Writes TEXT to FILE, and retries for up to 20 s while the error
# matches AGAIN; ERRORS are not failures.
insist() {
	local said end=$((SECONDS + 20))
	while ! said=$( (echo "$2" >"$1") 2>&1); do
		[[ ! $said =~ ${4:-never} ]] || return 0
		[[ $said =~ $3 ]] && [ $SECONDS -lt $end ] || fail "'$2' to $1: $said"
	done
}

# adjust FILE TEXT: Sets a file of a scheduler, and waits for concurrent changes, however long they
# take.
adjust() {
	[ "$(<"$1")" = "$2" ] || insist "$1" "$2" 'unavailable|timed out'
}

# scheduled DISK SERVICE [ATTRIBUTE VALUE]...: Attaches the disk to the service, and sets attributes
# of its scheduler.
scheduled() {
	local queue=/sys/block/$1/queue
	grep -qF '[nrs]' "$queue/scheduler" || echo nrs >"$queue/scheduler"
	adjust "$queue/iosched/service" "$2"
	shift 2
	while [ $# -gt 0 ]; do
		adjust "$queue/iosched/$1" "$2"
		shift 2
	done
}

# client NAME LOWER SERVICE [WORD...]: Makes LOWER a client, with the path /dev/mapper/NAME: by a
# device of type nrs, or by its I/O scheduler, whose attributes are the words. Any user may use it.
client() {
	local name=$1 dev=$2 service=$3
	shift 3
	if [ "$front" = dm ]; then
		dm_create "$name" "0 $(sectors "$dev") nrs $dev 0 $service${*:+ $# $*}"
	else
		scheduled "${dev#/dev/}" "$service" "$@"
		ln -s "$dev" "/dev/mapper/$name"
		disk_of[$name]=${dev#/dev/}
	fi
	chmod 666 "/dev/mapper/$name"
}

# sharer NAME LOWER SERVICE [WORD...]: Creates a device whose requests are counted separately from
# others on the same disk: a client, or a device of type linear on the single client LOWER.
sharer() {
	local name=$1 dev=$2 service=$3 file
	[ "$front" != dm ] || { client "$@" && return; }
	shift 3
	scheduled "${dev#/dev/}" "$service" "$@"
	# All queued requests must be visible to the scheduler.
	echo 1024 >"/sys/block/${dev#/dev/}/queue/nr_requests"
	dm_create "$name" "0 $(sectors "$dev") linear $dev 0"
	chmod 666 "/dev/mapper/$name"
	disk_of[$name]=${dev#/dev/}
	sharers+=("$name")
	for file in /sys/block/dm-*/dm/name; do
		[ "$(<"$file")" != "$name" ] || stat_of[$name]=${file%dm/name}stat
	done
}

# remove_client NAME: Removes the client; the disk remains.
remove_client() {
	if [ "$front" = dm ]; then
		dm_remove "$1"
	else
		echo none >"/sys/block/${disk_of[$1]}/queue/scheduler"
		rm "/dev/mapper/$1"
	fi
}

# status [DEVICE]: Prints the counters of the device, by default of all devices.
status() {
	if [ "$front" = dm ]; then dm status "$@"; else grep -s '' /sys/block/*/queue/iosched/status; fi
}

# deferred: Prints the number of deferred requests of the disk nb0.
deferred() {
	sed -n 's/.*deferred: \([0-9]*\)$/\1/p' /sys/block/nb0/queue/iosched/status
}

# drain DEVICE: Dispatches all queued requests; of a disk, by a change that freezes it.
drain() {
	local file=/sys/block/${disk_of[$1]:-}/queue/nr_requests
	if [ "$front" = dm ]; then dm message "$1" 0 drain; else echo $(($(<"$file") ^ 1)) >"$file"; fi
}

# hangs [NANOSECONDS]: Creates client a of the service svc on the device lin, which takes
# NANOSECONDS per request (default 1 ms) and can be suspended; unhealthy after 2 s, and no dispatch
# of stalled requests.
hangs() {
	lower nb0 irqmode=2 completion_nsec="${1:-1000000}"
	dm_create lin "0 $(sectors /dev/nb0) linear /dev/nb0 0"
	client a /dev/mapper/lin svc
	local name
	for name in at_early_margin at_min at_extra at_max; do echo 1 >"$(at svc $name)"; done
	echo 2 >"$(at svc at_unhealthy_factor)"
	echo 0 >"$(at svc stall_ms)"
	echo 2 >"$(at svc slots)"
}

# at SERVICE FILE: Prints the path of a control file.
at() {
	echo "/sys/kernel/debug/nrs/$1/$2"
}

# set_to SERVICE FILE VALUE: Writes the value; retries while instances are draining (EAGAIN).
set_to() {
	local file=/sys/kernel/debug/nrs/$1/$2 said round
	for ((round = 0; round < 300; round++)); do
		if said=$( (printf '%s\n' "$3" >"$file") 2>&1); then return 0; fi
		case $said in
		*'temporarily unavailable'*) sleep 0.1 ;;
		*) fail "$2 = '$3': $said" ;;
		esac
	done
	fail "$2 = '$3': still EAGAIN"
}

# settings SERVICE: Prints the control files that change only when they are set; starts no process.
settings() {
	local file
	for file in "/sys/kernel/debug/nrs/$1"/*; do
		case $file in
		*stats_reset | *_error | *stats | *status | *concurrency | *timeouts) continue ;;
		*/clients | */health | */snapshot | */summary) continue ;;
		esac
		echo "$file: $(<"$file")"
	done 2>/dev/null
}

# unchanged WHAT...: Fails if the settings of the service svc differ from $before.
unchanged() {
	local now
	now=$(settings svc)
	# shellcheck disable=SC2154 # the test sets it
	[ "$now" = "$before" ] || fail "changed by '$*': $(diff <(echo "$before") <(echo "$now"))"
}

# policy SERVICE TEXT: Sets the policy of the service.
policy() {
	set_to "$1" nrs_policies "$2"
}

# sum NAME TEXT: Sets $sum to the sum of all counters of that name in a status.
sum() {
	local text=$2
	sum=0
	while [[ $text =~ \ $1:\ ([0-9]+)(.*) ]]; do
		sum=$((sum + BASH_REMATCH[1])) text=${BASH_REMATCH[2]}
	done
}

# counters DEVICE: Sets $counters to the device's counters, of all its targets; starts no process.
counters() {
	local file line mine='' lines
	counters=''
	for file in /sys/kernel/debug/nrs/*/clients; do
		mapfile -t lines <"$file" || continue
		for line in "${lines[@]}"; do
			case $line in
			"- client: \"$1\"") mine=1 ;;
			'  counters: '*)
				[ -z "$mine" ] || counters+=$line
				mine=''
				;;
			esac
		done
	done 2>/dev/null
}

# own_counters SHARER: Sets $held (a lower bound), $ended and $bytes from the sharer's own
# statistics. All requests in flight on the disk are assumed to be the sharer's.
own_counters() {
	local reads writes fields
	read -r reads writes <"/sys/block/${disk_of[$1]}/inflight"
	read -ra fields <"${stat_of[$1]}"
	held=$((fields[8] - reads - writes)) ended=$((fields[0] + fields[4])) \
		bytes=$(((fields[2] + fields[6]) * 512))
	[ "$held" -ge 0 ] || held=0
}

# counter DEVICE NAME: Prints one of the device's counters, summed over its targets.
counter() {
	local sum counters held ended bytes
	if [ -n "${stat_of[$1]:-}" ]; then
		own_counters "$1"
		echo "${!2}"
		return
	fi
	counters "${disk_of[$1]:-$1}"
	sum "$2" "$counters"
	echo "$sum"
}

# ended SERVICE: Prints the completed requests of all clients; starts no process.
ended() {
	local sum
	sum ended "$(<"/sys/kernel/debug/nrs/$1/clients")"
	echo "$sum"
}

# load NAME [as=UID] [OPTION...]: Runs random reads of the device by fio, 4 KiB, libaio, as that
# user if given.
load() {
	local name=$1 run=(fio)
	shift
	# fio's own uid option does not apply to the jobs that numjobs adds.
	case ${1:-} in as=*) run=(setpriv --reuid "${1#as=}" --clear-groups fio) && shift ;; esac
	"${run[@]}" --filename="/dev/mapper/$name" --rw=randread --bs=4k --direct=1 --ioengine=libaio \
		--iodepth=16 --norandommap --minimal --group_reporting --name="$name" "$@"
}

# begin DEVICE [as=UID] [OPTION...]: Starts a load that runs until the check ends.
begin() {
	load "$@" --time_based --runtime=120 >/dev/null 2>&1 &
}

# verified NAME [OPTION...]: Writes data with checksums, reads them back and compares.
verified() {
	local name=$1
	shift
	fio --filename="/dev/mapper/$name" --rw=randwrite --bs=4k --direct=1 --ioengine=libaio \
		--iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 \
		--minimal --group_reporting --name="$name" "$@" >"/tmp/verified-$name.txt" ||
		fail "fio on $name: $(tail -n 3 "/tmp/verified-$name.txt" | cut -c1-300)"
}

# writing NAME [OPTION...]: Writes in the background without end, and verifies each block soon after
# its write; more --name options add writers. written ends the load and fails if any block was
# wrong.
writing() {
	local name=$1
	shift
	fio --filename="/dev/mapper/$name" --nice=10 --rw=randwrite --bssplit=4k/80:64k/20 --direct=1 \
		--ioengine=libaio --iodepth=16 --size=16m --verify=crc32c --verify_fatal=1 \
		--verify_backlog=32 --verify_backlog_batch=32 --verify_state_save=0 --time_based \
		--runtime=600 --minimal --name="$name" "$@" >/tmp/writing.txt 2>&1 &
	writer=$!
}

written() {
	kill -0 "$writer" || fail "the writer has ended: $(cut -c1-300 /tmp/writing.txt | tail -n 3)"
	kill -TERM "$writer"
	wait "$writer" || true
	# shellcheck disable=SC2016
	awk -F';' '$1 == 3 { n++; bad += $5 != 0 } END { exit !(n && !bad) }' /tmp/writing.txt ||
		fail "the writer: $(cut -c1-300 /tmp/writing.txt | tail -n 3)"
}

# balanced DEVICE: Verifies that no request is queued, all requests have completed, and none has
# failed.
balanced() {
	local name=${disk_of[$1]:-$1}
	wait_for 10 "[ \$(counter $name held) = 0 ] &&
		[ \$((\$(counter $name passed) + \$(counter $name queued))) = \$(counter $name ended) ]" ||
		fail "$(status "$1")"
	[ "$(counter "$name" failed)" = 0 ] || fail "$(status "$1")"
}

# of_load FILE CLIENT NAME: Prints a number of that client in a report of nrs-test load, from the
# lines after the client's name.
of_load() {
	awk -v c="\"$2\"," -v n="\"$3\":" \
		'$1 == "\"name\":" { hit = $2 == c } hit && $1 == n { sub(",", "", $2); print $2; exit }' \
		"$1"
}

# ctl STATUS ARG...: Runs nrsctl, which must exit with STATUS; sets $said to its output and $why to
# its errors. With $strict, errors must begin with its name.
ctl() {
	local want=$1 got=0
	shift
	said=$(nrsctl "$@" 2>/tmp/why) || got=$?
	why=$(</tmp/why)
	{ echo "# nrsctl $*" && echo "$said" && cat /tmp/why; } >>/out/transcript
	[ "$got" = "$want" ] || fail "nrsctl $*: status $got, not $want: $said $why"
	[ -z "${strict:-}" ] || [ "$want" = 0 ] || [[ $why == nrsctl:* ]] ||
		fail "nrsctl $*: complains '$why'"
}

# expect_output WANTED: Verifies the output of nrsctl.
expect_output() {
	[ "$said" = "$1" ] || fail "printed '$said', not '$1'"
}

# complains WORDS: Verifies that the errors contain WORDS.
complains() {
	[[ $why == *"$1"* ]] || fail "'$1' is not in '$why'"
}

# looped FILE: Makes the loop device /dev/loop0, without the page cache.
looped() {
	modprobe loop
	losetup --direct-io=on /dev/loop0 "$1"
	chmod 666 /dev/loop0
}

# slices UID...: Makes the slices that systemd makes for these users, with a session each.
slices() {
	local dir=/sys/fs/cgroup/user.slice uid
	mkdir $dir
	echo '+io +memory' >$dir/cgroup.subtree_control
	for uid; do
		mkdir $dir/user-"$uid".slice
		echo '+io +memory' >$dir/user-"$uid".slice/cgroup.subtree_control
		mkdir $dir/user-"$uid".slice/session.scope
	done
}

# in_slice UID COMMAND...: Runs a command as that user, in a session of that user.
in_slice() {
	bash -c 'echo $$ >"$1" && shift && exec "$@"' - \
		"/sys/fs/cgroup/user.slice/user-$1.slice/session.scope/cgroup.procs" \
		setpriv --reuid "$1" --clear-groups "${@:2}"
}

# terse FILE FIELD: Prints that field of fio's report (3 name, 5 error, 6 KiB read, 8 and 49 IOPS,
# 16 mean latency of reads, us).
terse() {
	awk -F';' -v f="$2" '$1 == 3 { print $f }' "$1" | head -n 1
}

# saturated [N] DEVICE...: Waits until each device has at least N (default 4, on the debug kernel 1)
# requests queued.
saturated() {
	local name least
	least=$(slow 4 1)
	case $1 in [0-9]*) least=$1 && shift ;; esac
	for name; do
		wait_for 30 "[ \"\$(counter $name held)\" -ge $least ]" ||
			fail "$name has no backlog: $(status "$name")"
	done
}

# beside: Adds, once per check if NRS_BESIDE is set, a device to the service svc: idle, or with
# directories that four processes of another user read without caching.
beside() {
	[ -n "${NRS_BESIDE:-}" ] && [ ! -e /dev/mapper/beside ] || return 0
	local group=/sys/fs/cgroup/test.beside i
	slow_lower nb9 8000000 memory_backed=1 size=64
	if [ "$NRS_BESIDE" = metadata ]; then
		mkfs.ext4 -q -J size=4 /dev/nb9
		mkdir -p /mnt/beside
		mount -t ext4 /dev/nb9 /mnt/beside
		for i in {1..40}; do mkdir /mnt/beside/$i && touch /mnt/beside/$i/{1..50}; done
		umount /mnt/beside
	fi
	client beside /dev/nb9 svc
	[ "$NRS_BESIDE" = metadata ] || return 0
	mount -t ext4 /dev/mapper/beside /mnt/beside
	mkdir $group
	for i in {1..4}; do
		(
			set +x
			echo $BASHPID >$group/cgroup.procs
			while :; do
				echo 2 >/proc/sys/vm/drop_caches
				setpriv --reuid 1099 --clear-groups find /mnt/beside -size +1k
			done >/dev/null 2>&1
		) &
	done
	wait_for 20 '[ $(counter beside forced) -ge 50 ]' || fail "$(dm status beside)"
}

# window SECONDS COUNTER DEVICE...: Prints the increase of the devices' counters in that time, in
# the order of the arguments. Writes the CPU utilisation in that time, percent, to /tmp/busy.
window() {
	local seconds=$1 name=$2 device before=() cpu
	shift 2
	beside
	cpu=$(cpu_time)
	for device; do before+=("$(counter "$device" "$name")"); done
	sleep "$seconds"
	for device; do
		printf '%d ' $(($(counter "$device" "$name") - before[0]))
		before=("${before[@]:1}")
	done
	echo
	busy_since "$cpu" >/tmp/busy
}

# cpu_time: Prints the busy jiffies of the CPUs, and all jiffies; starts no process.
cpu_time() {
	local part all=0 fields
	read -ra fields </proc/stat
	for part in "${fields[@]:1:8}"; do all=$((all + part)); done
	echo $((all - fields[4] - fields[5])) $all
}

# busy_since TIME: Prints the CPU utilisation, percent, since $(cpu_time) was TIME.
busy_since() {
	local now
	now=$(cpu_time)
	echo $((100 * (${now% *} - ${1% *}) / (${now#* } - ${1#* })))
}

# idle_time BUSY: Fails if the CPU utilisation BUSY is so high that the CPUs may have been the
# bottleneck instead of the disk.
idle_time() {
	[ "$1" -lt 80 ] || fail "CPUs busy $1 %, the result is not valid"
}

# read_counters: Sets all_held, all_ended and all_bytes to the counters of all clients of service
# svc, or of all sharers, in the order of creation. Sets $stamp to the time, us. Starts no process.
read_counters() {
	local line
	all_ended=() all_bytes=() all_held=()
	stamp=${EPOCHREALTIME/./}
	if [ ${#sharers[@]} -gt 0 ]; then
		local held ended bytes name
		for name in "${sharers[@]}"; do
			own_counters "$name"
			all_held+=("$held") all_ended+=("$ended") all_bytes+=("$bytes")
		done
		return
	fi
	while read -r line; do
		[[ $line =~ \ held:\ ([0-9]+),\ ended:\ ([0-9]+),.*\ bytes:\ ([0-9]+) ]] || continue
		all_held+=("${BASH_REMATCH[1]}") all_ended+=("${BASH_REMATCH[2]}") \
			all_bytes+=("${BASH_REMATCH[3]}")
	done </sys/kernel/debug/nrs/svc/clients
}

# backlogged NUMBER...: Waits until each device, in the order of creation, has that many requests
# queued.
backlogged() {
	local i end=$((SECONDS + 30))
	for ((i = 0; i < $#; i++)); do
		until read_counters && [ "${all_held[i]}" -ge "${@:i+1:1}" ]; do
			[ $SECONDS -lt $end ] || fail "no backlog: ${all_held[*]}"
			pause 0.005
		done
	done
}

# gather SECONDS ended|bytes: Sets $got to the increase of each device's counter in about that time,
# $time to the time, us, and $busy to the CPU utilisation, percent.
gather() {
	local -n counters=all_$2
	local before cpu i
	beside
	cpu=$(cpu_time)
	read_counters
	before=("${counters[@]}") time=$stamp got=()
	sleep "$1"
	read_counters
	time=$((stamp - time))
	for i in "${!before[@]}"; do got+=($((counters[i] - before[i]))); done
	busy=$(busy_since "$cpu")
	say "$2 in $((time / 1000)) ms: ${got[*]}; CPUs busy $busy %"
	# The utilisation of a short time is not significant.
	[ "$time" -lt 1500000 ] || idle_time "$busy"
}

# within PERCENT A B: Returns true if A and B differ by at most PERCENT.
within() {
	awk -v p="$1" -v a="$2" -v b="$3" \
		'BEGIN { d = a > b ? a - b : b - a; m = a > b ? b : a; exit !(m > 0 && d * 100 <= p * m) }'
}

# more FACTOR A B: Returns true if A is at least FACTOR times B.
more() {
	awk -v f="$1" -v a="$2" -v b="$3" 'BEGIN { exit !(a >= f * b) }'
}

# refused ERRNO COMMAND...: Verifies that the command fails with that error.
refused() {
	local said want=${errno_text[$1]:-}
	case $1 in
	EBUSY) want+='|Module .* is in use|Resource temporarily unavailable' ;;
	EIO) want+='|I/O error' ;;
	ETIMEDOUT) want+='|Operation timed out' ;;
	esac
	[ -n "$want" ] || fail "refused does not know $1"
	if said=$("${@:2}" 2>&1); then fail "accepted, should give $1: ${*:2}"; fi
	grep -qE "$want" <<<"$said" || fail "should give $1: ${*:2}: $said"
}

# module [PARAM=VALUE...]: Loads nrs.ko if it is not loaded; with parameters, reloads it.
module() {
	[ -d /sys/module/dm_mod ] || modprobe dm-mod
	if [ $# -gt 0 ] && [ -d /sys/module/nrs ]; then rmmod nrs; fi
	[ -d /sys/module/nrs ] || load_nrs default_slots=64 "$@"
}
