/* SPDX-License-Identifier: GPL-2.0-only */
/* Input of bindgen: device-mapper's target interface, nrs.h, and the module's C files. */
#ifndef NRS_DM_HELPER_H
#define NRS_DM_HELPER_H

#include <linux/blkdev.h>
#include <linux/device-mapper.h>

#include "events.h"
#include "layout.h"
#include "nrs.h"
#include "shim.h"

#endif
