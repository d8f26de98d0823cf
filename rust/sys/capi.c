// SPDX-License-Identifier: GPL-2.0-only
/* Exports the functions for other modules; capi.rs defines them. */

#include <linux/export.h>

#include "nrs.h"

EXPORT_SYMBOL_GPL(__nrs_server_open);
EXPORT_SYMBOL_GPL(nrs_server_close);
EXPORT_SYMBOL_GPL(nrs_server_write);
EXPORT_SYMBOL_GPL(nrs_server_stats);
EXPORT_SYMBOL_GPL(__nrs_framework_open);
EXPORT_SYMBOL_GPL(nrs_framework_close);
EXPORT_SYMBOL_GPL(nrs_framework_set);
EXPORT_SYMBOL_GPL(nrs_framework_show);
EXPORT_SYMBOL_GPL(nrs_policy_start);
EXPORT_SYMBOL_GPL(nrs_policy_stop);
EXPORT_SYMBOL_GPL(nrs_enqueue);
EXPORT_SYMBOL_GPL(nrs_get);
EXPORT_SYMBOL_GPL(nrs_peek);
EXPORT_SYMBOL_GPL(nrs_dequeue);
EXPORT_SYMBOL_GPL(nrs_finish);
