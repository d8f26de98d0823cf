# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# Helpers for guest scripts: . /tests/lib.sh. Bash and busybox only.

nrs_passed=0 nrs_failed=0

# ok NAME: Counts and prints a passed check. all.sh reads the counts from the file $NRS_TALLY.
ok() {
	nrs_passed=$((nrs_passed + 1))
	echo "ok $((nrs_passed + nrs_failed)) - $1"
	[ -z "${NRS_TALLY:-}" ] || echo ok >>"$NRS_TALLY"
}

# not_ok NAME REASON: Counts and prints a failed check, with the last ten lines of the reason,
# joined and cut to 2000 characters.
not_ok() {
	local reason
	nrs_failed=$((nrs_failed + 1))
	reason=$(tail -n 10 <<<"${2:-}" | tr '\n' ' ')
	echo "not ok $((nrs_passed + nrs_failed)) - $1 # ${reason:0:2000}"
	[ -z "${NRS_TALLY:-}" ] || echo bad >>"$NRS_TALLY"
}

# long CMD...: Runs a check that belongs to `make test-long` only.
long() {
	[ -z "${NRS_LONG:-}" ] || "$@"
}

# brief SHORT LONG: Prints SHORT in `make test`, LONG in `make test-long`.
brief() {
	if [ -n "${NRS_LONG:-}" ]; then echo "$2"; else echo "$1"; fi
}

# check NAME CMD...: Passes if CMD succeeds; otherwise the output of CMD is the reason.
check() {
	local name=$1 said
	shift
	if said=$("$@" 2>&1); then ok "$name"; else not_ok "$name" "$said"; fi
}

# check_eq NAME WANTED GOT: Passes if GOT equals WANTED.
check_eq() {
	if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "wanted '$2', got '$3'"; fi
}

# A pipe that never has data; opened here, because this sets $!.
exec {nrs_pause}<> <(:)

# pause SECONDS: Sleeps without starting a process.
pause() {
	read -rt "$1" -u "$nrs_pause" || true
}

# wait_for SECONDS CONDITION: Waits until the shell text CONDITION is true; fails after twice the
# time, because hosts may be busy.
wait_for() {
	local end=$((SECONDS + $1 * 2))
	until eval "$2"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		pause 0.05
	done
}

# Parameter that selects the KUnit suites that run when a module is loaded.
suites=/sys/module/kunit/parameters/filter_glob

# load_nrs [PARAM=VALUE...]: Loads the module without its KUnit suites, which take half a minute
# each time; kunit.sh runs them.
load_nrs() {
	[ ! -e $suites ] || echo none >$suites
	insmod "${NRS_KO:-/nrs.ko}" "$@"
}

# null_blk_create NAME [KEY=VALUE...]: Creates the disk /dev/NAME; keys are those of null_blk's
# configfs directory.
null_blk_create() {
	local name=$1 dir=/sys/kernel/config/nullb/$1 pair
	shift
	[ -d /sys/module/null_blk ] || modprobe null_blk nr_devices=0 || return
	mkdir "$dir" || return
	for pair; do
		echo "${pair#*=}" >"$dir/${pair%%=*}" || return
	done
	echo 1 >"$dir/power" || return
	wait_for 10 "[ -b /dev/$name ]"
}

# null_blk_remove NAME: Removes the disk.
null_blk_remove() {
	echo 0 >"/sys/kernel/config/nullb/$1/power"
	rmdir "/sys/kernel/config/nullb/$1"
}

# There is no udev; with this variable dmsetup creates and removes the nodes in /dev/mapper itself.
export DM_DISABLE_UDEV=1
dm() {
	dmsetup "$@"
}

# dm_create NAME TABLE: Creates a device-mapper device.
dm_create() {
	dm create "$1" --table "$2" && [ -b "/dev/mapper/$1" ]
}

# dm_remove NAME: Removes a device-mapper device.
dm_remove() {
	dm remove "$1" && [ ! -e "/dev/mapper/$1" ]
}

# sectors DEVICE: Prints its size in 512-byte sectors.
sectors() {
	blockdev --getsz "$1"
}

# reads_in FILE DEVICE: Sets $reads and $read_bytes to what the cgroup of the io.stat FILE has read
# from DEVICE (MAJOR:MINOR); starts no process. A device that the group has only just begun to use
# has a line without numbers.
reads_in() {
	local dev rbytes rios _
	reads=0 read_bytes=0
	while read -r dev rbytes _ rios _; do
		[ "$dev" != "$2" ] || [ -z "$rios" ] ||
			{ reads=${rios#rios=} && read_bytes=${rbytes#rbytes=}; }
	done <"$1"
}

# Error texts of the C library.
declare -A errno_text=(
	[EPERM]='Operation not permitted' [ENOENT]='No such file or directory'
	[EIO]='Input/output error' [ENXIO]='No such device or address'
	[E2BIG]='Argument list too long' [EAGAIN]='Resource temporarily unavailable'
	[EACCES]='Permission denied' [EBUSY]='Device or resource busy'
	[EEXIST]='File exists' [ENODEV]='No such device' [EINVAL]='Invalid argument'
	[ENOSPC]='No space left on device'
	[ELOOP]='Too many levels of symbolic links' [ETIMEDOUT]='Connection timed out'
	[ENOTEMPTY]='Directory not empty'
	[ENAMETOOLONG]='File name too long' [ENOMEM]='Cannot allocate memory'
)

# expect_errno ERRNO FILE TEXT: Verifies that writing TEXT to FILE fails with ERRNO (a name such as
# EINVAL).
expect_errno() {
	local said text=${errno_text[$1]:-}
	[ -n "$text" ] || { echo "expect_errno does not know $1" && return 2; }
	if said=$( (printf '%s\n' "$3" >"$2") 2>&1); then
		echo "writing '$3' to $2 was accepted, $1 was expected"
		return 1
	fi
	case $said in *"$text"*) return 0 ;; esac
	echo "writing '$3' to $2: $said, $1 was expected"
	return 1
}

# summary: Prints the closing line; its status is that of the whole script, so it is called last.
summary() {
	echo "$nrs_passed passed, $nrs_failed failed"
	[ "$nrs_failed" = 0 ] && [ "$nrs_passed" -gt 0 ]
}
