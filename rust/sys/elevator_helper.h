/* SPDX-License-Identifier: GPL-2.0-only */
/* What sys/elevator.rs takes from C beside dm_helper.h: the interface of I/O schedulers, a private header of the kernel. */
#ifndef NRS_ELEVATOR_HELPER_H
#define NRS_ELEVATOR_HELPER_H

#include <linux/blkdev.h>
#include <linux/blk-mq.h>

#include "block/blk-mq-sched.h"
#include "block/elevator.h"
#include "elevator_shim.h"

/* The macro, which bindgen does not see through. */
static const unsigned int nrs_insert_at_head = (__force unsigned int)BLK_MQ_INSERT_AT_HEAD;

#endif
