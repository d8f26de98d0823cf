#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# /dev/nrs-control: all commands and errors, replies, permissions, and references held by open
# files.
. /tests/nrs.sh

node=/dev/nrs-control

# refuses ERRNO COMMAND REASON: Verifies that the command, written in one call, fails with ERRNO,
# and that the reply matches the regular expression REASON.
refuses() {
	local said got
	exec 3<>$node
	if said=$( (printf '%b' "$2" | dd bs=1M iflag=fullblock >&3) 2>&1); then
		fail "accepted, should give $1: '$2'"
	fi
	grep -q "${errno_text[$1]}" <<<"$said" || fail "should give $1: '$2': $said"
	got=$(cat <&3)
	exec 3>&-
	[[ $got =~ ^($3)$ ]] || fail "'$2' is refused because '$got', not '$3'"
}

# ask COMMAND: Prints the reply to a one-line command.
ask() {
	exec 3<>$node
	echo "$1" >&3 || fail "'$1': $(cat <&3)"
	cat <&3
	exec 3>&-
}

setup() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
}

commands() {
	module
	[ "$(stat -c '%a %u %g' $node)" = "600 0 0" ] || fail "$(ls -l $node)"
	[ -z "$(ask services)" ] || fail "there are services: $(ask services)"
	mkdir /sys/kernel/config/nrs/first /sys/kernel/config/nrs/x.y-z:0
	[ "$(ask services | sort | tr '\n' ' ')" = 'first x.y-z:0 ' ] || fail "$(ask services)"
	# A service without clients can be configured as well.
	ask 'set first slots 5'
	[ "$(ask 'get first slots')" = 5 ]
	[ "$(cat "$(at first slots)")" = 5 ]
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	[ "$(ask services | grep -cx svc)" = 1 ]
	# Each readable parameter has the same text here and in debugfs.
	local file name
	for file in "$(at svc '')"*; do
		name=${file##*/}
		case $(stat -c %a "$file") in 200) continue ;; esac
		if ! cat "$file" >/tmp/there 2>/dev/null; then
			if (ask "get svc $name") >/dev/null 2>&1; then fail "$name can be read here only"; fi
			continue
		fi
		ask "get svc $name" >/tmp/here
		# Values that depend on the time differ.
		case $name in
		*stats | *status | *timeouts | health)
			[ -s /tmp/here ] || [ ! -s /tmp/there ] || fail "$name"
			;;
		*) cmp /tmp/here /tmp/there || fail "$name: $(diff /tmp/here /tmp/there)" ;; esac
	done
	# Values contain blanks, and debugfs shows the change.
	ask 'set svc nrs_policies tbf uid'
	ask 'set svc nrs_tbf_rule start one uid={1001} rate=20'
	grep -q '^one uid={1001} 20, ref' "$(at svc nrs_tbf_rule)" ||
		fail "$(cat "$(at svc nrs_tbf_rule)")"
	# A parameter that triggers an action accepts any value, and none.
	ask 'set svc nrs_tbf_stats_reset'
	ask 'set svc nrs_tbf_stats_reset '
	ask 'set svc nrs_tbf_stats_reset 1'
	# A successful set has an empty reply.
	[ -z "$(ask 'set svc slots 7')" ]
}

refusals() {
	setup
	policy svc 'tbf uid'
	local before seen
	before=$(settings svc)
	seen=$(dmesg | grep -c 'nrs: ' || true)
	refuses EINVAL '\n' 'unknown command .*'
	refuses EINVAL 'reboot' 'unknown command .*'
	refuses EINVAL 'get svc' 'usage: get SERVICE NAME'
	refuses EINVAL 'set  svc slots 3' 'words must be printable .*'
	refuses ENODEV 'get nobody slots' 'no such service'
	refuses ENOENT 'get svc nothing' 'no such parameter'
	refuses EACCES 'set svc clients 3' 'parameter is read-only or write-only'
	# Arbitrary bytes.
	refuses EINVAL 'get \xff\xfe slots' 'not UTF-8'
	# Reasons from parameters, policies, rules with their column, and plans with their line.
	refuses EINVAL 'set svc slots 0' 'slots is not a number from 1 to 65535, or auto'
	refuses ENOENT 'set svc nrs_policies nothing' '.+'
	refuses EINVAL 'set svc nrs_tbf_rule start one uid={1001} rate=' 'column [0-9]+: expected .+'
	[ "$(cat "$(at svc nrs_tbf_rule_error)")" ] || fail "the reason is not kept"
	refuses EINVAL 'set svc nrs_qbm_config by uid\ngroup all capacity=1GB\nnonsense\n' 'line 3: .+'
	# Too long for this parameter, and too long for any command.
	refuses E2BIG "set svc slots $(printf '%05000d' 3)" 'value is too long .*'
	refuses E2BIG "set svc nrs_qbm_config $(printf '%0270000d' 3)" 'value is too long .*'
	local said
	if said=$(dd if=/dev/zero of=$node bs=17M count=1 2>&1); then fail "accepted"; fi
	grep -q "${errno_text[E2BIG]}" <<<"$said" || fail "$said"
	# A refusal through this device is not logged as well.
	[ "$(dmesg | grep -c 'nrs: ' || true)" = "$seen" ] || fail "$(dmesg | tail -n 5)"
	expect_errno EINVAL "$(at svc slots)" 0
	[ "$(dmesg | grep -c 'nrs: service svc: refused: slots is not a number')" -ge 1 ] ||
		fail "the refusal of $(at svc slots) is not logged"
	unchanged 'what is refused'
}

# send COMMAND: Executes a command of several lines.
send() {
	exec 3<>$node
	printf '%s' "$1" | dd bs=1M iflag=fullblock 2>/dev/null >&3 || fail "'$1': $(cat <&3)"
	exec 3>&-
}

# Verifies that a service takes the text of another one under load, and nothing of a wrong text.
whole() {
	setup
	mkdir /sys/kernel/config/nrs/other
	local want wrong text='slots 5
nrs_policies tbf uid
nrs_tbf_rule start b uid={1002} rate=30 minrate=3
nrs_tbf_rule start a uid={1001} rate=2MB/s
nrs_tbf_rule change a also=b'
	send "set other config $text"
	want=$(ask 'get other config')
	[ "$want" = "$text" ] || fail "$want"
	touch /tmp/load
	while [ -e /tmp/load ]; do
		dd if=/dev/mapper/a of=/dev/null bs=64k count=256 iflag=direct 2>/tmp/dd.txt || break
	done &
	local pid=$! round
	for round in 1 2 3 4 5; do
		send "set svc config $want"
		[ "$(ask 'get svc config')" = "$want" ] || fail "$(ask 'get svc config')"
		# Rules that stay keep their identifiers: nothing restarts.
		send "set svc config $want"
		send 'set svc config slots 3
nrs_policies fairshare uid_fair
nrs_fairshare_weights uid:1001:2'
		[ "$(cat "$(at svc slots)")" = 3 ]
	done
	text=$(ask 'get svc config')
	for wrong in 'nrs_none 1' 'slots 0' 'nrs_tbf_rule start c uid={1} rate=1' 'drain 1'; do
		refused_text "$text" "$wrong"
	done
	rm /tmp/load
	wait $pid || fail "$(cat /tmp/dd.txt)"
	rmdir /sys/kernel/config/nrs/other
	# Without a client, and by debugfs.
	echo '# nothing' >"$(at svc config)"
	[ -z "$(cat "$(at svc config)")" ] || fail "$(cat "$(at svc config)")"
}

# refused_text TEXT LINE: Verifies that TEXT with the wrong LINE at its end is refused with the
# number of the line, and changes nothing.
refused_text() {
	local said
	exec 3<>$node
	if printf 'set svc config slots 9\n%s\n%s' "$1" "$2" | dd bs=1M iflag=fullblock 2>/dev/null >&3
	then
		fail "accepted: $2"
	fi
	said=$(cat <&3)
	exec 3>&-
	[[ $said == "line $(($(wc -l <<<"$1") + 2)): "* ]] || fail "'$2': $said"
	[ "$(ask 'get svc config')" = "$1" ] || fail "'$2' changed $(ask 'get svc config')"
}

# Verifies reads in pieces, at offsets, repeated, and after the next command.
reads() {
	setup
	local whole part at=0 line
	whole=$(cat "$(at svc nrs_policies)")
	exec 3<>$node
	[ -z "$(cat <&3)" ]
	echo 'get svc nrs_policies' >&3
	[ "$(cat <&3)" = "$whole" ]
	# The file position is at the end now.
	[ -z "$(cat <&3)" ]
	# Again from the start, a few bytes at a time.
	echo 'get svc nrs_policies' >&3
	part=$(dd bs=7 count=3 <&3 2>/dev/null; dd bs=1 <&3 2>/dev/null)
	[ "$part" = "$whole" ] || fail "in pieces: $part"
	# By lines; bash seeks back to the end of the line.
	echo services >&3
	read -r line <&3
	[ "$line" = svc ]
	# At an offset; there is nothing beyond the end.
	echo 'get svc nrs_policies' >&3
	dd bs=1 skip=10 count=20 of=/tmp/part <&3 2>/dev/null
	[ "$(cat /tmp/part)" = "${whole:10:20}" ] || fail "'$(cat /tmp/part)' is not '${whole:10:20}'"
	# A refusal replaces the reply by its reason, and the next command by its reply.
	if echo nonsense >&3; then fail "nonsense was accepted"; fi 2>/dev/null
	[[ $(cat <&3) = 'unknown command '* ]]
	echo 'set svc slots 6' >&3
	[ -z "$(cat <&3)" ]
	# Another open file has a reply of its own.
	exec 4<>$node
	echo 'get svc slots' >&4
	[ -z "$(cat <&3)" ]
	[ "$(cat <&4)" = 6 ]
	exec 3>&- 4>&-
}

# Writes and reads back a plan of the largest size; verifies that one more byte is refused.
large() {
	setup
	local i pad
	{
		printf 'by uid\ngroup all capacity=10GB/s\n'
		for ((i = 0; i < 4000; i++)); do
			printf 'client %d class=low_share min=%dKB/s\n' $((100000 + i)) $((1000 + i % 50))
		done
	} >/tmp/plan
	pad=$((262144 - $(stat -c %s /tmp/plan) - 2))
	printf '# %0*d' "$pad" 0 >>/tmp/plan
	[ "$(stat -c %s /tmp/plan)" = 262144 ] || fail "$(stat -c %s /tmp/plan) bytes"
	exec 3<>$node
	{
		printf 'set svc nrs_qbm_config ' && cat /tmp/plan && echo
	} | dd bs=1M iflag=fullblock >&3 2>/tmp/said || fail "$(cat /tmp/said) $(cat <&3)"
	echo 'get svc nrs_qbm_config' >&3
	cat <&3 >/tmp/back
	exec 3>&-
	cmp /tmp/back "$(at svc nrs_qbm_config)"
	[ "$(grep -c class=low_share /tmp/back)" = 4000 ] || fail "$(head -n 5 /tmp/back)"
	# The text that was read can be written back.
	{
		printf 'set svc nrs_qbm_config ' && cat /tmp/back
	} | dd of=$node bs=1M iflag=fullblock 2>/dev/null
	ask 'get svc nrs_qbm_config' | cmp - /tmp/back
	printf 0 >>/tmp/plan
	if {
		printf 'set svc nrs_qbm_config ' && cat /tmp/plan
	} | dd of=$node bs=1M iflag=fullblock 2>/tmp/said; then
		fail "too long, but accepted"
	fi
	grep -q 'Argument list too long' /tmp/said || fail "$(cat /tmp/said)"
}

# Runs several tasks, with a file each, and with one shared file, while the service is removed and
# created.
together() {
	setup
	local pids=() i pid count
	count=$(brief 30 100)
	for i in 1 2; do
		(
			exec 3<>$node
			for ((n = 0; n < count; n++)); do
				echo "set svc slots $((i * 100 + n))" >&3
				echo 'get svc slots' >&3
				[[ $(cat <&3) =~ ^[12][0-9][0-9]$ ]] || exit 1
			done
		) &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || fail "one was refused"; done
	exec 3<>$node
	pids=()
	for i in 1 2; do
		(
			for ((n = 0; n < count; n++)); do
				echo "get svc nrs_policies" >&3 && head -c 10 <&3 >/dev/null || exit 1
			done
		) &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || fail "one was refused"; done
	# Commands for a service that is being removed either succeed or report that there is no such
	# service.
	(
		while echo "get svc slots" >&3 || [[ $(cat <&3) = 'no such service' ]]; do
			echo 'set svc nrs_policies fairshare' >&3 || [[ $(cat <&3) = 'no such service' ]] ||
				[[ $(cat <&3) =~ stopping ]] || exit 1
			[ ! -e /tmp/enough ] || exit 0
		done 2>/dev/null
		exit 1
	) &
	pid=$!
	for ((i = 0; i < 8; i++)); do
		dm_remove a
		client a /dev/nb0 svc
	done
	touch /tmp/enough
	wait "$pid" || fail "refused for another reason: $(cat <&3)"
	rm /tmp/enough
	exec 3>&-
}

# Verifies that opening requires root privileges whatever the node's mode, and that an open file
# holds the module.
rights() {
	setup
	refused EACCES setpriv --reuid 65534 --clear-groups bash -c "exec 3<>$node"
	chmod 666 $node
	refused EPERM setpriv --reuid 65534 --clear-groups bash -c "exec 3<>$node"
	refused EPERM setpriv --bounding-set -sys_admin --inh-caps -sys_admin bash -c "exec 3<>$node"
	chmod 600 $node
	# Opening for reading or for writing only is possible.
	echo 'set svc slots 9' >$node
	[ "$(cat "$(at svc slots)")" = 9 ]
	[ -z "$(cat $node)" ]
	dm_remove a
	exec 3<>$node
	refused EBUSY rmmod nrs
	echo services >&3
	[ -z "$(cat <&3)" ]
	exec 3>&-
	rmmod nrs
	[ ! -e $node ] || fail "the node is left"
	module
	wait_for 10 "[ -c $node ]"
}

try 40 "all commands and their replies" commands
try 40 "refused commands and their reasons" refusals
try 60 "all settings as one text" whole
long try 20 "replies are read at any offset" reads
long try 60 "a plan of 256 KiB" large
long try 60 "several tasks while services are removed" together
try 30 "root privileges, and rmmod" rights
summary
