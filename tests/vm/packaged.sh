#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A module that was built elsewhere, in this kernel: debian/tests/module, put there as /bin/packaged, as on a machine that has
# the packages.
. /tests/nrs.sh

works() {
	mkdir -p /etc/modprobe.d
	echo 'install nrs /bin/insmod /nrs.ko' >/etc/modprobe.d/nrs.conf
	# busybox's sh would take its own losetup.
	bash /bin/packaged
}

try 60 "a device under the packaged module" works
summary
