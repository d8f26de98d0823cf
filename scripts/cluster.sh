#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/cluster.sh [--check]
#
# Tests fairness over two servers: two virtual machines with nrs.ko, nrs-agent and a network between
# them. User 1001 uses both servers, users 1002 and 1003 one each. Meanwhile agents start, die and
# hang, clocks are set, the network is cut, and one machine is killed and booted again
# (tests/vm/cluster/server.sh). Prints a table, and writes cluster.svg and build/cluster.txt. Takes
# about six minutes.
#
#   --check   print "ok" or "not ok" for each row of the table, without a picture; fail if a row is
#             "not ok"
set -euo pipefail
. "$(dirname "$0")/lib.sh"
check=
case ${1:-} in
--help | -h) usage && exit ;;
--check) check=1 ;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac

cd "$NRS_TOP"
scripts/build-module.sh stock
scripts/build-tools.sh
scripts/build-tools.sh --agent
vms=$NRS_TOP/build/vm

# server NAME SERVER PEER: Boots a machine in the background; its process is $!.
server() {
	scripts/vm.sh --kernel stock --cpus 1 --timeout 900 --name "$1" --net "$2:$3" \
		--file build/tools/nrsctl:/bin/nrsctl --file build/tools/nrs-agent:/bin/nrs-agent \
		-- cluster/server.sh "$2" </dev/null >"build/$1.log" 2>&1 &
}

# awaited TEXT: Returns true if server one has printed TEXT; fails if the machine has ended.
awaited() {
	until grep -q "$1" "$vms/cluster-one/guest.log" 2>/dev/null; do
		kill -0 "$one" 2>/dev/null || return
		sleep 0.2
	done
}

# end PROCESS: Kills a machine, as a power cut does, if it still runs.
end() {
	kill -KILL "$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
}

mkdir -p build
# awaited() must not see the phases of an earlier run.
rm -rf "$vms"/cluster-{one,two,again}
trap 'trap - INT TERM && kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
server cluster-two two one
two=$!
server cluster-one one two
one=$!
status=0
if awaited '^phase .* server two killed'; then
	end "$two"
	if awaited '^phase .* server two boots'; then
		server cluster-again two one
		two=$!
	fi
fi
wait "$one" || status=$?
end "$two"
if [ "$status" != 0 ]; then
	tail -n 20 build/cluster-*.log >&2
	die "cluster: server one: status $status, see $vms/cluster-one"
fi
logs=()
for name in one two again; do
	scripts/log-check.sh "$vms/cluster-$name/console.log" ||
		die "cluster: errors in the kernel log of $vms/cluster-$name"
	logs+=("$vms/cluster-$name/guest.log")
done
if [ -n "$check" ]; then
	scripts/report.sh cluster --check "${logs[@]}"
	exit
fi
scripts/report.sh cluster --picture cluster.svg "${logs[@]}" | tee build/cluster.txt
log "cluster: the picture is cluster.svg, the table is build/cluster.txt"
