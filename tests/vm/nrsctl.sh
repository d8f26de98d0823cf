#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# nrsctl with the module: each command, with its exit statuses and JSON.
. /tests/nrs.sh

node=/dev/nrs-control strict=1
mkdir -p /out/json

# complains WORDS: Verifies that the errors contain WORDS, followed by a hint.
complains() {
	[[ $why == *"$1"* ]] || fail "'$1' is not in '$why'"
	[ "$(wc -l <<<"$why")" -ge 2 ] || fail "no hint in '$why'"
}

# json FILE ARG...: Saves the JSON output, which must be one value with matching brackets.
json() {
	local file=/out/json/$1.json rest
	shift
	ctl 0 "$@" --json
	printf '%s\n' "$said" >"$file"
	rest=$(sed 's/"\([^"\\]\|\\.\)*"//g' "$file" | tr -cd '[]{}')
	while [[ $rest == *'[]'* || $rest == *'{}'* ]]; do rest=${rest//'[]'/} rest=${rest//'{}'/}; done
	[ -z "$rest" ] || fail "brackets of $file do not match: $rest"
	[[ $said == '['* || $said == '{'* ]] || fail "no JSON: $said"
}

not_loaded() {
	local words
	for words in "service list" "get_param ost_io.slots" "set_param ost_io.slots=1" "list_param" \
		"client list" "rule list ost_io" "policy list ost_io" "service add a" \
		"client add a /dev/nulla a" save; do
		# shellcheck disable=SC2086
		ctl 6 $words
		complains 'the module nrs is not loaded'
		complains 'modprobe nrs'
	done
}

parameters() {
	lower nulla
	client files /dev/nulla ost_io
	client other /dev/nulla a.b
	ctl 0 get_param ost.OSS.ost_io.slots
	expect_output 'ost.OSS.ost_io.slots=auto'
	ctl 0 set_param ost.OSS.ost_io.slots=16
	expect_output 'ost.OSS.ost_io.slots=16'
	ctl 0 set_param -n ost/OSS/ost_io/slots=17
	expect_output ''
	ctl 0 get_param -n ost_io.slots
	expect_output 17
	ctl 0 set_param 'ost.OSS.ost_io.nrs_policies=tbf nid' a.b.nrs_policies fifo
	ctl 0 get_param ost.OSS.ost_io.nrs_policies
	[[ $said == $'ost.OSS.ost_io.nrs_policies=\n\nregular_requests:\n'*'name: tbf nid'* ]] ||
		fail "$said"
	ctl 0 set_param 'ost.OSS.ost_io.nrs_tbf_rule=start loginnode {192.168.1.1@tcp} 10000'
	ctl 0 set_param \
		'ost.OSS.ost_io.nrs_tbf_rule=reg start computes {192.168.1.[2-128]@tcp} rate=1000'
	ctl 0 get_param ost.OSS.ost_io.nrs_tbf_rule
	rules=$'ost.OSS.ost_io.nrs_tbf_rule=\nregular_requests:\nCPT 0:\n'
	rules+=$'computes nid={192.168.1.[2-128]@tcp} 1000, ref 0\n'
	[[ $said == "$rules"* ]] || fail "$said"
	# Error text of the parser itself.
	ctl 4 set_param 'ost_io.nrs_tbf_rule=start x {192.168.1.1@tcp} rate=fast' ost_io.slots=18
	complains 'column 32: expected a rate'
	expect_output 'ost_io.slots=18'
	# Error that only the service can detect.
	ctl 3 set_param 'ost_io.nrs_tbf_rule=change nobody rate=5'
	complains 'no rule of this name'
	ctl 0 set_param '*.nrs_fairshare_weights=uid:5:2 uid:6:3' ost_io.at_stats_reset=1
	ctl 0 set_param a.b.nrs_fairshare_weights -uid:5
	ctl 0 get_param -n a.b.nrs_fairshare_weights
	[[ $said == *uid:6* && $said != *uid:5* ]] || fail "weights: $said"
	ctl 0 list_param -R -F ost_io
	[ "$(wc -l <<<"$said")" = 82 ] || fail "$said"
	# All readable parameters are readable.
	ctl 0 get_param -R ost_io
}

services() {
	ctl 0 service list
	ctl 0 service add san --cpts 2
	ctl 4 service add san
	complains 'a service with this name exists'
	ctl 0 service set san slots=8 'nrs_policies=fairshare uid_fair'
	ctl 4 service set san at_min=1 slots=0
	ctl 0 get_param -n san.at_min
	expect_output 5
	ctl 0 service show san
	[[ $said == *'kept:     created in configfs, 2 partitions'* ]] || fail "$said"
	[[ $said == *'regular:  fairshare uid_fair'*'slots:    8, '* ]] || fail "$said"
	json service-show service show san
	[[ $said == *'"cpts": 2'*'"regular": "fairshare uid_fair"'* ]] || fail "$said"
	ctl 0 service list
	[[ $said == *$'\nsan '*'fairshare uid_fair'* ]] || fail "$said"
	json service-list service list
	lower nulla
	ctl 0 client add files /dev/nulla san
	ctl 7 service set san cpts=1
	ctl 7 service remove san
	complains 'the service has clients'
	ctl 0 client remove files
	ctl 0 service set san cpts=1
	ctl 0 service remove san
	ctl 3 service remove san
}

# Verifies the errors without the device node.
no_node() {
	mv $node /dev/nrs-away
	trap 'mv /dev/nrs-away $node' EXIT
	local words
	for words in "service list" "get_param ost_io.slots" "set_param ost_io.slots=1"; do
		# shellcheck disable=SC2086
		ctl 6 $words
		complains "$node: No such file or directory"
		complains 'older than nrsctl'
	done
}

clients() {
	lower nulla
	ctl 0 client add files /dev/nulla ost_io --offset 2048 --nid 10.0.0.7@tcp --jobid 'a\b' \
		--jobid-name %e --size 4 --opportunity off --stream cgroup --on-timeout fail
	[ -b /dev/mapper/files ]
	[ "$(sectors /dev/mapper/files)" = $(($(sectors /dev/nulla) - 2048)) ]
	words=' nid 10.0.0.7@tcp jobid a\b jobid_name %e size 4 opportunity off stream cgroup'
	[[ $(dm table files) == *" 2048 ost_io 14$words on_timeout fail" ]]
	ctl 7 client add files /dev/nulla ost_io
	complains 'with this name exists'
	ctl 3 client add more /dev/nothing ost_io
	ctl 4 client add more /dev/nulla ost_io --nid 10.0.0.7
	complains --nid
	ctl 4 client add more /dev/mapper/files ost_io
	complains 'is a client of the same service'
	dd if=/dev/mapper/files of=/dev/null bs=64k count=16 iflag=direct 2>/dev/null
	ctl 0 client list
	[[ $said == $'CLIENT '*$'\nfiles '*' ost_io '* ]] || fail "$said"
	json client-list client list ost_io
	[[ $said == \
		*'"name": "files"'*'"jobid": "a\\b"'*'"nid": "10.0.0.7@tcp"'*'"bytes": 1048576'* ]] ||
		fail "$said"
	ctl 0 client show files
	[[ $said == *'service:  ost_io'*'on_timeout: fail'*'  bytes: 1048576'* ]] || fail "$said"
	json client-show client show files
	exec 7</dev/mapper/files
	ctl 7 client remove files
	complains 'the device is in use'
	exec 7<&-
	ctl 0 client remove files
	[ ! -e /dev/mapper/files ]
}

rules() {
	local user=nobody
	lower nulla
	client files /dev/nulla ost_io
	ctl 3 rule list ost_io
	complains 'nrsctl policy set ost_io tbf'
	ctl 0 policy set ost_io fairshare uid_fair --head hp
	ctl 0 policy set ost_io tbf uid --head reg
	expect_output "ost_io: the rule default limits each class to 10000 requests/s
  to lift this limit: nrsctl rule change ost_io default --rate 10000000 --head reg"
	# The printed command lifts the limit.
	ctl 0 ${said##*: nrsctl }
	ctl 0 policy set ost_io tbf uid --head reg
	expect_output ''
	ctl 0 rule change ost_io default --rate 10000
	ctl 0 policy list ost_io
	head=$'\nhigh     fairshare uid_fair  started '
	[[ $said == *$'\nregular  tbf uid             started '*"$head"* ]] || fail "$said"
	json policy-list policy list ost_io
	ctl 0 policy set ost_io tbf uid
	ctl 0 rule start ost_io all 'uid={1000 1001}' --rate 100MB/s --minrate 10MB/s
	ctl 0 rule start ost_io greedy uid={1002} --rate 10MB/s --borrow --also all --realtime=1 \
		--head reg
	ctl 0 rule start ost_io last uid={5} --rate 5iops --rank default
	ctl 0 rule list ost_io --head reg
	rules='regular greedy uid={1002} 10MB/s realtime=1 borrow=1 also=all 0;'
	rules+='regular all uid={1000 1001} 100MB/s minrate=10MB/s 0;'
	rules+='regular last uid={5} 5iops 0;regular default * 10000 0;'
	[ "$(tail -n +2 <<<"$said" | tr -s ' ' | tr '\n' ';')" = "$rules" ] || fail "$said"
	json rule-list rule list ost_io
	[[ $said == *'"match": "uid={1000 1001}"'* ]] || fail "$said"
	ctl 0 rule change ost_io greedy --rate 20MB/s
	ctl 0 rule show ost_io greedy
	[[ $said == *'20MB/s'* ]] || fail "$said"
	json rule-show rule show ost_io greedy
	ctl 4 rule start ost_io greedy uid={5}
	ctl 4 rule start ost_io wrong 'uid={1,2}'
	complains 'column 18: expected a number'
	ctl 3 rule start ost_io wrong uid={a}
	complains "unknown user 'a'"
	ctl 0 rule start ost_io named "uid={$user}" --rate 5
	ctl 0 rule show ost_io named
	[[ $said == *"uid={$user}"* ]] || fail "$said"
	ctl 0 rule show ost_io named -n
	[[ $said == *'uid={65534}'* ]] || fail "$said"
	ctl 0 rule test ost_io uid=65534
	[[ $said == *'regular  named '*'high     named '* ]] || fail "$said"
	ctl 0 rule stop ost_io named
	ctl 0 rule test ost_io uid=65534
	[[ $said == *'regular  default '* ]] || fail "$said"
	ctl 0 weight set ost_io "uid:$user=3" uid:5=2
	ctl 0 get_param -n ost_io.nrs_fairshare_weights
	expect_output $'uid:5:2\nuid:65534:3'
	ctl 0 weight unset ost_io uid:5
	ctl 0 weight list ost_io
	[[ $said == *$'\n'"uid:$user "* && $said != *uid:5* ]] || fail "$said"
	ctl 3 weight unset ost_io uid:5
	ctl 0 reset ost_io
	ctl 7 rule stop ost_io all
	complains 'rule is named in also= of another rule'
	ctl 0 rule stop ost_io greedy --head reg
	ctl 0 rule stop ost_io all
	ctl 0 policy set ost_io fifo
}

# Verifies that commands without root privileges are refused.
not_root() {
	lower nulla
	client files /dev/nulla ost_io
	chmod 755 /bin/nrsctl
	for words in "get_param ost_io.slots" "service list" "set_param ost_io.slots=1"; do
		got=0
		# shellcheck disable=SC2086
		why=$(setpriv --reuid 1000 --regid 1000 --clear-groups nrsctl $words 2>&1) || got=$?
		[ "$got" = 5 ] || fail "$words: status $got: $why"
		complains 'run it as root'
	done
}

if [ -d /sys/module/nrs ]; then rmmod nrs; fi
try 20 "without the module" not_loaded
load_nrs
try 60 "parameters" parameters
try 30 "services" services
try 60 "clients" clients
try 30 "rules and policies" rules
try 20 "without the node" no_node
try 20 "without root privileges" not_root
check "the module can be removed" rmmod nrs
summary
