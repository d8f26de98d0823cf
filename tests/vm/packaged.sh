#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A module that was built elsewhere, in this kernel: it loads, takes a device, a policy and requests, and goes again.
. /tests/nrs.sh

works() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare uid_fair'
	dm message a 0 service slots 8
	load a --size=4m >/dev/null
	[ "$(counter a ended)" -ge 1024 ] && [ "$(counter a failed)" = 0 ] || fail "$(dm status a)"
	grep -q 'entity: "uid:0"' "$(at svc nrs_fairshare_stats)" || fail "$(cat "$(at svc nrs_fairshare_stats)")"
}

try 30 "a device under the packaged module" works
check "it goes" rmmod nrs
summary
