#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/vm-shell.sh [stock|debug] [OPTIONS OF scripts/vm.sh]
#
# Starts a shell in a test machine, on this terminal: with the named kernel (default stock), nrs.ko
# loaded if it is built, and tests/vm in /tests. "reboot -f" in the shell or Ctrl-A X ends the
# machine.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

case ${1:-} in
--help | -h) usage && exit ;;
stock | debug) kernel=$1 && shift ;;
*) kernel=stock ;;
esac
exec "$NRS_SCRIPTS/vm.sh" --kernel "$kernel" --name shell --interactive "$@"
