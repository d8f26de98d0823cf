#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/vm-shell.sh [stock|debug] [OPTIONS OF scripts/vm.sh]
#
# A shell in a test machine, on this terminal: the kernel named (default stock), nrs.ko loaded if it has been built,
# tests/vm in /tests. "reboot -f" in the shell ends it, and so does Ctrl-A X.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

case ${1:-} in
--help | -h) usage && exit ;;
stock | debug) kernel=$1 && shift ;;
*) kernel=stock ;;
esac
exec "$NRS_SCRIPTS/vm.sh" --kernel "$kernel" --name shell --interactive "$@"
