#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Everything that must be refused: each with its error, and nothing changed.
. /tests/nrs.sh

size=2048
dir=/sys/kernel/config/nrs
long=$(printf 'x%.0s' $(seq 1100))

# state: all that can be seen of the module.
state() {
	local file files=()
	for file in /sys/kernel/debug/nrs/*/* /sys/module/nrs/parameters/* $dir/*/*; do
		# What only takes writes has nothing to show; why a rule or a configuration was refused changes with each, and times go by.
		case $file in *stats_reset | *rule_error | *config_error | *timeouts) continue ;; esac
		[ ! -f "$file" ] || files+=("$file")
	done
	# One process for all of them; what cannot be read now (rules without tbf) shows nothing.
	grep -sH '' "${files[@]}" || true
	dm table
	dm status
	ls /sys/kernel/debug/nrs $dir
}

# unchanged WHAT: the state is that of the start.
unchanged() {
	state >/tmp/after
	cmp -s /tmp/before /tmp/after || fail "changed by $1: $(diff /tmp/before /tmp/after)"
}

# Lines FILE|VALUE|ERRNO; in a value, \n and the like are characters.
writes() {
	local file value errno path
	while IFS='|' read -r file value errno; do
		path=$(at svc "$file")
		[ -e "$path" ] || fail "no $path"
		expect_errno "$errno" "$path" "$(printf '%b' "${value/LONG/$long}")"
		unchanged "$file=$value"
		tried=$((tried + 1))
	done
}

# Lines of words for dm message|ERRNO
messages() {
	local words errno
	while IFS='|' read -r words errno; do
		# shellcheck disable=SC2086
		refused "$errno" dm message a 0 $words
		unchanged "message $words"
		tried=$((tried + 1))
	done
}

# Lines ERRNO|what the kernel's log gives as the reason|what follows "START LEN nrs "
tables() {
	local errno reason words
	while IFS='|' read -r errno reason words; do
		echo "wrong table $tried" >/dev/kmsg
		refused "$errno" dm create wrong --table "0 $size nrs $(printf '%b' "$words")"
		dmesg | sed "1,/wrong table $tried\$/d" >/tmp/said
		grep -qE "$reason" /tmp/said || fail "'$words': no '$reason' in the log: $(cat /tmp/said)"
		[ "$(devices | grep -c wrong)" = 0 ] || fail "'$words' left a device"
		unchanged "table $words"
		tried=$((tried + 1))
	done
}

# all FUNCTION FILE: with a service that has settings unlike the defaults.
all() {
	module
	lower nb0
	lower nb1
	lower zoned zoned=1 zone_size=4
	client a /dev/nb0 svc
	mkdir $dir/made
	set_to svc nrs_fairshare_delta_ms 70
	set_to svc nrs_fairshare_select paper
	set_to svc nrs_fairshare_weights 'uid:1001:2,-uid:1001,gid:7:3,jobid:a*:4'
	set_to svc nrs_fairshare_size_window_s 20
	set_to svc slots 9
	set_to svc high_priority_ratio 4
	policy svc 'fairshare gid_then_size_fair'
	wait_for 10 "! grep -q 'state: stopping' $(at svc nrs_policies)"
	state >/tmp/before
	tried=0
	"$1" <"$2"
	say "$tried tried"
	[ "$tried" -ge 10 ]
}

cat >/tmp/writes <<'END'
nrs_policies||EINVAL
nrs_policies|nosuch|ENOENT
nrs_policies|fairshare uid_then_uid_fair|EINVAL
nrs_policies|LONG|EINVAL
nrs_policies|fairshare \0377\0376|EINVAL
nrs_tbf_rule|change default rate=5|ENODEV
nrs_fairshare_mode|uid_fair weight=uid:1:2,uid:2:10001|EINVAL
nrs_fairshare_mode|uid_fair weight=-uid:77|ENOENT
nrs_fairshare_weights|uid:1:2 uid:2:0|EINVAL
nrs_fairshare_weights|clear,-gid:7|ENOENT
nrs_fairshare_delta_ms|9|EINVAL
nrs_fairshare_select|golden|EINVAL
slots|65536|EINVAL
nrs_fairshare_stats|x|EINVAL
END

cat >/tmp/messages <<'END'
nosuch|EINVAL
drain now|EINVAL
service|EINVAL
service nosuch|ENOENT
service nosuch 5|ENOENT
service ../a/slots 5|ENOENT
service slots 5 6|EINVAL
service nrs_policies nosuch|ENOENT
service nrs_fairshare_mode uid_then_uid_fair|EINVAL
service nrs_fairshare_weights uid:1:2,-uid:77|ENOENT
service nrs_fairshare_stats 1|EACCES
service nrs_fairshare_stats_reset|EACCES
END

cat >/tmp/tables <<'END'
EINVAL|[Aa]rguments missing|
EINVAL|[Aa]rguments missing|/dev/nb1
EINVAL|[Aa]rguments missing|/dev/nb1 0
EINVAL|OFFSET:|/dev/nb1 x svc
EINVAL|OFFSET:|/dev/nb1 -1 svc
EINVAL|OFFSET:|/dev/nb1 +1 svc
EINVAL|OFFSET:|/dev/nb1 1.5 svc
EINVAL|OFFSET:|/dev/nb1 18446744073709551615 svc
EINVAL|OFFSET:|/dev/nb1 99999999999999999999 svc
EINVAL|too small|/dev/nb1 1000000 svc
ENOENT|nrs: |/dev/nosuch 0 svc
EINVAL|SERVICE:|/dev/nb1 0 .svc
EINVAL|SERVICE:|/dev/nb1 0 a/b
EINVAL|SERVICE:|/dev/nb1 0 a"b
EINVAL|SERVICE:|/dev/nb1 0 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
EINVAL|SERVICE:|/dev/nb1 0 LONGNAME
EINVAL|COUNT:|/dev/nb1 0 svc x
EINVAL|COUNT:|/dev/nb1 0 svc -1
EINVAL|COUNT:|/dev/nb1 0 svc 1
EINVAL|COUNT:|/dev/nb1 0 svc 0 nid
EINVAL|COUNT:|/dev/nb1 0 svc 2 nid
EINVAL|COUNT:|/dev/nb1 0 svc nid 10.0.0.1@tcp
EINVAL|COUNT:|/dev/nb1 0 svc 99999999999999999999
EINVAL|nid:|/dev/nb1 0 svc 1 nid
EINVAL|nid:|/dev/nb1 0 svc 2 nid 10.0.0.1
EINVAL|nid:|/dev/nb1 0 svc 2 nid 10.0.0.256@tcp
EINVAL|nid:|/dev/nb1 0 svc 2 nid 10.0.0.1@nosuch
EINVAL|nid:|/dev/nb1 0 svc 4 nid 10.0.0.1@tcp nid 10.0.0.2@tcp
EINVAL|jobid:|/dev/nb1 0 svc 1 jobid
EINVAL|jobid:|/dev/nb1 0 svc 2 jobid xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
EINVAL|jobid:|/dev/nb1 0 svc 4 jobid a jobid b
EINVAL|jobid_name:|/dev/nb1 0 svc 2 jobid_name %z
EINVAL|jobid_name:|/dev/nb1 0 svc 2 jobid_name %
EINVAL|jobid_name:|/dev/nb1 0 svc 2 jobid_name xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
EINVAL|size:|/dev/nb1 0 svc 1 size
EINVAL|size:|/dev/nb1 0 svc 2 size 0
EINVAL|size:|/dev/nb1 0 svc 2 size 4097
EINVAL|size:|/dev/nb1 0 svc 2 size -1
EINVAL|size:|/dev/nb1 0 svc 2 size 5x
EINVAL|size:|/dev/nb1 0 svc 2 size 18446744073709551617
EINVAL|size:|/dev/nb1 0 svc 4 size 1 size 1
EINVAL|opportunity:|/dev/nb1 0 svc 1 opportunity
EINVAL|opportunity:|/dev/nb1 0 svc 2 opportunity yes
EINVAL|opportunity:|/dev/nb1 0 svc 4 opportunity on opportunity off
EINVAL|nknown argument|/dev/nb1 0 svc 2 nosuch 1
EINVAL|nknown argument|/dev/nb1 0 svc 4 nid 10.0.0.1@tcp NID 10.0.0.1@tcp
ELOOP|client of the same service|/dev/mapper/a 0 svc
EINVAL|zoned|/dev/zoned 0 svc
END
sed -i "s/LONGNAME/$long/" /tmp/tables

# What is made in configfs or given to the module as a whole.
elsewhere() {
	module
	lower nb0
	client a /dev/nb0 svc
	mkdir $dir/made
	state >/tmp/before
	local value
	for value in 0 65 -1 x ''; do expect_errno EINVAL $dir/made/cpts "$value" && unchanged "cpts=$value"; done
	for value in 0 65536 -1 x ''; do expect_errno EINVAL $dir/made/slots "$value" && unchanged "slots=$value"; done
	expect_errno EACCES $dir/made/state 1 || expect_errno EPERM $dir/made/state 1
	refused EEXIST mkdir $dir/svc
	refused EEXIST mkdir $dir/made
	refused EINVAL mkdir "$dir/a b"
	for value in 0 65536 x; do expect_errno EINVAL /sys/module/nrs/parameters/default_slots "$value"; done
	# Two commands in one write.
	printf 'fairshare\nfifo\n' >/tmp/two
	refused EINVAL dd if=/tmp/two of="$(at svc nrs_policies)" bs=4k conv=notrunc
	unchanged "configfs"
}

# More weights than there is room for: those that fit are taken, one more is not.
too_many() {
	module
	lower nb0
	client a /dev/nb0 svc
	local file i j list
	file=$(at svc nrs_fairshare_weights)
	for ((i = 0; i < 64; i++)); do
		list=
		for ((j = 0; j < 64; j++)); do list+=" uid:$((i * 64 + j)):2"; done
		echo "$list" >"$file"
	done
	[ "$(wc -l <"$file")" = 4096 ]
	expect_errno ENOSPC "$file" uid:4096:2
	expect_errno ENOSPC "$file" 'uid:1:7 jobid:a*:2'
	[ "$(wc -l <"$file")" = 4096 ]
	if grep -q ':7$' "$file"; then fail "$(tail -n 3 "$file")"; fi
	echo '-uid:0 uid:4096:7' >"$file"
	[ "$(wc -l <"$file")" = 4096 ]
	grep -qx uid:4096:7 "$file"
	if grep -qx uid:0:2 "$file"; then fail "$(tail -n 3 "$file")"; fi
	echo clear >"$file"
	list=
	for ((i = 0; i < 64; i++)); do list+=" jobid:a$i*:2"; done
	echo "$list" >"$file"
	expect_errno ENOSPC "$file" 'jobid:b*:2'
	[ "$(wc -l <"$file")" = 64 ]
}

# Values are refused by code that the host's tests run with all of them; here the errno has to reach the user. The words of a
# table have no other test.
[ -n "${NRS_LONG:-}" ] || { awk 'NR % 4 == 1' /tmp/tables >/tmp/some && mv /tmp/some /tmp/tables; }
try 120 "$(wc -l </tmp/writes) wrong writes" all writes /tmp/writes
try 80 "$(wc -l </tmp/messages) wrong messages" all messages /tmp/messages
try 120 "$(wc -l </tmp/tables) wrong tables" all tables /tmp/tables
long try 60 "too many weights" too_many
long try 120 "wrong values in configfs" elsewhere
summary
