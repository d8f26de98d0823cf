# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# Servers with agents, for cluster.sh and cluster/server.sh: . /tests/cluster/lib.sh after nrs.sh.

# server NAME DISK NANOSECONDS USER: Creates a service on a disk that completes each request after
# NANOSECONDS, with two sharers: NAME-wide of user 1001, who uses all servers, and NAME-own of USER,
# who uses this server only.
server() {
	slow_lower "$2" "$3" size=1024
	sharer "$1-wide" "/dev/$2" "$1"
	sharer "$1-own" "/dev/$2" "$1"
	set_to "$1" slots 4
	policy "$1" 'fairshare uid_fair'
	load "$1-wide" as=1001 --time_based --runtime=900 >/dev/null 2>&1 &
	load "$1-own" as="$4" --time_based --runtime=900 >/dev/null 2>&1 &
	saturated "$1-wide" "$1-own"
}

# configure NAME ADDRESS_ONE ADDRESS_TWO: Writes the files of the agent of server NAME, one or two,
# to /tmp/NAME.
configure() {
	local name=$1 own=$2
	[ "$name" = one ] || own=$3
	mkdir -p "/tmp/$name/state"
	echo 000102030405060708090a0b0c0d0e0f >"/tmp/$name/secret"
	chmod 600 "/tmp/$name/secret"
	cat >"/tmp/$name/agent.toml" <<-END
		realm = "test"
		server = "$name"
		secret = "/tmp/$name/secret"
		transport = "tcp"
		listen = "$own"
		grain = 1
		[servers]
		one = "$2"
		two = "$3"
		[service.$name]
		group = "ost"
	END
	nrsctl check "/tmp/$name/agent.toml"
}

# agent NAME: Starts the agent; sets ${agents[NAME]} to its process.
declare -A agents
agent() {
	nrs-agent --config "/tmp/$1/agent.toml" --socket "/tmp/$1/status" \
		--state "/tmp/$1/state" >>"/tmp/$1/log" 2>&1 &
	agents[$1]=$!
}

# agent_status NAME: Prints the agent's status as JSON.
agent_status() {
	nrsctl agent status --json --socket "/tmp/$1/status"
}

# meets NAME: Returns true if the agent is bound and connected to the other server.
meets() {
	local said
	said=$(agent_status "$1" 2>&1) || return
	[[ $said == *'"bound": 1,'* && $said == *'"connected": 1,'* &&
		$said == *'"entity": "uid:1001"'* ]]
}
