/* SPDX-License-Identifier: GPL-2.0-only */
/* What bindgen reads: device-mapper's target interface, shim.c, what trace.c is told, layout.c, what modules call. */
#ifndef NRS_DM_HELPER_H
#define NRS_DM_HELPER_H

#include <linux/blkdev.h>
#include <linux/device-mapper.h>

#include "events.h"
#include "layout.h"
#include "nrs.h"
#include "shim.h"

#endif
