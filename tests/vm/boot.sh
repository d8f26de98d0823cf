#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: boot.sh first|second|third
#
# Checks a system with systemd after its start. tests/boot.sh boots the system.
. /tests/lib.sh
# This system has udev.
unset DM_DISABLE_UDEV

# try NAME FUNCTION [ARG...]: Runs a check, which a failing command ends.
try() {
	local name=$1 rc=0
	shift
	(
		set -euo pipefail
		trap 'echo "(line $LINENO: $BASH_COMMAND)"' ERR
		set -E
		"$@"
	) >/run/nrs/try.log 2>&1 &
	wait $! || rc=$?
	if [ "$rc" = 0 ]; then
		ok "$name"
	else
		not_ok "$name" "$(tail -n 6 /run/nrs/try.log)"
	fi
}

# nothing CMD...: Verifies that CMD prints nothing.
nothing() {
	local found
	found=$("$@")
	[ -z "$found" ] || { echo "$found" && return 1; }
}

# complaints: Prints the messages of systemd in this boot's journal about units that timed out or
# have an ordering cycle.
complaints() {
	journalctl -b -o cat SYSLOG_IDENTIFIER=systemd |
		grep -iE 'timed out|ordering cycle|dependency failed' || true
}

# came_up: Verifies that all units are started and none failed.
came_up() {
	systemctl is-system-running --wait || true
	nothing systemctl --failed --plain --no-legend
	nothing complaints
	[ "$(systemctl is-system-running)" = running ]
}

without_configuration() {
	[ "$(systemctl is-enabled nrs)" = enabled ]
	[ "$(systemctl show -P ConditionResult nrs)" = no ]
	[ ! -e /sys/module/nrs ]
	[ "$(systemctl is-enabled nrs-agent || true)" = disabled ]
	systemctl start nrs-agent
	[ "$(systemctl show -P ConditionResult nrs-agent)" = no ]
}

# Performs the steps of Documentation/operations.md that put a disk under nrs.
put_under_nrs() {
	local name
	modprobe nrs
	for name in files mail; do
		nrsctl device add "$name" "/dev/disk/by-id/virtio-$name" ost_io --save
		mkfs.ext4 -q "/dev/mapper/$name"
		mkdir "/srv/$name"
		echo "/dev/mapper/$name /srv/$name ext4 x-systemd.requires=nrs.service,nofail 0 2" \
			>>/etc/fstab
	done
	cat >/etc/nrs/ost_io.toml <<-'TOML'
		[service.ost_io]
		policy = "tbf uid"
		[[service.ost_io.rule]]
		name = "squashed"
		match = "uid={65534}"
		rate = 20
	TOML
	nrsctl check
	systemctl daemon-reload
	systemctl start nrs
	for name in files mail; do
		mount "/srv/$name"
		seq 100000 >"/srv/$name/data"
	done
}

# as_saved NAME...: Verifies that these devices are mounted and contain the written files.
as_saved() {
	local name
	for name; do
		[ "$(findmnt -n -o SOURCE "/srv/$name")" = "/dev/mapper/$name" ]
		seq 100000 | cmp - "/srv/$name/data"
	done
}

# read_as UID: Prints the milliseconds that 41 direct reads take.
read_as() {
	local started=${EPOCHREALTIME/./}
	setpriv --clear-groups --reuid "$1" dd if=/srv/files/data of=/dev/null bs=4k count=41 \
		iflag=direct status=none
	echo $(((${EPOCHREALTIME/./} - started) / 1000))
}

# Verifies the rate: the bucket holds three requests, so 38 of the 41 arrive at 20 per second.
in_force() {
	local limited others
	[ "$(nrsctl apply --dry-run --wait 0)" = 'nothing to change' ]
	limited=$(read_as 65534) others=$(read_as 65533)
	echo "limited: $limited ms, others: $others ms"
	[ "$limited" -ge 1850 ]
	[ "$others" -lt 900 ]
}

# Verifies which devices the limits of systemd apply to: those one level below a device-mapper
# device. Of two paths to one device the later one counts.
limits_of_systemd() {
	local client=/dev/mapper/mail disk=/dev/disk/by-id/virtio-mail
	umount /srv/mail
	dmsetup create volume --table "0 $(blockdev --getsz $client) linear $client 0"
	systemd-run --unit limited -p "IOReadIOPSMax=$client 100" \
		-p 'IOReadIOPSMax=/dev/mapper/volume 200' -p "IOWriteIOPSMax=$disk 50" sleep 600
	diff <(sort /sys/fs/cgroup/system.slice/limited.service/io.max) - <<-END
		$(lsblk -dnro MAJ:MIN $client) rbps=max wbps=max riops=200 wiops=max
		$(lsblk -dnro MAJ:MIN $disk) rbps=max wbps=max riops=max wiops=50
	END
	systemctl stop limited
	dmsetup remove volume
	mount /srv/mail
}

# version N: Verifies that build N of the module is loaded.
version() {
	[ "$(</sys/module/nrs/version)" = "$1" ]
}

# Performs the steps of an upgrade of the package.
upgraded() {
	version 1
	cp /guest/nrs.ko "/lib/modules/$(uname -r)/updates/dkms/nrs.ko"
	depmod
	version 1
}

# when UNIT PROPERTY: Prints the property in microseconds since the start of the kernel.
when() {
	systemctl show -P "$2TimestampMonotonic" "$1"
}

# Verifies that units that use the devices start after nrs.service has finished.
in_order() {
	local ended unit
	ended=$(when nrs.service ActiveEnter)
	[ "$ended" -gt 0 ]
	for unit in local-fs-pre.target systemd-fsck@dev-mapper-{files,mail}.service \
		srv-{files,mail}.mount; do
		echo "$unit: $(when "$unit" InactiveExit), nrs.service: $ended"
		[ "$(when "$unit" InactiveExit)" -ge "$ended" ]
	done
}

# page: Prints the page of the exporter.
page() {
	local to
	exec {to}<>/dev/tcp/127.0.0.1/9719
	printf 'GET /metrics HTTP/1.0\r\n\r\n' >&"$to"
	cat <&"$to"
}

# Verifies the agent as run by its unit, with few privileges, and the exporter, which queries the
# agent.
agent_serves() {
	local file
	nrsctl policy set ost_io fairshare uid_fair
	printf '%032x\n' 7 >/etc/nrs/agent/secret
	chmod 600 /etc/nrs/agent/secret
	cat >/etc/nrs/agent.toml <<-'TOML'
		realm = "boot"
		server = "one"
		secret = "/etc/nrs/agent/secret"
		transport = "tcp"
		[service.ost_io]
	TOML
	nrsctl check /etc/nrs/agent.toml
	systemctl start nrs-agent nrs-exporter
	wait_for 10 'nrsctl agent status'
	wait_for 10 'page >/run/page'
	grep '^nrs_agent_info{.*ost_io' /run/page
	systemctl stop nrs-agent nrs-exporter
	journalctl -b -o cat -u nrs-agent
	[ "$(systemctl show -P Result nrs-agent)" = success ]
	for file in epoch ost_io.thetas; do [ -s "/var/lib/nrs-agent/$file" ]; done
	[ ! -e /run/nrs-agent ]
	# A removal stops a running agent and keeps the secret.
	systemctl start nrs-agent
	dpkg --remove nrs-agent
	[ ! -e /run/nrs-agent ]
	[ -s /etc/nrs/agent/secret ]
}

# Verifies the system without one disk: all other units start, and only nrs.service has failed,
# after half a minute.
came_up_without() {
	local waited
	systemctl is-system-running --wait || true
	[ "$(systemctl --failed --plain --no-legend | cut -d' ' -f1)" = nrs.service ]
	waited=$(($(when nrs.service InactiveEnter) - $(when nrs.service InactiveExit)))
	echo "waited for $waited us"
	[ "$waited" -ge 30000000 ]
	[ "$waited" -lt 45000000 ]
}
missing_device_is_logged() {
	journalctl -b -o cat -u nrs
	journalctl -b -o cat -u nrs | grep -F 'device.mail: /dev/disk/by-id/virtio-mail: '
}

# Verifies that the option of fstab mounts neither device, although the other device exists.
the_other_exists() {
	[ -b /dev/mapper/files ]
	[ ! -e /dev/mapper/mail ]
	nothing sed -n '/ \/srv\//p' /proc/mounts
}
given_up() {
	nrsctl device remove mail --save
	systemctl start nrs
	mount /srv/files
	as_saved files
	[ "$(systemctl is-system-running)" = running ]
}

case $1 in
first)
	try "first: the system comes up" came_up
	try "first: without a configuration the unit does nothing" without_configuration
	try "first: two disks are put under nrs" put_under_nrs
	try "first: the policy is in force" in_force
	try "first: limits of systemd apply one level below" limits_of_systemd
	try "first: another build of the module is installed" upgraded
	;;
second)
	try "second: the system comes up" came_up
	try "second: the module is the new one" version 2
	try "second: file systems are mounted from their devices, with their data" as_saved files mail
	try "second: they are checked and mounted after the unit" in_order
	try "second: the policy is in force" in_force
	try "second: an agent shares the service, and tells the exporter" agent_serves
	;;
third)
	try "third: the system comes up without a disk" came_up_without
	try "third: the unit says which one is missing" missing_device_is_logged
	try "third: the other device exists, nothing is mounted" the_other_exists
	try "third: once it is given up, the other one is mounted" given_up
	try "third: the policy is in force" in_force
	;;
esac
summary
