#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Contents and input of the files of tbf, and its statistics.
. /tests/nrs.sh

# rule WORD...: Writes a rule command.
rule() {
	set_to svc nrs_tbf_rule "$*"
}

# Verifies the exact contents of the files, and the accepted input.
files() {
	module
	lower nb0
	mkdir /sys/kernel/config/nrs/svc
	local cpts list i
	cpts=$(nproc)
	echo "$cpts" >/sys/kernel/config/nrs/svc/cpts
	client a /dev/nb0 svc
	list=$(at svc nrs_tbf_rule)
	# Under another policy there are no rules.
	if cat "$list" 2>/tmp/said; then fail "rules without tbf"; fi
	grep -q 'No such device' /tmp/said || fail "$(cat /tmp/said)"
	expect_errno EINVAL "$list" 'start r uid={1} rate=1'
	expect_errno ENODEV "$list" 'change r rate=1'
	expect_errno ENODEV "$list" 'stop r'
	policy svc 'tbf uid+jobid'
	rule start one 'uid={1  2},  jobid={a*  b.0}&uid={0x10}' rate=100
	rule start two 'uid={3}'
	rule reg start three 'jobid={c}' rate=5MB/s
	rule hp start four 'jobid={c}' rate=2048KiB/s rank=one
	load a --io_size=4k --cpus_allowed=0 >/dev/null
	policy svc 'tbf uid+jobid'
	{
		echo regular_requests:
		for ((i = 0; i < cpts; i++)); do
			echo "CPT $i:"
			echo 'three jobid={c} 5MB/s, ref 0'
			echo 'two uid={3} 10000, ref 0'
			echo 'one uid={1  2},  jobid={a*  b.0}&uid={0x10} 100, ref 0'
			echo "default * 10000, ref $((i == 0))"
		done
		echo high_priority_requests:
		for ((i = 0; i < cpts; i++)); do
			echo "CPT $i:"
			echo 'two uid={3} 10000, ref 0'
			echo 'four jobid={c} 2MiB/s, ref 0'
			echo 'one uid={1  2},  jobid={a*  b.0}&uid={0x10} 100, ref 0'
			echo 'default * 10000, ref 0'
		done
	} >/tmp/expected
	diff /tmp/expected "$list"
	# The same by message.
	dm message a 0 service nrs_tbf_rule | diff /tmp/expected -
	# More rules than fit on a page.
	for i in $(seq 150); do echo "start n$i jobid={name_of_a_job_$i.*} rate=$i" >"$list"; done
	[ "$(grep -c '^n[0-9]* jobid' "$list")" = $((300 * cpts)) ]
}

# Verifies the statistics, by rule and by class.
statistics() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	mkdir -p /tmp/names
	policy svc 'tbf jobid'
	rule start twos 'jobid={two*}' rate=1000000
	rule start bytes 'jobid={by*}' rate=100MiB/s
	local name i=10
	for name in two2 two1 bytes1 'a"b' 'b\c' $'p\nq' ' u'; do
		i=$((i + 1))
		ln -sf /bin/busybox "/tmp/names/$name"
		# shellcheck disable=SC2016
		bash -c 'exec -a dd "$@" 2>/dev/null' bash "/tmp/names/$name" if=/dev/mapper/a \
			of=/dev/null bs=8k count="$i" iflag=direct
	done
	rm -r /tmp/names
	awk '
		$2 == "rule:" { rule = $3 }
		/classes:$/ { exit }
		$1 == "dispatched:" { n[rule] += $2 }
		$1 == "cost:" { c[rule] += $2 }
		END {
			exit !(n["\"twos\""] == 23 && c["\"twos\""] == 23 && n["\"bytes\""] == 13 &&
				c["\"bytes\""] == 13 * 8192 && n["\"default\""] == 62)
		}
	' "$(at svc nrs_tbf_stats)" || fail "$(cat "$(at svc nrs_tbf_stats)")"
	[ "$(grep -c class: "$(at svc nrs_tbf_stats)")" -ge 7 ] ||
		fail "$(cat "$(at svc nrs_tbf_stats)")"
	echo 1 >"$(at svc nrs_tbf_stats_reset)"
	! grep -E 'dispatched: [1-9]|cost: [1-9]' "$(at svc nrs_tbf_stats)" ||
		fail "not reset: $(cat "$(at svc nrs_tbf_stats)")"
	# A limit that is reached: number of hits and throttled time.
	rule change default rate=20
	load a --io_size=80k --iodepth=4 >/dev/null
	awk '
		/- rule: "default"/ { on = 1 }
		/- rule: "[^d]|classes:$/ { on = 0 }
		on && /dispatched:/ { n = $2 }
		on && /throttled_ns:/ { t = $2 / 1e9 }
		on && /limit_hits:/ { h = $2 }
		END { print n, t, h; exit !(n == 20 && t > 0.7 && t < 1.1 && h >= 15 && h <= 20) }
	' "$(at svc nrs_tbf_stats)" || fail "$(cat "$(at svc nrs_tbf_stats)")"
}

long try 60 "contents and accepted input of the files" files
long try 60 "statistics" statistics
summary
