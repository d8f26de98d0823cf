/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Input of bindgen for sys/elevator.rs: the private interface of I/O schedulers. See also
 * dm_helper.h.
 */
#ifndef NRS_ELEVATOR_HELPER_H
#define NRS_ELEVATOR_HELPER_H

#include <linux/blkdev.h>
#include <linux/blk-mq.h>

#include "block/blk-mq-sched.h"
#include "block/elevator.h"
#include "elevator_shim.h"

/* The value of the macro, which bindgen cannot evaluate. */
static const unsigned int nrs_insert_at_head = (__force unsigned int)BLK_MQ_INSERT_AT_HEAD;

#endif
