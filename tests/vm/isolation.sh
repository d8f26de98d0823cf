#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A user with more program names than the table has room for takes nothing from others. Each request
# takes 40 ms and there are 8 slots, so that the CPUs have time for 150 processes.
. /tests/nrs.sh

programs=150

# setup POLICY: Creates device a for the victim and b for the storm, in a service with room for 64
# classes.
setup() {
	module classes_max=64
	slow_lower nb0 40000000
	client a /dev/nb0 svc
	client b /dev/nb0 svc
	echo 8 >"$(at svc slots)"
	policy svc "$*"
}

# storm: Starts programs of user 1002, each with a different name and one request at a time.
storm() {
	local i dir=/sys/fs/cgroup/test-storm
	mkdir -p /tmp/names $dir
	(
		echo $BASHPID >$dir/cgroup.procs
		for ((i = 0; i < programs; i++)); do
			ln -sf "$(command -v dd)" /tmp/names/p$i
			# The argument selects the program, and the file the name of the task.
			setpriv --reuid 1002 --clear-groups bash -c \
				"exec -a dd /tmp/names/p$i if=/dev/mapper/b of=/dev/null bs=4k iflag=direct" \
				2>/dev/null &
		done
	)
	wait_for 60 "[ \"\$(counter b held)\" -ge $((programs - 16)) ]" || fail "$(dm status b)"
}

# overflow: Prints the number of requests without a class of their own.
overflow() {
	sed -n '1s/.* overflow: \([0-9]*\).*/\1/p' "$(at svc clients)"
}

# Verifies a share of one half, before and beside the storm.
shares() {
	setup fairshare uid_then_jobid_fair
	begin a as=1001
	begin b as=1002
	backlogged 4 4
	gather 5 ended
	within 5 "${got[0]}" "${got[1]}" || fail "alone: ${got[*]}"
	storm
	gather 5 ended
	gather 20 ended
	[ "$(overflow)" -gt 0 ] || fail "the table did not overflow: $(head -n 1 "$(at svc clients)")"
	within 5 "${got[0]}" "${got[1]}" || fail "beside $programs programs: ${got[*]}"
}

# Verifies a rate of 20 requests per second, for a job that arrives at a full table.
rates() {
	setup tbf jobid
	echo 'start victim jobid={fio.1001} rate=20' >"$(at svc nrs_tbf_rule)"
	echo 'change default rate=1' >"$(at svc nrs_tbf_rule)"
	storm
	begin a as=1001
	backlogged 4
	gather 2 ended
	gather 20 ended
	within 5 $((20 * time / 1000000)) "${got[0]}" || fail "in $time us: ${got[*]}"
}

try 120 "a user of $programs names has the share of one user" shares
try 120 "a rule is kept beside $programs names" rates
summary
